//! Unix sockets: a file with its mode and owner before anyone can connect to it.
//!
//! The socket is made in a directory that only the broker may enter, gets its mode and owner there,
//! begins to listen, and is then renamed to its place. A socket that is there already is replaced
//! if no program answers on it; any other file is left alone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::unistd::{Group, Uid, User};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::bounds::BACKLOG;
use crate::config::FileMode;

/// A unix socket that listens. Its file is removed with it.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode: another program may have taken the place since.
    file: (u64, u64),
}

impl UnixSocket {
    /// Opens one at `path`. `owner` is `user`, `user:group` or `:group`.
    pub(super) fn open(path: &Path, mode: FileMode, owner: Option<&str>) -> io::Result<Self> {
        let owner = owner.map(ids_of).transpose()?;
        check_place(path)?;
        let private = PrivateDirectory::beside(path)?;
        let made = private.0.join("socket");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(&made)?)?;
        fs::set_permissions(&made, Permissions::from_mode(mode.0))?;
        if let Some((user, group)) = owner {
            chown(&made, user, group)?;
        }
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let file = identity(&fs::symlink_metadata(&made)?);
        fs::rename(&made, path)?;
        Ok(Self {
            socket: UnixListener::from_std(socket.into()),
            path: path.to_owned(),
            file,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        self.socket.accept().map(|(socket, _)| socket)
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let is_ours = |metadata: Metadata| identity(&metadata) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // A file that stays is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether a socket may be put there: nothing is there, or a socket on which no program answers.
fn check_place(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            let why = "the file exists and is not a socket: remove it, or choose another name";
            return Err(io::Error::new(ErrorKind::AlreadyExists, why));
        }
        Ok(_) => {}
    }
    // Without waiting: the queue of a program that accepts nothing may be full.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Err(ErrorKind::AddrInUse.into()),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Ok(()),
            ErrorKind::WouldBlock => Err(ErrorKind::AddrInUse.into()),
            _ => Err(error),
        },
    }
}

/// A directory that only this user may enter. It is removed when it is dropped.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn beside(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let directory = path.with_file_name(hidden);
        if is_own_directory(&directory)? {
            // Of a process that was killed. What else is in it stays, and so does it.
            let _ = fs::remove_file(directory.join("socket"));
            let _ = fs::remove_dir(&directory);
        }
        DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }
}

/// Whether a directory is there that only this user may enter. Fails if anything else is: a link
/// of another user could lead anywhere.
fn is_own_directory(path: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    let of_others = found.permissions().mode() & 0o077;
    let is_private = found.is_dir() && of_others == 0;
    if is_private && found.uid() == Uid::effective().as_raw() {
        return Ok(true);
    }
    let why = format!(
        "the broker makes the socket in {}, and that exists and is not its own: remove it",
        path.display()
    );
    Err(io::Error::new(ErrorKind::AlreadyExists, why))
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("socket")); // gone unless the opening failed
        let _ = fs::remove_dir(&self.0);
    }
}

/// The numbers of `user`, `user:group` or `:group`.
fn ids_of(owner: &str) -> io::Result<(Option<u32>, Option<u32>)> {
    let unknown = |what: &str, name: &str| {
        let why = format!("`socket_owner`: this system has no {what} `{name}`");
        io::Error::new(ErrorKind::NotFound, why)
    };
    let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
    let user = match user {
        "" => None,
        name => {
            let found = User::from_name(name)?.ok_or_else(|| unknown("user", name))?;
            Some(found.uid.as_raw())
        }
    };
    let group = match group {
        "" => None,
        name => {
            let found = Group::from_name(name)?.ok_or_else(|| unknown("group", name))?;
            Some(found.gid.as_raw())
        }
    };
    Ok((user, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: FileMode = FileMode(0o620);

    #[test]
    fn a_socket_has_its_mode_and_its_file_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let socket = UnixSocket::open(&path, MODE, None).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o620);
        let names = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 1, "no directory stays");
        drop(socket);
        assert_eq!(names(), 0);
    }

    #[test]
    fn a_socket_on_which_a_program_answers_is_left_alone_and_a_stale_one_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let first = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = UnixSocket::open(&path, MODE, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(first); // its file stays
        let second = UnixSocket::open(&path, MODE, None).unwrap();
        let _third = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert!(second.accept().is_ok());
    }

    #[test]
    fn a_program_whose_queue_is_full_is_left_alone_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            if socket.connect(&SockAddr::unix(&path).unwrap()).is_err() {
                break;
            }
            waiting.push(socket);
        }
        let error = UnixSocket::open(&path, MODE, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn a_link_in_place_of_the_private_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let other = directory.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("socket"), "precious").unwrap();
        let hidden = directory
            .path()
            .join(format!(".mqtt.{}", std::process::id()));
        std::os::unix::fs::symlink(&other, &hidden).unwrap();
        let error = UnixSocket::open(&path, MODE, None).unwrap_err();
        assert!(error.to_string().contains("is not its own"), "{error}");
        assert!(other.join("socket").exists());
        fs::remove_file(&hidden).unwrap();
        // One that a killed process left is its own, and replaced.
        DirBuilder::new().mode(0o700).create(&hidden).unwrap();
        fs::write(hidden.join("socket"), "").unwrap();
        UnixSocket::open(&path, MODE, None).unwrap();
    }

    #[test]
    fn another_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        fs::write(&path, "precious").unwrap();
        let error = UnixSocket::open(&path, MODE, None).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_file_that_another_program_put_in_its_place_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let socket = UnixSocket::open(&path, MODE, None).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(socket);
        assert!(path.exists());
    }

    #[test]
    fn an_unknown_owner_is_named_and_a_known_one_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mqtt");
        let error = UnixSocket::open(&path, MODE, Some("no-such-user")).unwrap_err();
        assert!(
            error.to_string().contains("no user `no-such-user`"),
            "{error}"
        );
        let me = User::from_uid(Uid::effective()).unwrap().unwrap();
        let owners = |path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.uid(), found.gid())
        };
        let socket = UnixSocket::open(&path, MODE, Some(&me.name)).unwrap();
        assert_eq!(owners(&path).0, me.uid.as_raw());
        drop(socket);
        let (Ok(Some(user)), Ok(Some(group))) =
            (User::from_name("nobody"), Group::from_name("nogroup"))
        else {
            eprintln!("not tried with a group: this system has no `nobody` or no `nogroup`");
            return;
        };
        // Only root may give a file away.
        if Uid::effective().is_root() {
            let _socket = UnixSocket::open(&path, MODE, Some("nobody:nogroup")).unwrap();
            assert_eq!(owners(&path), (user.uid.as_raw(), group.gid.as_raw()));
        }
    }
}
