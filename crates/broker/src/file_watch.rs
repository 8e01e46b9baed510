//! Watches the files of listeners with TLS: reloads when one has changed, and warns of those that
//! expire.
//!
//! A thread looks at them every few seconds. Certificate and key are two files, so a change is
//! acted on only when a later look finds all files as the look before it did. A reload that failed
//! is tried again, at looks ever further apart: its cause may be in no file that is looked at.
//!
//! Deliberately absent: notifications of the kernel, which do not see changes by other machines of
//! a shared directory, and the reading of files ([`crate::tls`]).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::SystemTime;

use crate::bounds::FILES_LOOK_EVERY;
use crate::config::{Config, Tls};
use crate::handle::BrokerHandle;
use crate::notice::Notice;
use crate::tls::{Expiry, Stage};

/// Ends the watch when it is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    _ends: Sender<Infallible>,
    has_failed: Arc<AtomicBool>,
}

impl Watched {
    /// The reload that a notice has asked for has failed.
    pub(crate) fn reload_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }
}

/// Begins to watch the files of a broker; sends [`Notice::FilesChanged`] when they are to be read
/// again. `files`: as they were before the broker read them.
pub(crate) fn watch(
    mut files: Files,
    broker: BrokerHandle,
    notify: Sender<Notice>,
) -> io::Result<Watched> {
    let (ends, ended) = channel();
    let has_failed = Arc::new(AtomicBool::new(false));
    let failed = Arc::clone(&has_failed);
    let look = move || {
        let mut warned = Warned::new(&broker.expiries());
        while ended.recv_timeout(FILES_LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let has_failed = failed.swap(false, Ordering::Relaxed);
            let due = files.due(&files_of(&broker.config()), has_failed);
            let sent = due.map(|is_retry| notify.send(Notice::FilesChanged { is_retry }));
            if let Some(Err(_)) = sent {
                return;
            }
            for expiry in warned.due(broker.expiries()) {
                expiry.log();
            }
        }
    };
    thread::Builder::new()
        .name("files".to_owned())
        .spawn(look)?;
    Ok(Watched {
        _ends: ends,
        has_failed,
    })
}

/// The files of listeners with TLS, and of the admin server.
fn files_of(config: &Config) -> Vec<PathBuf> {
    let listeners = config.listeners.iter();
    let with_tls = listeners.filter(|listener| listener.protocol.has_tls());
    let files = |tls: &Tls| {
        let certificates = tls.certificate_files.iter().chain(&tls.key_files);
        let trust = tls.client_ca_file.iter().chain(&tls.crl_file);
        certificates.chain(trust).cloned().collect::<Vec<_>>()
    };
    let admin = config.admin.tls();
    with_tls
        .flat_map(|listener| files(&listener.tls))
        .chain(admin.iter().flat_map(files))
        .collect()
}

/// What tells one content of a file from another, and who may read it, without reading it.
#[derive(PartialEq, Eq, Debug)]
struct Stamp {
    modified: SystemTime,
    length: u64,
    /// Number, mode, user, group and last change of these.
    #[cfg(unix)]
    inode: (u64, u32, [u32; 2], [i64; 2]),
}

/// Files, as the last look found them.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// `None`: there is no file.
    seen: BTreeMap<PathBuf, Option<Stamp>>,
    /// One of them changed, and this was not reported.
    is_changed: bool,
    /// What was reported last has failed.
    has_failed: bool,
    /// Looks since the last change that found it failed.
    failed_looks: u32,
}

impl Files {
    /// Looks at them for the first time.
    pub(crate) fn of(config: &Config) -> Self {
        let mut files = Self::default();
        files.changed(&files_of(config));
        files
    }

    /// Looks at these files. Answers whether they are to be read again, and whether only because it
    /// has failed before.
    fn due(&mut self, files: &[PathBuf], has_failed: bool) -> Option<bool> {
        if self.changed(files) {
            (self.has_failed, self.failed_looks) = (false, 0);
            return Some(false);
        }
        self.has_failed |= has_failed;
        if self.is_changed || !self.has_failed {
            return None;
        }
        self.failed_looks = self.failed_looks.saturating_add(1);
        let is_due = self.failed_looks.is_power_of_two();
        self.has_failed = !is_due;
        is_due.then_some(true)
    }

