//! `unbroken backup`: a consistent snapshot of a data directory as one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use unbroken_store::backup::{self, BackupError, Contents};
use unbroken_store::{StoreError, View};

use super::{DataArgs, failure, human_format};
use crate::exit::{self, Failure};

/// Write everything in a data directory to one file, while the broker runs or not
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken backup --data /var/lib/unbroken monday.backup
  unbroken backup --data /var/lib/unbroken - | zstd | ssh vault 'cat > monday.zst'
  unbroken restore monday.backup --data /var/lib/unbroken

The file is a consistent snapshot, and readable for this user alone. It is verified as a whole when
it is restored. The version that wrote it, and every later one, can restore it.

Exit codes: 0 it is written, and safe on the disk; 2 wrong usage; 65 the store is damaged; 66 there
is none; 69 another process has it; 73 the file cannot be made; 74 reading or writing failed; 77 it
is another user's; 78 wrong configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// The file, which must not be there yet; `-` is standard output
    to: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let data = args.data.open()?;
    let view = data.view().map_err(|error| failure(&error))?;
    let contents = if args.to == Path::new("-") {
        let mut out = io::stdout().lock();
        backup::write(&*view, &mut out).map_err(told)?
    } else {
        to_file(&*view, &args.to)?
    };
    let Contents {
        messages,
        values,
        bytes,
    } = contents;
    let size = human_format::size(bytes);
    // On standard error, since standard output may be the backup; if nobody reads it, it is made.
    let _ = writeln!(
        io::stderr(),
        "{messages} messages, {values} values: {size} in {}",
        args.to.display()
    );
    Ok(())
}

/// Under another name until it is whole, so that half a backup is never taken for one.
fn to_file(view: &dyn View, to: &Path) -> Result<Contents, Failure> {
    let making = |error: io::Error| {
        let what = format_args!("cannot make {}: {error}", to.display());
        Failure::new(exit::CANNOT_CREATE, what)
    };
    if to.try_exists().map_err(making)? {
        return Err(making(io::Error::other(
            "it is there already; choose another name",
        )));
    }
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(BACKUP_MODE)
        .open(&partial)
        .map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    "; another backup is making it, or one was ended before it was whole: if so, \
                     remove it"
                }
                _ => "",
            };
            let what = format_args!("cannot make {}: {error}{remedy}", partial.display());
            Failure::new(exit::CANNOT_CREATE, what)
        })?;
    let written = write(view, file).and_then(|contents| {
        give_name(&partial, to, |from, to| fs::hard_link(from, to)).map_err(making)?;
        Ok(contents)
    });
    let removed = fs::remove_file(&partial);
    let contents = written?;
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(making(error)),
        _ => {}
    }
    sync_directory(to).map_err(making)?;
    Ok(contents)
}

/// Unlike a rename, a link does not take the place of a file that came meanwhile. Where there are
/// no links (FAT, some network drives), an empty file takes the name first.
fn give_name(
    from: &Path,
    to: &Path,
    link: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    match link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            File::create_new(to)?;
            fs::rename(from, to)
        }
        linked => linked,
    }
}

/// A file is found after a power cut when its directory is on the disk, too.
fn sync_directory(of: &Path) -> io::Result<()> {
    let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(view: &dyn View, file: File) -> Result<Contents, Failure> {
    let mut out = BufWriter::new(file);
    let contents = backup::write(view, &mut out).map_err(told)?;
    let synced = out.get_ref().sync_all();
    let failed = |error| Failure::new(exit::IO, format_args!("cannot sync the backup: {error}"));
    synced.map_err(failed)?;
    Ok(contents)
}

/// How a command ends that the backup failed.
pub(super) fn told(error: BackupError) -> Failure {
    match error {
        BackupError::Store(error) => failure(&error),
        BackupError::Io {
            doing: "writing",
            source,
        } if source.kind() == io::ErrorKind::BrokenPipe => Failure::silent(exit::IO),
        BackupError::Damaged { .. } | BackupError::Format { .. } | BackupError::NoBackup => {
            Failure::new(exit::DATA, error)
        }
        BackupError::NotEmpty { .. } => Failure::new(exit::CANNOT_CREATE, error),
        error => Failure::new(exit::IO, error),
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        failure(&error)
    }
}

/// For the user alone, as the directory is: what clients publish is in it.
const BACKUP_MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    fn no_links(_: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[test]
    fn a_backup_gets_its_name_where_there_are_no_links() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let [from, to] = ["a.partial", "a"].map(|name| directory.path().join(name));
        fs::write(&from, "whole")?;
        give_name(&from, &to, no_links)?;
        assert_eq!(fs::read_to_string(&to)?, "whole");
        assert!(!from.try_exists()?);
        sync_directory(&to)
    }

    #[test]
    fn a_backup_never_takes_the_place_of_a_file() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let [from, to] = ["a.partial", "a"].map(|name| directory.path().join(name));
        fs::write(&from, "whole")?;
        fs::write(&to, "another's")?;
        for link in [no_links, |from: &Path, to: &Path| fs::hard_link(from, to)] {
            let refused = give_name(&from, &to, link).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&to)?, "another's");
        }
        Ok(())
    }
}
