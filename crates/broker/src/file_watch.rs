//! Watches the files of listeners with TLS: reloads when one has changed, and warns of those that
//! expire.
//!
//! A thread looks at them every few seconds. Certificate and key are two files, so a change is
//! acted on only when a later look finds all files as the look before it did.
//!
//! Deliberately absent: notifications of the kernel, which do not see changes by other machines of
//! a shared directory, and the reading of files ([`crate::tls`]).

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::SystemTime;

use crate::bounds::FILES_LOOK_EVERY;
use crate::config::{Config, Tls};
use crate::handle::BrokerHandle;
use crate::server::Notice;
use crate::tls::{Expiry, Stage};

/// Ends the watch when it is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    _ends: Sender<Infallible>,
}

/// Begins to watch the files of a broker; sends [`Notice::FilesChanged`] when they are to be read
/// again.
pub(crate) fn watch(broker: BrokerHandle, notify: Sender<Notice>) -> io::Result<Watched> {
    let (ends, ended) = channel();
    let look = move || {
        let mut files = Files::default();
        let mut warned = Warned::new(&broker.expiries());
        files.changed(&files_of(&broker.config()));
        while ended.recv_timeout(FILES_LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let has_changed = files.changed(&files_of(&broker.config()));
            if has_changed && notify.send(Notice::FilesChanged).is_err() {
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
    Ok(Watched { _ends: ends })
}

/// The files of listeners with TLS.
fn files_of(config: &Config) -> Vec<PathBuf> {
    let listeners = config.listeners.iter();
    let with_tls = listeners.filter(|listener| listener.protocol.has_tls());
    let files = |tls: &Tls| {
        let certificates = tls.certificate_files.iter().chain(&tls.key_files);
        let trust = tls.client_ca_file.iter().chain(&tls.crl_file);
        certificates.chain(trust).cloned().collect::<Vec<_>>()
    };
    with_tls.flat_map(|listener| files(&listener.tls)).collect()
}

/// What tells one content of a file from another without reading it; `None`: there is no file.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Files, as the last look found them.
#[derive(Debug, Default)]
struct Files {
    seen: BTreeMap<PathBuf, Stamp>,
    /// One of them changed, and this was not reported.
    is_changed: bool,
}

impl Files {
    /// Looks at these files. Answers whether any has changed, once it changes no more.
    fn changed(&mut self, files: &[PathBuf]) -> bool {
        let now: BTreeMap<_, _> = files.iter().map(|it| (it.clone(), stamp(it))).collect();
        // One that was not looked at before was read when it was configured.
        let is_other = |(path, stamp): (&PathBuf, &Stamp)| {
            self.seen.get(path).is_some_and(|before| before != stamp)
        };
        let is_moving = now.iter().any(is_other);
        self.seen = now;
        self.is_changed |= is_moving;
        !is_moving && std::mem::take(&mut self.is_changed)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let inode = 0;
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some((modified, metadata.len(), inode))
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
