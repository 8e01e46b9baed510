//! The admin history: each change with its time, caller, address and outcome.
//!
//! [`record_writes`] records each request below `/api/v1` that is no read, so that no handler can
//! forget it. The newest entries are in memory, and all of them are appended to a file of the data
//! directory with mode 0600; when it is full it takes the place of the one before.
//!
//! Of what is refused, each caller has a limited number of entries a minute; a caller without
//! credentials, and what only asks by POST, have none.
//!
//! Deliberately absent: bodies of requests (they have passwords), and the disk's promise for each
//! entry: a power cut may take the last ones, a crash of the process none.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::guard::Proof;
use super::{Caller, Identity};
use crate::limits::{HISTORY_BYTES_MAX, HISTORY_MAX, REFUSED_MAX, TARGET_BYTES_MAX, WRITES_MAX};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::time;

/// What was done, or tried.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Entry {
    /// Grows by one with each entry.
    id: u64,
    /// When.
    at: String,
    /// Account, token, or user of the machine.
    caller: String,
    /// Its address; none at the unix socket.
    address: Option<String>,
    /// Method and path, as the API's document has them.
    action: String,
    /// What it was about: the path and query as they were asked for, or what the handler names.
    target: String,
    outcome: Outcome,
    /// The status of the answer.
    status: u16,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// It was not allowed, not possible or a mistake; nothing was changed.
    Refused,
    /// The server could not do it.
    Failed,
}

/// What a write was about, where its path does not say it; a handler adds it to its answer.
#[derive(Clone, Debug)]
pub(crate) struct Target(pub(crate) String);

/// All entries that are kept.
#[derive(Debug)]
pub(crate) struct History(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    entries: VecDeque<Entry>,
    last_id: u64,
    file: Option<Written>,
    limited: Limited,
}

/// Entries of a minute that callers make without changing anything. Without a limit they would push
/// out those of changes.
#[derive(Debug, Default)]
struct Limited {
    /// Minutes since 1970.
    minute: i64,
    /// By caller; at most as many as there are accounts and tokens.
    counts: HashMap<String, u32>,
}

/// The file that is appended to.
#[derive(Debug)]
struct Written {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The last line was not written whole.
    is_torn: bool,
}

impl History {
    /// Reads what a directory has of it.
    pub(crate) fn open(directory: Option<&Path>) -> Result<Self, String> {
        let mut kept = Kept::default();
        if let Some(directory) = directory {
            let path = directory.join(FILE);
            let failed = |error: io::Error| {
                format!("cannot open the admin history {}: {error}", path.display())
            };
            kept.read(&directory.join(OLD_FILE)).map_err(failed)?;
            kept.read(&path).map_err(failed)?;
            kept.file = Some(Written::open(&path).map_err(failed)?);
        }
        Ok(Self(Mutex::new(kept)))
    }

    /// Adds an entry.
    pub(crate) fn record(
        &self,
        (caller, address): (&str, Option<String>),
        action: String,
        target: &str,
        status: StatusCode,
    ) {
        let outcome = match status {
            _ if status.is_server_error() => Outcome::Failed,
            _ if status.is_client_error() => Outcome::Refused,
            _ => Outcome::Done,
        };
        let mut kept = self.lock();
        if outcome == Outcome::Refused && !kept.limited.has_room(caller, time::now_ms()) {
            return;
        }
        kept.last_id += 1;
        let entry = Entry {
            id: kept.last_id,
            at: time::now_text(),
            caller: caller.to_owned(),
            address,
            action,
            target: shortened(target),
            outcome,
            status: status.as_u16(),
        };
        kept.write(&entry);
        kept.keep(entry);
    }

    /// The newest entries before one, newest first, and whether there are more.
    pub(crate) fn page(&self, before: Option<u64>, limit: usize) -> (Vec<Entry>, bool) {
        let kept = self.lock();
        let before = before.unwrap_or(u64::MAX);
        let end = kept.entries.partition_point(|entry| entry.id < before);
        let start = end.saturating_sub(limit);
        let page = kept.entries.range(start..end).rev().cloned().collect();
        (page, start > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }
}

impl Limited {
    fn has_room(&mut self, caller: &str, now_ms: i64) -> bool {
        let minute = now_ms / 60_000;
        if minute != self.minute {
            self.minute = minute;
            self.counts.clear();
        }
        let count = self.counts.entry(caller.to_owned()).or_default();
        *count = count.saturating_add(1);
        if *count == REFUSED_MAX + 1 {
            tracing::warn!(
                caller,
                "many requests of this caller are refused; the admin history has no more of them this minute"
            );
        }
        *count <= REFUSED_MAX
    }
}

impl Kept {
    /// Lines that cannot be read are left out: the last one may be torn.
    fn read(&mut self, path: &Path) -> io::Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file.take(2 * HISTORY_BYTES_MAX)).split(b'\n') {
            if let Ok(entry) = serde_json::from_slice::<Entry>(&line?)
                && entry.id > self.last_id
            {
                self.keep(entry);
            }
        }
        Ok(())
    }

    fn keep(&mut self, entry: Entry) {
        self.last_id = entry.id;
        if self.entries.len() >= HISTORY_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    fn write(&mut self, entry: &Entry) {
        let Some(file) = &mut self.file else {
            return;
        };
        let written = file.append(entry);
        if let Err(error) = &written
            && !file.is_torn
        {
            let file = file.path.display();
            tracing::error!(%error, %file, "the admin history cannot be written; it is in memory only");
        }
        file.is_torn = written.is_err();
    }
}

