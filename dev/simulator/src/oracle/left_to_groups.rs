//! What sessions have left to their groups when they ended, as the disk has it: on the disk it is
//! somebody's at any moment.
//!
//! Known by the records that say what groups have given, when sessions end, and that somebody else
//! has it; not by those that say that it is on its way. Only of runs in which sessions stay until
//! they end, and what they were given is over only if the disk is told or a client has received it.
//!
//! That a limit has let go of something is told to the disk late, and never if its session ends
//! before. Which messages those are is not known here, only how many were named.

use std::collections::{BTreeMap, BTreeSet};

use unbroken_broker_core::{DropReason, Entry, HandOver, Message, Record, RestoredEntry};
use unbroken_mqtt_proto::QoS;
use unbroken_persist::Restored;

use super::disk::number_of;
use crate::message::{MessageId, identify};
use crate::options::Options;

#[derive(Debug, Default)]
pub(super) struct LeftToGroups {
    is_watched: bool,
    /// What groups have given to sessions that are on disk, by client and number of the entry.
    entries: BTreeMap<(usize, u64), Given>,
    /// Those of sessions that have ended.
    left: BTreeSet<Left>,
    /// What has a name on its way, by shard and number.
    named: BTreeMap<(u8, u64), Left>,
    /// So many messages were dropped by name because of a limit, since the broker began.
    let_go: u64,
}

#[derive(Debug)]
struct Given {
    what: Left,
    /// If its session ends, nobody else gets it.
    is_last: bool,
}

/// A message for a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Left {
    group: String,
    message: MessageId,
}

impl Left {
    fn new(group: &str, message: &Message) -> Option<Self> {
        Some(Self {
            group: group.to_owned(),
            message: identify(message.payload())?,
        })
    }
}

impl Given {
    fn new(entry: &Entry) -> Option<Self> {
        Some(Self {
            what: Left::new(entry.group.as_deref()?, &entry.message)?,
            is_last: entry.qos == QoS::ExactlyOnce && entry.packet_id.is_some(),
        })
    }
}

impl LeftToGroups {
    pub(super) fn new(options: &Options) -> Self {
        // A session that is to end with its connection from now on is forgotten before it ends;
        // of one shard all is together on disk.
        let stay = options.staying == 100 && options.shards > 1 && !options.reshards;
        Self {
            is_watched: stay && options.kills > 0 && !options.small_packets,
            ..Self::default()
        }
    }

    pub(super) fn concerns(&self, record: &Record) -> bool {
        self.is_watched
            && matches!(
                record,
                Record::Given { .. }
                    | Record::Received { .. }
                    | Record::Progress { .. }
                    | Record::SessionEnded { .. }
                    | Record::HandedOver { .. }
                    | Record::HandedOn { .. }
            )
    }

    /// So many messages were named as dropped.
    pub(super) fn told_drops(&mut self, reason: DropReason, count: u64) {
        if let DropReason::QueueFull | DropReason::TooOld | DropReason::StoreFull = reason {
            self.let_go += count;
        }
    }

    /// This is on disk.
    pub(super) fn commit(&mut self, record: &Record) {
        match record {
            Record::Given {
                client_id,
                entry,
                waited,
            } => {
                let client = number_of(client_id);
                if let Some(waited) = waited {
                    self.entries.remove(&(client, waited.get()));
                }
                if let Some(given) = Given::new(entry) {
                    self.left.remove(&given.what);
                    self.entries.insert((client, entry.number), given);
                }
            }
            Record::Received {
                client_id,
                received,
            } => {
                self.entries
                    .remove(&(number_of(client_id), received.number));
            }
            Record::Progress {
                client_id,
                progress,
            } => {
                let client = number_of(client_id);
                let given = progress.given.iter();
                let given = given.filter_map(|entry| Some((entry.number, Given::new(entry)?)));
                self.entries
                    .extend(given.map(|(number, given)| ((client, number), given)));
                let done = progress.done.iter().map(|(number, _)| number);
                for number in progress.ended.iter().chain(done) {
                    self.entries.remove(&(client, *number));
                }
            }
            Record::SessionEnded { client_id } => {
                let client = number_of(client_id);
                let ended = self
                    .entries
                    .extract_if((client, 0)..=(client, u64::MAX), |_, _| true);
                let goes_on = ended.filter(|(_, given)| !given.is_last);
                self.left.extend(goes_on.map(|(_, given)| given.what));
            }
            Record::HandedOver {
                hand_over,
                group,
                message,
            } => {
                if let Some(what) = Left::new(group, message) {
                    self.named.insert(name(*hand_over), what);
                }
            }
            Record::HandedOn { hand_over } => {
                if let Some(what) = self.named.remove(&name(*hand_over)) {
                    self.left.remove(&what);
                }
            }
            _ => {}
        }
    }

    /// The power was cut, and a broker goes on with this.
    pub(super) fn goes_on(&mut self, restored: &Restored) {
        if self.is_watched {
            self.find(restored);
            self.left = self.named.values().cloned().collect();
            self.let_go = 0;
        }
    }

    /// The broker was killed, and begins again with this. `may_be_over`: messages that a session
    /// may have done with.
    pub(super) fn restarted(
        &mut self,
        restored: &Restored,
        may_be_over: impl Fn(MessageId) -> bool,
    ) {
        if !self.is_watched {
            return;
        }
        self.find(restored);
        let is_found = |left: &Left| {
            let mut given = self.entries.values();
            self.named.values().any(|named| named == left) || given.any(|given| given.what == *left)
        };
        let is_lost = |left: &&Left| !is_found(left) && !may_be_over(left.message);
        let lost: Vec<_> = self.left.iter().filter(is_lost).collect();
        let let_go = std::mem::take(&mut self.let_go);
        assert!(
            lost.len() as u64 <= let_go,
            "sessions have left {lost:?} to their groups when they ended, and it is lost; \
             {let_go} messages were let go of by name"
        );
        self.left = self.named.values().cloned().collect();
    }

    /// What is on disk.
    fn find(&mut self, restored: &Restored) {
        let named = restored.hand_overs.iter().filter_map(|left| {
            let what = Left::new(&left.group, &left.message)?;
            Some((name(left.hand_over), what))
        });
        self.named = named.collect();
        self.entries = restored
            .sessions
            .iter()
            .flat_map(|session| {
                let client = number_of(&session.client_id);
                let entries = session.entries.iter().filter_map(|entry| match entry {
                    RestoredEntry::Given(entry) => Some((entry.number, Given::new(entry)?)),
                    _ => None,
                });
                entries.map(move |(number, given)| ((client, number), given))
            })
            .collect();
    }
}

fn name(hand_over: HandOver) -> (u8, u64) {
    (hand_over.from.0, hand_over.number)
}
