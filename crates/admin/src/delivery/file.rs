//! Files of the admin server in the data directory: readable by the broker's user alone, replaced
//! whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::incidents::Saved;
use crate::limits::INCIDENT_FILE_BYTES_MAX;

/// The directory of incidents and series, made if it is missing.
pub(crate) fn directory(data: &Path) -> io::Result<PathBuf> {
    let directory = data.join(DIRECTORY);
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if fs::metadata(&directory)?.is_dir() {
        return Ok(directory);
    }
    let why = format!("{} is not a directory: move it away", directory.display());
    Err(io::Error::new(io::ErrorKind::NotADirectory, why))
}

/// Opens a file that only the broker's user may read.
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.open(path)
}

/// Puts these bytes in the place of a file.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = open_private(
        &next,
        OpenOptions::new().write(true).create(true).truncate(true),
    )?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Keeps the file of incidents, which cannot be read, under another name. Answers that.
pub(crate) fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    let aside = directory.join("incidents.unreadable");
    fs::rename(directory.join(INCIDENTS), &aside)?;
    Ok(aside)
}

pub(crate) fn save_incidents(directory: &Path, saved: &Saved) -> io::Result<()> {
    let bytes = serde_json::to_vec(saved).map_err(io::Error::other)?;
    replace(&directory.join(INCIDENTS), &bytes)
}

/// The incidents of earlier runs; none if there is no file.
pub(crate) fn load_incidents(directory: &Path) -> io::Result<Saved> {
    let path = directory.join(INCIDENTS);
    let length = match fs::metadata(&path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::default()),
        Err(error) => return Err(error),
    };
    if length > INCIDENT_FILE_BYTES_MAX {
        return Err(io::Error::other("the file is too large"));
    }
    let saved: Saved = serde_json::from_slice(&fs::read(&path)?).map_err(io::Error::other)?;
    match saved.version {
        Saved::VERSION => Ok(saved),
        version => Err(io::Error::other(format!("version {version} is not known"))),
    }
}

/// In the data directory; the store knows the name too.
const DIRECTORY: &str = "delivery";
const INCIDENTS: &str = "incidents.json";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{Incident, Incidents};
    use crate::time::Moment;

    #[test]
    fn a_file_in_its_place_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(DIRECTORY), b"").unwrap();
        let error = directory(data.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn incidents_come_back_and_a_damaged_file_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        let directory = directory(data.path()).unwrap();
        assert!(load_incidents(&directory).unwrap().version == 0);
        let mut incidents = Incidents::default();
        let id = incidents.add(Incident::of_crash(Moment(7)));
        save_incidents(&directory, &incidents.saved()).unwrap();
        let loaded = Incidents::restore(load_incidents(&directory).unwrap());
        assert_eq!(loaded.get(id).unwrap().kind, "crash");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let metadata = fs::metadata(directory.join(INCIDENTS)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        fs::write(directory.join(INCIDENTS), b"{").unwrap();
        assert!(load_incidents(&directory).is_err());
        assert_eq!(fs::read(set_aside(&directory).unwrap()).unwrap(), b"{");
        assert!(load_incidents(&directory).is_ok());
    }
}