    /// Looks at these files. Answers whether any has changed, once it changes no more.
    fn changed(&mut self, files: &[PathBuf]) -> bool {
        let now: BTreeMap<_, _> = files.iter().map(|it| (it.clone(), stamp(it))).collect();
        // One that was not looked at before was read when it was configured.
        let is_other = |(path, stamp): (&PathBuf, &Option<Stamp>)| {
            self.seen.get(path).is_some_and(|before| before != stamp)
        };
        let is_moving = now.iter().any(is_other);
        self.seen = now;
        self.is_changed |= is_moving;
        !is_moving && std::mem::take(&mut self.is_changed)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    #[cfg(unix)]
    use std::os::unix::fs::MetadataExt as _;

    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        length: metadata.len(),
        #[cfg(unix)]
        inode: (
            metadata.ino(),
            metadata.mode(),
            [metadata.uid(), metadata.gid()],
            [metadata.ctime(), metadata.ctime_nsec()],
        ),
    })
}

/// The stage of each file that the log has a line about.
#[derive(Debug)]
struct Warned(BTreeMap<PathBuf, Stage>);

impl Warned {
    /// Those that were logged when they were read.
    fn new(expiries: &[Expiry]) -> Self {
        let stages = expiries.iter().map(|it| (it.file.clone(), it.stage()));
        Self(stages.collect())
    }

    /// Those that have come to another stage since.
    fn due(&mut self, expiries: Vec<Expiry>) -> Vec<Expiry> {
        let before = std::mem::replace(&mut self.0, Self::new(&expiries).0);
        let is_due = |expiry: &Expiry| {
            let stage = before.get(&expiry.file);
            stage.is_some_and(|before| *before < expiry.stage())
        };
        expiries.into_iter().filter(is_due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Expiring;

    #[test]
    fn a_change_is_reported_once_when_all_files_stay_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let [certificate, key] = ["a.pem", "a.key"].map(|name| directory.path().join(name));
        let both = [certificate.clone(), key.clone()];
        let mut files = Files::default();
        fs::write(&certificate, "1").unwrap();
        assert!(!files.changed(&both));
        assert!(!files.changed(&both));
        fs::write(&certificate, "22").unwrap();
        assert!(!files.changed(&both));
        // It was not there before.
        fs::write(&key, "22").unwrap();
        assert!(!files.changed(&both));
        assert!(files.changed(&both));
        assert!(!files.changed(&both));
        fs::remove_file(&key).unwrap();
        assert!(!files.changed(&both));
        assert!(files.changed(&both));
        // Others are configured, and were read for it.
        assert!(!files.changed(&both[..1]));
        assert!(!files.changed(&both));
    }

    #[test]
    fn a_reload_that_failed_is_tried_again_ever_later_until_a_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let file = [directory.path().join("a.pem")];
        let mut files = Files::default();
        fs::write(&file[0], "1").unwrap();
        assert_eq!(files.due(&file, false), None);
        let retries = |files: &mut Files| {
            let mut has_failed = true;
            let looks = (1..10).filter(|_| {
                let due = files.due(&file, has_failed);
                has_failed = due == Some(true);
                has_failed
            });
            looks.collect::<Vec<_>>()
        };
        assert_eq!(retries(&mut files), [1, 2, 4, 8]);
        fs::write(&file[0], "22").unwrap();
        assert_eq!(files.due(&file, false), None);
        assert_eq!(files.due(&file, false), Some(false));
        assert_eq!(files.due(&file, false), None, "it has not failed");
        assert_eq!(retries(&mut files), [1, 2, 4, 8]);
    }

    #[cfg(unix)]
    #[test]
    fn another_mode_is_a_change() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().unwrap();
        let file = [directory.path().join("a.pem")];
        fs::write(&file[0], "1").unwrap();
        let mut files = Files::default();
        assert!(!files.changed(&file));
        fs::set_permissions(&file[0], fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!files.changed(&file));
        assert!(files.changed(&file));
    }

    #[test]
    fn a_file_is_warned_of_when_it_comes_to_the_next_stage() {
        let day = 86_400;
        let expiry = |days_left: i64| {
            let left = Expiry {
                file: "a".into(),
                what: Expiring::Certificate,
                not_after: 0,
            };
            let now = -left.days_left() * day;
            Expiry {
                not_after: now + days_left * day,
                ..left
            }
        };
        let mut warned = Warned::new(&[expiry(60)]);
        for (days, is_due) in [
            (59, false),
            (29, true),
            (28, false),
            (-3, true),
            (90, false),
        ] {
            assert_eq!(!warned.due(vec![expiry(days)]).is_empty(), is_due, "{days}");
        }
    }
}
