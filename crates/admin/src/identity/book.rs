//! Accounts and tokens, in one file of the data directory.
//!
//! Invariants:
//! - The file has mode 0600 from its first moment, and is replaced whole: a crash leaves the old or
//!   the new one.
//! - A change is in force once it is on disk; without a file it ends with the process.
//! - Passwords are hashed with argon2id, and of a token only the digest is kept.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Role;
use super::scope::Scope;
use crate::limits::BOOK_BYTES_MAX;
use crate::problem::Problem;

/// All of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Book {
    pub(crate) accounts: Vec<Account>,
    pub(crate) tokens: Vec<Token>,
}

/// A person's. Names are unique.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Its hash.
    pub(crate) password: String,
    pub(crate) created_ms: i64,
}

/// A program's.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Empty: all that the role may do.
    #[serde(default)]
    pub(crate) scope: Vec<Scope>,
    pub(crate) digest: String,
    pub(crate) created_ms: i64,
    pub(crate) created_by: String,
    /// `None`: it does not expire.
    pub(crate) expires_ms: Option<i64>,
    #[serde(default)]
    pub(crate) last_used_ms: Option<i64>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({:?}, {})", self.name, self.role)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}, {:?}, {})", self.id, self.name, self.role)
    }
}

impl Book {
    pub(crate) fn account(&self, name: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.name == name)
    }

    /// The token with this digest, if it has not expired.
    pub(crate) fn token(&self, digest: &str, now_ms: i64) -> Option<&Token> {
        let token = self.tokens.iter().find(|token| token.digest == digest)?;
        let is_valid = token.expires_ms.is_none_or(|expires| now_ms < expires);
        is_valid.then_some(token)
    }

    /// Whether only this account may change accounts.
    pub(crate) fn is_last_admin(&self, name: &str) -> bool {
        let mut admins = self.accounts.iter().filter(|it| it.role == Role::Admin);
        admins.next().is_some_and(|it| it.name == name) && admins.next().is_none()
    }
}

/// The book with its file.
#[derive(Debug)]
pub(crate) struct Store {
    /// `None`: all is in memory.
    file: Option<PathBuf>,
    book: RwLock<Arc<Book>>,
    /// Held while the book is changed.
    changing: Mutex<()>,
    /// When tokens were used since the last change, in milliseconds by id.
    used: Mutex<HashMap<String, i64>>,
}

impl Store {
    /// Reads the file in a directory, if there is one.
    pub(crate) fn open(directory: Option<&Path>) -> Result<Self, String> {
        let file = directory.map(|directory| directory.join(FILE));
        let book = match &file {
            Some(path) => read(path).map_err(|why| {
                format!(
                    "cannot read the accounts of the admin server from {}: {why}; mend the file, or \
                     move it away to begin without accounts",
                    path.display()
                )
            })?,
            None => Book::default(),
        };
        Ok(Self {
            file,
            book: RwLock::new(Arc::new(book)),
            changing: Mutex::default(),
            used: Mutex::default(),
        })
    }

