//! A unix socket in a directory, for programs of the same user.
//!
//! Invariants:
//! - Only this user and root can connect: the socket has mode 0600 from its first moment.
//! - A stale socket is replaced; any other file of its name stays, and is an error.
//! - A path that is too long for an address of the kernel is reached through an open file of its
//!   directory.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

/// Removes what is left of a socket; nothing else. The caller has the directory locked.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => {
            let what = format!("{} is not a socket; move it away", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The socket, to which only this user and root can ever connect.
pub fn listen(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file takes the mode of the socket where it is bound; elsewhere it is set right after.
    let socket = File::from(OwnedFd::from(socket));
    let mode = || Permissions::from_mode(0o600);
    socket.set_permissions(mode())?;
    let socket = Socket::from(OwnedFd::from(socket));
    with_address(directory, name, |address| socket.bind(address))?;
    fs::set_permissions(directory.join(name), mode())?;
    socket.listen(BACKLOG)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// Connects to the program that listens there.
pub fn connect(directory: &Path, name: &str) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    with_address(directory, name, |address| socket.connect(address))?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}

/// The address of the socket. If its path is too long for an address, the path of an open file of
/// its directory is used.
fn with_address<T>(
    directory: &Path,
    name: &str,
    with: impl FnOnce(&SockAddr) -> io::Result<T>,
) -> io::Result<T> {
    if let Ok(address) = SockAddr::unix(directory.join(name)) {
        return with(&address);
    }
    let opened = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{name}", opened.as_raw_fd());
    with(&SockAddr::unix(path)?)
}

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 16;
