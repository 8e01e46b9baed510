//! Changes a password file: other lines stay as they are, and a crash leaves the old file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use unbroken_mosquitto_files::users::user_of;

use super::hash::{Scheme, StoredHash};
use crate::bounds::USERS_FILE_BYTES;
use crate::files;

/// A password file to be changed.
#[derive(Debug)]
pub struct PasswordFile {
    path: PathBuf,
    lines: Vec<String>,
}

/// Why a password file could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The user to remove does not exist.
    #[error("there is no user `{user}` in {}", path.display())]
    NoSuchUser {
        /// The user.
        user: String,
        /// The file.
        path: PathBuf,
    },
    /// The format has no place for such a name.
    #[error("a user name cannot be empty, begin with `#`, or contain `:` or a line break")]
    UserName,
    /// The system has no randomness for a salt.
    #[error("no random salt: {0}")]
    Random(getrandom::Error),
}

impl PasswordFile {
    /// Reads the file; one that does not exist is empty.
    pub fn open(path: &Path) -> Result<Self, EditError> {
        match files::read_text(path, USERS_FILE_BYTES) {
            Ok(text) => Ok(Self {
                path: path.to_owned(),
                lines: text.lines().map(str::to_owned).collect(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::empty(path)),
            Err(source) => Err(EditError::Io {
                what: "read",
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// An empty file that will replace the one at `path`.
    pub fn empty(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            lines: Vec::new(),
        }
    }

    /// Adds `user`, or gives it a new password.
    pub fn set(&mut self, user: &str, password: &[u8], scheme: Scheme) -> Result<(), EditError> {
        if user.is_empty() || user.starts_with('#') || user.contains([':', '\n', '\r']) {
            return Err(EditError::UserName);
        }
        let hash = StoredHash::make(scheme, password).map_err(EditError::Random)?;
        let line = format!("{user}:{hash}");
        match self.lines.iter_mut().find(|line| is_of(line, user)) {
            Some(old) => *old = line,
            None => self.lines.push(line),
        }
        Ok(())
    }

    /// Removes `user`.
    pub fn remove(&mut self, user: &str) -> Result<(), EditError> {
        let before = self.lines.len();
        self.lines.retain(|line| !is_of(line, user));
        if self.lines.len() == before {
            return Err(EditError::NoSuchUser {
                user: user.to_owned(),
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    /// Hashes every plain-text password; returns how many there were.
    pub fn hash_plain(&mut self, scheme: Scheme) -> Result<usize, EditError> {
        let mut hashed = 0;
        for line in &mut self.lines {
            let Some((user, password)) = user_of(line) else {
                continue;
            };
            if password.starts_with('$') {
                continue;
            }
            let hash = StoredHash::make(scheme, password.as_bytes()).map_err(EditError::Random)?;
            *line = format!("{user}:{hash}");
            hashed += 1;
        }
        Ok(hashed)
    }

    /// Puts the changed file in the place of the old one, readable by its owner only if it is new.
    pub fn save(&self) -> Result<(), EditError> {
        let failed = |what| {
            move |source| EditError::Io {
                what,
                path: self.path.clone(),
                source,
            }
        };
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new.{}", std::process::id()));
        let new = self.path.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new).map_err(failed("write beside"))?;
        let text: String = self
            .lines
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect();
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        let placed = written
            .and_then(|()| match fs::metadata(&self.path) {
                Ok(old) => fs::set_permissions(&new, old.permissions()),
                Err(_) => Ok(()),
            })
            .and_then(|()| fs::rename(&new, &self.path));
        if placed.is_err() {
            // The error that is reported is the first one; a leftover file is the lesser evil.
            let _ = fs::remove_file(&new);
        }
        placed.map_err(failed("write"))
    }
}

fn is_of(line: &str, user: &str) -> bool {
    user_of(line).is_some_and(|(name, _)| name == user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::Passwords;

    #[test]
    fn users_are_added_changed_and_removed_and_other_lines_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        fs::write(&path, "# the plant\nalice:plain\n").unwrap();
        let mut file = PasswordFile::open(&path).unwrap();
        file.set("bob", b"one", Scheme::Argon2id).unwrap();
        file.set("bob", b"two", Scheme::Argon2id).unwrap();
        assert_eq!(file.hash_plain(Scheme::Argon2id).unwrap(), 1);
        file.save().unwrap();

        let users = Passwords::read(&path).unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.verify("alice", b"plain") && users.verify("bob", b"two"));
        assert!(
            fs::read_to_string(&path)
                .unwrap()
                .starts_with("# the plant\nalice:$argon2id$")
        );

        let mut file = PasswordFile::open(&path).unwrap();
        file.remove("alice").unwrap();
        assert!(matches!(
            file.remove("alice"),
            Err(EditError::NoSuchUser { .. })
        ));
        file.save().unwrap();
        assert_eq!(Passwords::read(&path).unwrap().len(), 1);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing is left over"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_is_for_its_owner_only_and_an_old_one_keeps_its_rights() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        let rights = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        PasswordFile::empty(&path).save().unwrap();
        assert_eq!(rights(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        PasswordFile::open(&path).unwrap().save().unwrap();
        assert_eq!(rights(), 0o640);
    }

    #[test]
    fn a_name_that_the_format_cannot_hold_is_refused() {
        let mut file = PasswordFile::empty("users".as_ref());
        for user in ["", "a:b", "a\nb", "#a"] {
            assert!(matches!(
                file.set(user, b"x", Scheme::Pbkdf2),
                Err(EditError::UserName)
            ));
        }
    }
}
