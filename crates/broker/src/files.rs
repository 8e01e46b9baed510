//! Files that the configuration names: read whole, at the start and at each reload.
//!
//! Invariant: a read ends. A named pipe or a device could keep the thread that reloads, so neither
//! is read.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Reads a file of so many bytes at most.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(not_a_file(&metadata));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Reads a file of text.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let wrong = |_| io::Error::new(ErrorKind::InvalidData, "it is not text in UTF-8");
    String::from_utf8(read(path, bytes_max)?).map_err(wrong)
}

/// Opens a file without waiting for a writer, which a named pipe would do.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    use nix::fcntl::OFlag;

    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

fn not_a_file(metadata: &Metadata) -> io::Error {
    if metadata.is_dir() {
        let why = "it is a directory: give the name of a file in it";
        return io::Error::new(ErrorKind::IsADirectory, why);
    }
    let why = "it is no regular file but a pipe, a socket or a device, which a reload could not \
               read again: give the name of a file";
    io::Error::new(ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_whole_and_no_longer_than_it_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        let error = read(&path, 3).unwrap_err();
        assert!(error.to_string().contains("more than 3 bytes"), "{error}");
        let missing = read(&directory.path().join("none"), 4).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_named_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe"),
            (directory.path(), "a directory"),
            (Path::new("/dev/null"), "a device"),
        ] {
            let error = read(path, 4).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
