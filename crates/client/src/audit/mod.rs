//! What proves delivery over any MQTT 5 broker: a publisher that numbers and remembers, a
//! subscriber that judges, and a processor between them. Their clients must speak 5.0.
//!
//! | topic | payload |
//! |---|---|
//! | `<prefix>/checkpoint/<lane>` | a checkpoint, as bytes |
//! | `<prefix>/directory/<producer>` | a directory, as bytes |
//! | `<prefix>/drop/<lane>` | a drop record about messages of that lane |
//! | `<prefix>/repair/<lane>` | a request, with response topic and correlation data |
//! | `<prefix>/answer/<token>` | a message again, or an answer about hashes and missing numbers |
//!
//! Messages carry their property in the user property `audit`; what a processor makes carries those
//! of its inputs in `audit-origin`, oldest first, or `audit-parents`. A message that is sent again
//! on request has its own topic in `audit-topic`; an answer has its lane in `audit-answer`.
//!
//! A client that subscribes only to verify says so in CONNECT, by [`WATCHER`].
//!
//! A processor passes the checkpoints of its inputs on, behind the outputs of what they cover, and
//! says so in `audit-through`, which names its own lane. A receiver goes by those and not by the
//! producer's own, which overtake a processor that is slow: what is still on its way is not lost.
//! A drop record with `audit-receiver` is the broker's, about what that client alone did not get.
//! Where several processors share one lane's messages, the first to pass a checkpoint on is
//! believed, so they should not be further apart than the lateness bound.

mod asking;
mod error;
mod gathered;
mod judged;
mod processor;
mod producer;
mod publisher;
mod spool;
mod subscriber;
mod taken;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::QoS;

use crate::{Client, Filter, Version};

pub use self::{
    error::{AuditError, OpenError, ProcessError, SpoolError},
    judged::{AuditedMessage, NoStamp},
    processor::{Emitted, Input, Processor, Step},
    publisher::{AuditedPublisher, Published, PublisherOptions, Spooled, Stamped, Unspooled},
    spool::spooled_lanes,
    subscriber::{Absence, AuditedSubscriber, Delivery, Saved, Scope, SubscriberOptions},
};

/// The user property with the property of the message itself.
pub(crate) const AUDIT: &str = unbroken_merkle_log::Property::NAME;
/// Those of what it was made of, one for one.
pub(crate) const ORIGIN: &str = "audit-origin";
/// Those of what it was made of, many for one.
pub(crate) const PARENTS: &str = unbroken_merkle_log::Parents::NAME;
/// The topic of a message that is sent again.
pub(crate) const TOPIC: &str = "audit-topic";
/// The lane of the processor that passed a checkpoint on, behind all that it covers.
pub(crate) const THROUGH: &str = "audit-through";
/// The client that a drop record of the broker's is for, which alone missed what it names.
pub(crate) const RECEIVER: &str = "audit-receiver";
/// The user property of CONNECT by which a client announces that it only verifies what it receives:
/// our broker leaves its deliveries out of the sums that it shows.
pub const WATCHER: (&str, &str) = (AUDIT, "watch");
/// The lane that an answer is about.
pub(crate) const ANSWER: &str = "audit-answer";

/// The topics under a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names(Arc<str>);

/// A topic of the audit, by what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Checkpoint,
    Directory,
    Drop,
    Answer(&'a str),
    Other,
}

impl Names {
    pub(crate) const DEFAULT_PREFIX: &str = "audit";

    pub(crate) fn new(prefix: &str) -> Self {
        Self(prefix.into())
    }

    pub(crate) fn checkpoint(&self, lane: LaneId) -> String {
        format!("{}/checkpoint/{lane}", self.0)
    }

    pub(crate) fn directory(&self, producer: u64) -> String {
        format!("{}/directory/{producer:016x}", self.0)
    }

    pub(crate) fn drop(&self, lane: LaneId) -> String {
        format!("{}/drop/{lane}", self.0)
    }

    pub(crate) fn repair(&self, lane: LaneId) -> String {
        format!("{}/repair/{lane}", self.0)
    }

    pub(crate) fn answer(&self, token: &str) -> String {
        format!("{}/answer/{token}", self.0)
    }

    /// What all of a kind are heard by.
    pub(crate) fn filter(&self, kind: &str) -> String {
        format!("{}/{kind}/+", self.0)
    }

    /// `None`: it is not a topic of the audit.
    pub(crate) fn kind<'a>(&self, topic: &'a str) -> Option<Kind<'a>> {
        let rest = topic.strip_prefix(&*self.0)?.strip_prefix('/')?;
        Some(match rest.split_once('/') {
            Some(("checkpoint", _)) => Kind::Checkpoint,
            Some(("directory", _)) => Kind::Directory,
            Some(("drop", _)) => Kind::Drop,
            Some(("answer", token)) => Kind::Answer(token),
            _ => Kind::Other,
        })
    }
}

/// Numbers travel in user properties, which only 5.0 has.
pub(crate) fn check_version(client: &Client) -> Result<(), OpenError> {
    match client.version() {
        Version::V5 => Ok(()),
        older => Err(OpenError::Version(older)),
    }
}

/// What the audit hears its own topics by.
pub(crate) fn heard(text: String) -> Result<Filter, OpenError> {
    match Filter::new(text.as_str()) {
        Ok(filter) => Ok(filter.qos(QoS::AtLeastOnce)),
        Err(source) => Err(OpenError::Topic { text, source }),
    }
}

/// Time since a fixed moment, as lanes and ledgers count it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn instant(&self, at: Duration) -> tokio::time::Instant {
        (self.0 + at).into()
    }

    /// Wall time in µs since 1970.
    pub(crate) fn time_us() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// Wall time in seconds since 1970: what tells one start from those before it.
    pub(crate) fn seconds() -> u32 {
        u32::try_from(Self::time_us() / 1_000_000).unwrap_or(u32::MAX)
    }

    /// The number of a start of this lane's producer: above that of the start before it, as far as
    /// this process or its spool remembers one, and else the time in seconds.
    pub(crate) fn start_number(lane: LaneId, before: u32) -> u32 {
        static STARTS: Mutex<BTreeMap<LaneId, u32>> = Mutex::new(BTreeMap::new());
        let now = Self::seconds();
        let mut starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is above the others by now.
        starts.retain(|_, start| *start >= now);
        let here = starts.get(&lane).copied().unwrap_or(0);
        let start = now.max(before.max(here).saturating_add(1));
        starts.insert(lane, start);
        start
    }

    /// An epoch that no earlier start is likely to have had, whatever its clock said: random. The
    /// order of epochs says nothing to receivers.
    pub(crate) fn fresh_epoch() -> Epoch {
        getrandom::u32().map_or_else(|_| Epoch(Self::seconds()), Epoch)
    }
}