    /// As it is now.
    pub(crate) fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it: waits for the disk.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = Book::clone(&self.book());
        let changed = change(&mut book)?;
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for token in &mut book.tokens {
            token.last_used_ms = used.get(&token.id).copied().or(token.last_used_ms);
        }
        drop(used);
        if let Some(path) = &self.file {
            write(path, &book).map_err(|error| {
                let detail = format!(
                    "cannot write {}: {error}; nothing was changed: mend the disk, and try again",
                    path.display()
                );
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            })?;
        }
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
        self.used().clear();
        Ok(changed)
    }

    /// Notes that a token was used.
    pub(crate) fn note_use(&self, token: &Token, now_ms: i64) {
        self.used().insert(token.id.clone(), now_ms);
    }

    pub(crate) fn last_used_ms(&self, token: &Token) -> Option<i64> {
        self.used().get(&token.id).copied().or(token.last_used_ms)
    }

    /// Stores when tokens were used, at the end.
    pub(crate) fn flush(&self) {
        if !self.used().is_empty()
            && let Err(problem) = self.change(|_| Ok(()))
        {
            tracing::warn!(
                error = problem.detail,
                "the last use of tokens is not stored"
            );
        }
    }

    /// As many entries as tokens were used.
    fn used(&self) -> std::sync::MutexGuard<'_, HashMap<String, i64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<Book, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::default()),
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if metadata.mode() & 0o077 != 0 {
        let file = path.display();
        tracing::warn!(%file, "other users can read this file, which has hashes of passwords: chmod 600");
    }
    let mut text = String::new();
    let read = file.take(BOOK_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > BOOK_BYTES_MAX {
        return Err(format!("it has more than {BOOK_BYTES_MAX} bytes"));
    }
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

fn write(path: &Path, book: &Book) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(book)?;
    let new = path.with_extension("json.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The name is safe once its directory is. The change is made in any case: it would be read at
    // the next start.
    let synced = path
        .parent()
        .map_or(Ok(()), |directory| File::open(directory)?.sync_all());
    if let Err(error) = synced {
        let file = path.display();
        tracing::warn!(%error, %file, "a power cut may undo the last change of accounts and tokens");
    }
    Ok(())
}

const FILE: &str = "admin.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, role: Role) -> Account {
        Account {
            name: name.to_owned(),
            role,
            password: "x".to_owned(),
            created_ms: 0,
        }
    }

    #[test]
    fn a_change_is_read_again_from_a_file_of_this_user_only() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(directory.path())).unwrap();
        let add = |name| {
            store.change(|book| {
                book.accounts.push(account(name, Role::Viewer));
                Ok(())
            })
        };
        add("ann").unwrap();
        add("bob").unwrap();
        let path = directory.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = Store::open(Some(directory.path())).unwrap();
        let names: Vec<_> = again
            .book()
            .accounts
            .iter()
            .map(|it| it.name.clone())
            .collect();
        assert_eq!(names, ["ann", "bob"]);
    }

    #[test]
    fn a_refused_change_leaves_the_book() {
        let store = Store::open(None).unwrap();
        let refused: Result<(), _> = store.change(|book| {
            book.accounts.push(account("ann", Role::Viewer));
            Err(Problem::new(StatusCode::CONFLICT, "no"))
        });
        assert!(refused.is_err());
        assert!(store.book().accounts.is_empty());
    }

    #[test]
    fn a_damaged_file_is_named_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "{").unwrap();
        let error = Store::open(Some(directory.path())).unwrap_err();
        assert!(error.contains("admin.json"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{");
    }

    #[test]
    fn the_last_admin_is_known() {
        let mut book = Book::default();
        book.accounts.push(account("ann", Role::Admin));
        book.accounts.push(account("bob", Role::Operator));
        assert!(book.is_last_admin("ann"));
        assert!(!book.is_last_admin("bob"));
        book.accounts.push(account("eve", Role::Admin));
        assert!(!book.is_last_admin("ann"));
    }

    #[test]
    fn a_token_is_good_until_it_expires() {
        let token = |digest: &str, expires_ms| Token {
            id: digest.to_owned(),
            name: digest.to_owned(),
            role: Role::Viewer,
            scope: Vec::new(),
            digest: digest.to_owned(),
            created_ms: 0,
            created_by: "ann".to_owned(),
            expires_ms,
            last_used_ms: None,
        };
        let book = Book {
            accounts: Vec::new(),
            tokens: vec![token("a", Some(10)), token("b", None)],
        };
        assert!(book.token("a", 9).is_some());
        assert!(book.token("a", 10).is_none());
        assert!(book.token("b", i64::MAX).is_some());
        assert!(book.token("", 0).is_none());
    }

    #[test]
    fn the_last_use_of_a_token_is_stored_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(directory.path())).unwrap();
        let added = store.change(|book| {
            let json = r#"{"id":"1","name":"n","role":"viewer","digest":"d","created_ms":0,
                "created_by":"ann","expires_ms":null}"#;
            book.tokens.push(serde_json::from_str(json).unwrap());
            Ok(())
        });
        added.unwrap();
        store.note_use(&store.book().tokens[0], 7);
        assert_eq!(store.last_used_ms(&store.book().tokens[0]), Some(7));
        store.flush();
        let again = Store::open(Some(directory.path())).unwrap();
        assert_eq!(again.last_used_ms(&again.book().tokens[0]), Some(7));
    }
}
