//! The newest events of the log, for programs that ask this process for them.
//!
//! Invariants:
//! - No more than [`EVENTS_MAX`] events are kept, each with bounded texts.
//! - The thread that logs waits for no reader: an event without room at a subscriber is left out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// An event of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LogEvent {
    /// Its number, from 1, since the start of the process.
    pub number: u64,
    /// When it was logged.
    pub at: SystemTime,
    /// How severe it is.
    pub level: Level,
    /// The module that logged it.
    pub target: &'static str,
    /// What happened.
    pub message: String,
    /// To which thing, and why: names and values.
    pub fields: Vec<(&'static str, String)>,
}

/// The newest events of this process, the oldest first.
#[derive(Debug)]
pub struct RecentLogs(Mutex<Recent>);

#[derive(Debug)]
struct Recent {
    events: VecDeque<Arc<LogEvent>>,
    logged: u64,
    subscribers: Vec<SyncSender<Arc<LogEvent>>>,
}

/// Those of this process.
pub fn recent_logs() -> &'static RecentLogs {
    &RECENT
}

impl RecentLogs {
    const fn new() -> Self {
        Self(Mutex::new(Recent {
            events: VecDeque::new(),
            logged: 0,
            subscribers: Vec::new(),
        }))
    }

    /// The newest wanted events, the newest first.
    pub fn newest(&self, most: usize, wanted: impl Fn(&LogEvent) -> bool) -> Vec<Arc<LogEvent>> {
        // Copied, so that no thread that logs waits for the filter.
        let all: Vec<_> = self.lock().events.iter().rev().cloned().collect();
        let found = all.into_iter().filter(|event| wanted(event));
        found.take(most).collect()
    }

    /// Events from now on, of which so many may wait; `None`: there are too many subscribers.
    pub fn subscribe(&self, waiting: usize) -> Option<Receiver<Arc<LogEvent>>> {
        let mut recent = self.lock();
        if recent.subscribers.len() >= SUBSCRIBERS_MAX {
            return None;
        }
        let (sender, receiver) = sync_channel(waiting.clamp(1, EVENTS_MAX));
        recent.subscribers.push(sender);
        Some(receiver)
    }

    fn push(&self, mut event: LogEvent) {
        let mut recent = self.lock();
        recent.logged += 1;
        event.number = recent.logged;
        let event = Arc::new(event);
        if recent.events.len() >= EVENTS_MAX {
            recent.events.pop_front();
        }
        recent.events.push_back(Arc::clone(&event));
        let offer = |to: &SyncSender<_>| to.try_send(Arc::clone(&event));
        let is_open = |to: &SyncSender<_>| !matches!(offer(to), Err(TrySendError::Disconnected(_)));
        recent.subscribers.retain(is_open);
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts each event of the log into these.
#[derive(Debug)]
pub(super) struct Remember(pub(super) &'static RecentLogs);

impl<S: Subscriber> Layer<S> for Remember {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut texts = Texts::default();
        event.record(&mut texts);
        self.0.push(LogEvent {
            number: 0,
            at: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target(),
            message: texts.message,
            fields: texts.fields,
        });
    }
}

/// The fields of an event, as text.
#[derive(Default)]
struct Texts {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Texts {
    fn put(&mut self, field: &Field, mut text: String) {
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push('…');
        }
        if field.name() == "message" {
            self.message = text;
        } else if self.fields.len() < FIELDS_MAX {
            self.fields.push((field.name(), text));
        }
    }
}

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

static RECENT: RecentLogs = RecentLogs::new();

/// Events that are kept; about 500 bytes each.
const EVENTS_MAX: usize = 1_000;
/// Bytes of one text of an event.
const TEXT_BYTES_MAX: usize = 1_024;
/// Fields of an event.
const FIELDS_MAX: usize = 32;
/// Who may receive events at once.
const SUBSCRIBERS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_newest_events_are_kept_with_their_fields() {
        static LOGS: RecentLogs = RecentLogs::new();
        let subscriber = tracing_subscriber::registry().with(Remember(&LOGS));
        let received = LOGS.subscribe(2).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            for count in 0..EVENTS_MAX + 5 {
                tracing::info!(target: "recent", client = %"c1", count, "connected");
            }
            tracing::warn!(target: "recent", text = "é".repeat(2_000), "long");
        });
        let newest = LOGS.newest(2, |event| event.target == "recent");
        assert_eq!(
            (newest[0].level, &*newest[0].message),
            (Level::WARN, "long")
        );
        assert!(newest[0].fields[0].1.len() <= TEXT_BYTES_MAX + '…'.len_utf8());
        let fields = [("client", "c1"), ("count", "1004")].map(|(k, v)| (k, v.to_owned()));
        assert_eq!(newest[1].fields, fields);
        assert!(newest[0].number > newest[1].number);
        assert_eq!(LOGS.newest(usize::MAX, |_| true).len(), EVENTS_MAX);
        let received: Vec<_> = received
            .try_iter()
            .map(|it| it.fields[1].1.clone())
            .collect();
        assert_eq!(received, ["0", "1"], "the rest had no room");
    }
}