impl Written {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(path)?;
        let bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if let Some(end) = bytes.checked_sub(1) {
            file.read_exact_at(&mut last, end)?;
        }
        Ok(Self {
            path: path.to_owned(),
            is_torn: last != [b'\n'],
            bytes,
            file,
        })
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        if self.bytes >= HISTORY_BYTES_MAX {
            // It may be done already, if opening the new one failed.
            match fs::rename(&self.path, self.path.with_file_name(OLD_FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => *self = Self::open(&self.path)?,
            }
        }
        let mut line = serde_json::to_vec(entry)?;
        if self.is_torn {
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

/// Records requests that are no reads, with the caller that the request has.
///
/// A write is a task of its own, which goes on when its connection ends: what was changed is
/// recorded, and what belongs to the change is done.
pub(crate) async fn record_writes(
    State(identity): State<Identity>,
    request: Request,
    next: Next,
) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let caller = request.extensions().get::<Caller>().cloned();
    let room = match caller {
        Some(_) => &identity.0.writing,
        None => &identity.0.signing_in,
    };
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else {
        let detail = format!("{WRITES_MAX} changes are being made; try again later");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    };
    let write = tokio::spawn(async move {
        let _held = permit;
        let asked = Asked::of(&request);
        let response = next.run(request).await;
        if let Some(caller) = caller.filter(|_| asked.is_recorded) {
            let target = response.extensions().get::<Target>();
            let target = target.map_or(&*asked.target, |target| &target.0);
            let by = (&*caller.name, asked.address);
            let history = identity.history();
            history.record(by, asked.action, target, response.status());
        }
        response
    });
    write.await.unwrap_or_else(|error| {
        let detail = format!("the request failed: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
    })
}

/// Records that a write was refused before it had a caller.
pub(super) fn record_refusal(
    identity: &Identity,
    caller: &str,
    request: &Request,
    status: StatusCode,
) {
    let asked = Asked::of(request);
    if !request.method().is_safe() && asked.is_recorded {
        let by = (caller, asked.address);
        let history = identity.history();
        history.record(by, asked.action, &asked.target, status);
    }
}

/// What an entry says of a request.
struct Asked {
    address: Option<String>,
    action: String,
    target: String,
    is_recorded: bool,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let address = request.extensions().get::<Peer>().and_then(Peer::address);
        let path = request.extensions().get::<MatchedPath>();
        let path = path.map_or_else(|| request.uri().path(), MatchedPath::as_str);
        let target = request.uri().path_and_query();
        let action = format!("{} {path}", request.method());
        let proof = request.extensions().get::<Proof>();
        Self {
            address: address.map(|address| address.to_string()),
            is_recorded: action != QUESTION && !matches!(proof, Some(Proof::Nothing)),
            action,
            target: target.map_or_else(String::new, ToString::to_string),
        }
    }
}

fn shortened(text: &str) -> String {
    if text.len() <= TARGET_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(TARGET_BYTES_MAX)])
}

/// A POST that changes nothing.
const QUESTION: &str = "POST /api/v1/access/explain";
const FILE: &str = "admin-history.jsonl";
const OLD_FILE: &str = "admin-history.1.jsonl";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn record(history: &History, number: u64) {
        let action = format!("POST /{number}");
        history.record(("ann", None), action, "x", StatusCode::OK);
    }

    fn actions(history: &History, before: Option<u64>, limit: usize) -> (Vec<String>, bool) {
        let (page, has_more) = history.page(before, limit);
        (
            page.into_iter().map(|entry| entry.action).collect(),
            has_more,
        )
    }

    #[test]
    fn the_newest_come_first_and_again_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(Some(directory.path())).unwrap();
        (1..=3).for_each(|number| record(&history, number));
        let path = directory.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"id\":9,\"torn").unwrap();
        let history = History::open(Some(directory.path())).unwrap();
        record(&history, 4);
        let history = History::open(Some(directory.path())).unwrap();
        assert_eq!(
            actions(&history, None, 1),
            (vec!["POST /4".to_owned()], true)
        );
        let rest = ["POST /3", "POST /2", "POST /1"].map(str::to_owned);
        assert_eq!(actions(&history, Some(4), 10), (rest.to_vec(), false));
    }

    #[test]
    fn refused_requests_of_a_caller_push_out_no_changes() {
        let mut limited = Limited::default();
        for number in 0..3 * REFUSED_MAX {
            assert_eq!(limited.has_room("ann", 0), number < REFUSED_MAX);
        }
        assert!(limited.has_room("bob", 59_999));
        assert!(limited.has_room("ann", 60_000), "a minute later");
        let history = History::open(None).unwrap();
        record(&history, 1);
        for _ in 0..HISTORY_MAX {
            let action = "POST /x".to_owned();
            history.record(("ann", None), action, "x", StatusCode::FORBIDDEN);
        }
        let (all, _) = history.page(None, HISTORY_MAX);
        assert_eq!(all.last().map(|entry| &*entry.action), Some("POST /1"));
    }

    #[test]
    fn the_file_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(Some(directory.path())).unwrap();
        if let Some(file) = &mut history.lock().file {
            file.bytes = HISTORY_BYTES_MAX;
        }
        record(&history, 1);
        assert!(directory.path().join(OLD_FILE).exists());
        record(&history, 2);
        let again = History::open(Some(directory.path())).unwrap();
        assert_eq!(actions(&again, None, 9).0, ["POST /2", "POST /1"]);
    }

    #[test]
    fn a_long_target_is_cut_between_characters() {
        let text = "ä".repeat(TARGET_BYTES_MAX);
        assert!(shortened(&text).len() <= TARGET_BYTES_MAX + '…'.len_utf8());
        assert_eq!(shortened("short"), "short");
    }
}
