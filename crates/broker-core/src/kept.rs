//! What is kept on disk of a session that stays, as its shard knows it.
//!
//! ```text
//! of each log:  ... given a packet id | waits in memory | waits on disk only ...
//!                                     ^ through
//! entries:      messages that have a packet id, or were given to this session by a group
//! ```
//!
//! What the session is owed is what its subscriptions match above *through*, and its entries:
//! nothing else. Both are told to the disk together, in a [`Record::Progress`], so that a message
//! is never in both or in neither. It is told late, because a restart without it only repeats what
//! the other side recognizes; what it must not repeat has records of its own ([`crate::record`]).
//!
//! Invariants:
//! - An entry's number is given once. A packet id may be another message's before the end of the
//!   first is on disk; an entry is not.
//! - Numbers of entries with a packet id are in the order of the packet ids: what a group gave, and
//!   waited as an entry, gets another number with its id.

mod holdings;
mod list;

use std::collections::{BTreeMap, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::Entry as InFlight;
use unbroken_mqtt_proto::{PacketId, QoS};

pub use self::holdings::Holding;
use self::list::Holdings;
use crate::backlog::Backlog;
use crate::clients::Clients;
use crate::ids::{LogId, SessionId, StoreId};
use crate::mail::Letter;
use crate::message::Message;
use crate::option_box::OptionBox;
use crate::output::Output;
use crate::position::{Frontier, Position};
use crate::record::Record;
use crate::sent_before::{MaybeSent, SentBefore};
use crate::session::{Delivery, Identifiers, Session};
use crate::shard::Shard;
use crate::timers::Timer;

/// A session's part of the disk.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// What waits on disk and not here; the session is *behind*.
    pub(crate) backlog: Option<Box<Backlog>>,
    /// Subscriptions, past ones while they may be needed.
    pub(crate) holdings: Holdings,
    /// Messages of QoS 2 that have their packet ids before the window has places for them, in
    /// order, each with the request that stores it.
    pub(crate) ahead: OptionBox<VecDeque<(PacketId, StoreId)>>,
    /// What is under way, if anything is: a session that sleeps has nothing, and sleepers are many.
    under_way: Option<Box<UnderWay>>,
    /// Entries of an earlier run of the broker, if there are any.
    earlier: Option<Box<Earlier>>,
    /// Entries ever, and those up to which the disk was told [progress](Progress) of all.
    entries: u64,
    told_entries: u64,
    /// What the client may have been sent before the broker was started.
    pub(crate) sent_before: SentBefore,
    /// The disk is to be told of progress.
    touched: bool,
    /// Whether it is connected is to be told.
    presence: bool,
    /// As the disk knows it.
    pub(crate) through: Frontier,
}

/// Entries between their packet id and the moment when the disk knows their end.
#[derive(Debug, Default)]
struct UnderWay {
    /// Entries on disk, by the packet id that they have.
    recorded: BTreeMap<PacketId, u64>,
    /// Entries that the disk is to be told of, by their packet id.
    untold: BTreeMap<PacketId, Untold>,
    /// Among those are some that waited as entries.
    sent_what_waited: bool,
    /// Entries on disk that have come to their end.
    landed: Vec<u64>,
    /// Subscriptions for which all that is retained was sent, and the disk does not know.
    scanned: Vec<Box<str>>,
}

/// An entry that got its packet id.
#[derive(Clone, Copy, Debug)]
struct Untold {
    number: u64,
    /// The entry as which it waited: on disk, and over with this one.
    waited: Option<NonZeroU64>,
}

/// Entries of an earlier run of the broker: they may lie above *through*, where the log is still to
/// be read.
#[derive(Debug, Default)]
struct Earlier {
    /// Of which message each is.
    entries: BTreeMap<u64, Position>,
    /// Those that are over, and are to be known on disk until the log is read.
    done: Vec<(u64, Position)>,
}

/// A message that a session was given and has not done with.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Among all that the session was given, ever: from 1; those with a packet id in the order in
    /// which they got it.
    pub number: u64,
    /// Under this id. Without one it waits, and a group has chosen this session for it.
    pub packet_id: Option<PacketId>,
    /// As it is sent: 1 or 2.
    pub qos: QoS,
    /// The message; one without a [position](Message::position) is in no log.
    pub message: Arc<Message>,
    /// The flag to send.
    pub retain: bool,
    /// The subscription identifiers to send.
    pub identifiers: Vec<NonZeroU32>,
    /// No subscription of the session finds it in the log, as when a group has chosen the session
    /// for it.
    pub by_group: bool,
    /// That group, as its filter is written: another member gets the message if the session ends
    /// first.
    pub group: Option<Arc<str>>,
}

/// A message of QoS 2 that the receiver has: only PUBREL is to be sent for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedEntry {
    /// The number of its entry.
    pub number: u64,
    /// Its id.
    pub packet_id: PacketId,
    /// Where it is stored, if it is in a log.
    pub position: Option<Position>,
    /// As in [`Entry::by_group`].
    pub by_group: bool,
}

impl Entry {
    fn new(number: u64, packet_id: Option<PacketId>, qos: QoS, delivery: &Delivery) -> Self {
        Self {
            number,
            packet_id,
            qos,
            message: Arc::clone(&delivery.message),
            retain: delivery.retain,
            identifiers: delivery.identifiers.to_vec(),
            by_group: delivery.group.is_some() || delivery.entry > 0,
            group: delivery.group.clone(),
        }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        Delivery {
            message: Arc::clone(&self.message),
            retain: self.retain,
            identifiers: Identifiers::from_slice(&self.identifiers),
            group: self.group.clone(),
            number: 0,
            tracked: false,
            again: false,
            entry: if self.by_group { self.number } else { 0 },
        }
    }
}

impl Kept {
    /// Of a session that begins, or of one as the disk had it.
    pub(crate) fn new(through: Frontier) -> Self {
        Self {
            through,
            ..Self::default()
        }
    }

    /// The disk has an entry with this number.
    pub(crate) fn restore_entry(
        &mut self,
        number: u64,
        packet_id: Option<PacketId>,
        position: Option<Position>,
    ) {
        self.entries = self.entries.max(number);
        if let Some(position) = position {
            let earlier = self.earlier.get_or_insert_default();
            earlier.entries.insert(number, position);
        }
        if let Some(id) = packet_id {
            self.under_way().recorded.insert(id, number);
        }
    }

    /// The disk has an entry that is over.
    pub(crate) fn restore_done(&mut self, number: u64, position: Position) {
        self.entries = self.entries.max(number);
        let earlier = self.earlier.get_or_insert_default();
        earlier.done.push((number, position));
    }

    /// The disk has an entry whose end was on its way there.
    pub(crate) fn restore_over(&mut self, number: u64, position: Option<Position>) {
        self.restore_entry(number, None, position);
        self.under_way().landed.push(number);
    }

    /// The client may have been sent all that there is, up to here in the logs.
    pub(crate) fn restore_sent_all(&mut self, through: Frontier) {
        let entries = self.entries;
        self.sent_before = SentBefore::untold(MaybeSent { through, entries });
    }

    /// Takes out the entries that have come to their end: what can be forgotten, and what must be
    /// known until the log is read up to `through` and beyond it.
    fn take_landed(&mut self, through: &Frontier) -> (Vec<u64>, Vec<(u64, Position)>) {
        let mut over = self.take_over();
        let mut done = Vec::new();
        let Some(earlier) = &mut self.earlier else {
            return (over, done);
        };
        let read = |(_, position): &mut (u64, Position)| through.covers(*position);
        let read = earlier.done.extract_if(.., read);
        over.extend(read.map(|(number, _)| number));
        over.retain(|number| match earlier.entries.remove(number) {
            Some(position) if !through.covers(position) => {
                done.push((*number, position));
                false
            }
            _ => true,
        });
        earlier.done.extend(&done);
        if earlier.entries.is_empty() && earlier.done.is_empty() {
            self.earlier = None;
        }
        (over, done)
    }

    fn under_way(&mut self) -> &mut UnderWay {
        self.under_way.get_or_insert_default()
    }

    /// The entries that have come to their end since it was last asked.
    fn take_over(&mut self) -> Vec<u64> {
        let Some(under_way) = &mut self.under_way else {
            return Vec::new();
        };
        let over = std::mem::take(&mut under_way.landed);
        if under_way.recorded.is_empty() && under_way.untold.is_empty() {
            self.under_way = None;
        }
        over
    }

    /// No entry of an earlier run is left, and all that have come to their end since the disk was
    /// told of all were told then: what they were lies below what it was told.
    fn is_plain(&self) -> bool {
        let is_told = |number: &u64| *number <= self.told_entries;
        let under_way = self.under_way.as_ref();
        self.earlier.is_none()
            && under_way.is_none_or(|it| !it.sent_what_waited && it.landed.iter().all(is_told))
    }

    /// An entry that waited has a packet id, and the disk does not know.
    fn sent_what_waited(&self) -> bool {
        let under_way = self.under_way.as_ref();
        under_way.is_some_and(|under_way| under_way.sent_what_waited)
    }

    /// A number for another entry.
    fn entry(&mut self) -> u64 {
        self.entries += 1;
        self.entries
    }

    /// The entry on disk of a message under this id.
    pub(crate) fn entry_of(&self, id: PacketId) -> Option<u64> {
        self.under_way.as_ref()?.recorded.get(&id).copied()
    }

    /// What was sent under this id has come to its end.
    pub(crate) fn land(&mut self, id: PacketId) {
        let Some(under_way) = self.under_way.as_deref_mut() else {
            return;
        };
        let ended = under_way.recorded.remove(&id);
        let untold = under_way.untold.remove(&id);
        let waited = untold.and_then(|untold| untold.waited);
        under_way.landed.extend(ended);
        under_way.landed.extend(waited.map(NonZeroU64::get));
    }
}

impl Session {
    /// It outlives its connection, and is on disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.kept.is_some()
    }

    /// What it is owed is in part on disk only.
    pub(crate) fn is_behind(&self) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.backlog.is_some())
    }

    /// All up to here was given a packet id, is among the entries, or is not for this session.
    fn through(&self, tails: &Frontier) -> Frontier {
        let behind = self.kept.as_ref().and_then(|kept| kept.backlog.as_ref());
        let mut through = behind.map_or_else(|| tails.clone(), |backlog| backlog.read.clone());
        // In the order of each log: the first of each is the lowest, and few logs are many.
        let mut logs: Vec<LogId> = Vec::new();
        for (_, delivery) in &self.queue {
            if let Some(position) = delivery.message.position()
                && delivery.entry == 0
                && !logs.contains(&position.log)
            {
                logs.push(position.log);
                through.lower(position);
            }
        }
        through
    }
}

impl Clients {
    /// What the disk knows of this session is not all any more; it is told soon.
    pub(crate) fn touch(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && !std::mem::replace(&mut kept.touched, true)
        {
            self.touched.push(id);
        }
    }

    /// A connection of this session has begun or ended.
    pub(crate) fn touch_presence(&mut self, id: SessionId) {
        self.touch(id);
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            kept.presence = true;
        }
    }

    /// All that is retained for this subscription was sent.
    pub(crate) fn end_scan(&mut self, id: SessionId, filter: &str) {
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && kept.end_scan(filter)
        {
            self.touch(id);
        }
    }

    /// What was sent under this id has come to its end.
    pub(crate) fn land(&mut self, id: SessionId, packet_id: PacketId) {
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            kept.land(packet_id);
            self.touch(id);
        }
    }

    /// A message of QoS 1 has got this id: the disk is told of it soon.
    pub(crate) fn touch_sent(&mut self, id: SessionId, packet_id: PacketId) {
        if let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
            && let Some(delivery) = session.outbound.message(packet_id)
        {
            let waited = NonZeroU64::new(delivery.entry);
            let number = kept.entry();
            let untold = Untold { number, waited };
            let under_way = kept.under_way();
            under_way.untold.insert(packet_id, untold);
            under_way.sent_what_waited |= waited.is_some();
            self.touch(id);
        }
    }

    /// A message is about to be sent for the first time under this id: asks for it to be on disk.
    /// At QoS 1 so is what waited as an entry and was sent before: a restart sends what has an id
    /// first, and messages of one QoS are to come in their order.
    pub(crate) fn ask_to_send(&mut self, id: SessionId, packet_id: PacketId, qos: QoS) -> StoreId {
        let session = self.sessions.get(id.index());
        let kept = session.and_then(|session| session.kept.as_deref());
        if qos == QoS::AtLeastOnce && kept.is_some_and(Kept::sent_what_waited) {
            self.tell_progress(id);
        }
        let Some(session) = self.sessions.get_mut(id.index()) else {
            return StoreId::NOTHING;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return StoreId::NOTHING;
        };
        let Some(delivery) = session.outbound.message(packet_id) else {
            return StoreId::NOTHING;
        };
        let waited = NonZeroU64::new(delivery.entry);
        let number = kept.entry();
        kept.under_way().recorded.insert(packet_id, number);
        let entry = Entry::new(number, Some(packet_id), qos, delivery);
        self.ask_of(id, |client_id| Record::Given {
            client_id,
            entry,
            waited,
        })
    }

    /// PUBREC came: asks for that to be on disk.
    pub(crate) fn ask_received(
        &mut self,
        id: SessionId,
        packet_id: PacketId,
        delivery: &Delivery,
    ) -> StoreId {
        let session = self.sessions.get(id.index());
        let kept = session.and_then(|session| session.kept.as_deref());
        let Some(number) = kept.and_then(|kept| kept.entry_of(packet_id)) else {
            return StoreId::NOTHING;
        };
        let received = ReceivedEntry {
            number,
            packet_id,
            position: delivery.message.position(),
            by_group: delivery.group.is_some() || delivery.entry > 0,
        };
        self.ask_of(id, |client_id| Record::Received {
            client_id,
            received,
        })
    }

    /// A group has given a message to this session, which waits in it: asks for it to be on disk.
    pub(crate) fn ask_to_keep(
        &mut self,
        id: SessionId,
        qos: QoS,
        delivery: &mut Delivery,
    ) -> StoreId {
        let Some(session) = self.sessions.get_mut(id.index()) else {
            return StoreId::NOTHING;
        };
        let Some(kept) = session.kept.as_deref_mut() else {
            return StoreId::NOTHING;
        };
        delivery.entry = kept.entry();
        let entry = Entry::new(delivery.entry, None, qos, delivery);
        self.ask_of(id, |client_id| Record::Given {
            client_id,
            entry,
            waited: None,
        })
    }

    /// A delivery that never was sent is over: it was dropped, or is another's.
    pub(crate) fn land_waiting(&mut self, id: SessionId, delivery: &Delivery) {
        if delivery.entry > 0
            && let Some(session) = self.sessions.get_mut(id.index())
            && let Some(kept) = session.kept.as_deref_mut()
        {
            kept.under_way().landed.push(delivery.entry);
            self.touch(id);
        }
    }

    /// Whether this is so of what is kept of a session.
    pub(crate) fn keeps(&self, id: SessionId, what: impl Fn(&Kept) -> bool) -> bool {
        let session = self.sessions.get(id.index());
        let kept = session.and_then(|session| session.kept.as_deref());
        kept.is_some_and(what)
    }

    /// Tells the disk that a session needs of the logs only what is under way and what comes behind
    /// it, and no entries. That is little to write, and all that is to be known to trim a log where
    /// a session gets messages of QoS 1 and acknowledges them. Of all others as much is told as
    /// [`tell_progress`](Self::tell_progress) does.
    fn tell_cursor(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id.index()) else {
            return;
        };
        let mut through = session.through(&self.promises.tails);
        let Some(kept) = session.kept.as_deref_mut().filter(|kept| kept.touched) else {
            return;
        };
        for in_flight in session.outbound.iter() {
            if let InFlight::Publish { id, message, .. } = in_flight
                && kept.entry_of(id).is_none()
                && let Some(position) = message.message.position()
            {
                through.lower(position);
            }
        }
        if !kept.is_plain() || !through.reaches(&kept.through) {
            self.tell_progress(id);
            return;
        }
        let (landed, done) = kept.take_landed(&through);
        if landed.is_empty() && through == kept.through {
            return;
        }
        kept.through = through.clone();
        self.ask_of(id, |client_id| Record::Progress {
            client_id,
            progress: Box::new(Progress {
                landed,
                done,
                ..Progress::of(through)
            }),
        });
    }

    /// Tells the disk how far a session is.
    pub(crate) fn tell_progress(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id.index()) else {
            return;
        };
        let through = session.through(&self.promises.tails);
        let is_here = session.connection.is_some();
        let expiry_s = session.expiry_s;
        let Session {
            kept,
            queue,
            outbound,
            ..
        } = session;
        let Some(kept) = kept.as_deref_mut() else {
            return;
        };
        if !std::mem::take(&mut kept.touched) {
            return;
        }
        let mut given = Vec::new();
        for in_flight in outbound.iter() {
            if let InFlight::Publish { id, qos, message } = in_flight
                && kept.entry_of(id).is_none()
            {
                // All that were begun have one.
                let under_way = kept.under_way();
                let Some(Untold { number, waited }) = under_way.untold.remove(&id) else {
                    continue;
                };
                under_way.landed.extend(waited.map(NonZeroU64::get));
                under_way.recorded.insert(id, number);
                given.push(Entry::new(number, Some(id), qos, message));
            }
        }
        if let Some(under_way) = &mut kept.under_way {
            under_way.sent_what_waited = false;
        }
        let presence = std::mem::take(&mut kept.presence).then_some(Presence { is_here, expiry_s });
        let scanned = kept.take_scanned();
        let (landed, done) = kept.take_landed(&through);
        let past = kept.take_past(&through);
        let waiting = queue.iter().map(|(_, delivery)| delivery.entry);
        let maybe_sent = kept.sent_before.take_news(&through, waiting);
        kept.through = through.clone();
        kept.told_entries = kept.entries;
        self.ask_of(id, |client_id| Record::Progress {
            client_id,
            progress: Box::new(Progress {
                through,
                given,
                landed,
                done,
                scanned,
                past,
                presence,
                maybe_sent,
            }),
        });
    }
}

/// How far a session is, and what has changed since it was last told.
#[derive(Clone, Debug)]
pub struct Progress {
    /// All up to here was given a packet id, is among the entries, or is not for this session.
    pub through: Frontier,
    /// New entries.
    pub given: Vec<Entry>,
    /// The numbers of entries that have come to their end.
    pub landed: Vec<u64>,
    /// Entries that have, and where their messages are: above *through*, so that a restart would
    /// find them in the log again.
    pub done: Vec<(u64, Position)>,
    /// Subscriptions for which all that is retained was sent: it is among what was given.
    pub scanned: Vec<Holding>,
    /// Filter and era of subscriptions that are not needed any more.
    pub past: Vec<(Box<str>, u32)>,
    /// If that has changed: whether it is connected.
    pub presence: Option<Presence>,
    /// If that has changed: what may have been sent before the broker was started; nothing, if it
    /// is empty.
    pub maybe_sent: Option<MaybeSent>,
}

impl Progress {
    /// Nothing else has changed.
    fn of(through: Frontier) -> Self {
        Self {
            through,
            given: Vec::new(),
            landed: Vec::new(),
            done: Vec::new(),
            scanned: Vec::new(),
            past: Vec::new(),
            presence: None,
            maybe_sent: None,
        }
    }
}

/// Whether a session has a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presence {
    /// It has.
    pub is_here: bool,
    /// Seconds it outlives it; `u32::MAX` is without end.
    pub expiry_s: u32,
}

impl Shard {
    /// Sees to it that what has changed is told to the disk: soon, and at once if much has been
    /// appended since.
    pub(crate) fn schedule_progress(&mut self, now: Instant) {
        if self.clients.promises.appended_bytes > self.options.settings.hasten_bytes {
            self.hasten_progress();
        }
        if !self.clients.touched.is_empty() && !self.telling_progress {
            self.telling_progress = true;
            self.timers.set(now + TELL_PROGRESS_EVERY, Timer::Progress);
        }
    }

    /// Tells the disk how far the sessions are that have changed.
    pub(crate) fn tell_progress(&mut self) {
        self.telling_progress = false;
        self.clients.promises.appended_bytes = 0;
        for id in std::mem::take(&mut self.clients.touched) {
            self.clients.tell_progress(id);
        }
        self.say_needed();
    }

    /// Tells the disk as much as lets it trim the log, unless too little has been appended for so
    /// many sessions.
    #[cold]
    fn hasten_progress(&mut self) {
        let promises = &mut self.clients.promises;
        let more = self.clients.touched.len() as u64 / HASTENED;
        let much = self.options.settings.hasten_bytes.saturating_mul(1 + more);
        if promises.appended_bytes <= much {
            return;
        }
        promises.appended_bytes = 0;
        if !self.knows_what_is_needed() {
            return;
        }
        let touched = std::mem::take(&mut self.clients.touched);
        for id in &touched {
            self.clients.tell_cursor(*id);
        }
        // There is more to tell of most.
        self.clients.touched = touched;
        self.say_needed();
    }

    /// Says what may be trimmed as soon as all that was told is on disk.
    fn say_needed(&mut self) {
        if self.knows_what_is_needed() && self.clients.promises.failed.is_none() {
            let needed = self.needed();
            if needed != self.said_needed {
                self.said_needed = needed.clone();
                self.clients.outputs.push_back(Output::Needed(needed));
            }
        }
    }

    /// With other shards it takes more than one of them to know, and with many sessions it takes
    /// long to find out: then it is only known when the shard is [asked](Self::needed).
    fn knows_what_is_needed(&self) -> bool {
        self.options.shards == 1 && self.clients.sessions.len() <= SESSIONS_LOOKED_AT
    }

    /// Sees to it that the other shards hear how long the log of this one is: who wants nothing of
    /// it hears of no message, and would hold on to all.
    pub(crate) fn schedule_tail(&mut self, now: Instant) {
        let promises = &self.clients.promises;
        let news = (promises.tail(), promises.tail_on_disk()) != self.tail_told;
        if news && !self.telling_tail && self.options.shards > 1 {
            self.telling_tail = true;
            self.timers.set(now + TELL_TAIL_EVERY, Timer::Tail);
        }
    }

    pub(crate) fn tell_tail(&mut self) {
        let promises = &self.clients.promises;
        let (tail, on_disk) = (promises.tail(), promises.tail_on_disk());
        (self.telling_tail, self.tail_told) = (false, (tail, on_disk));
        for shard in self.others() {
            self.mail(shard, Letter::Tail { tail, on_disk });
        }
    }

    /// Up to where this shard needs no log, for a session or for what one has left to a group: what
    /// is within may be trimmed. Costs a look at all sessions.
    pub fn needed(&self) -> Frontier {
        let tails = &self.clients.promises.tails;
        let mut needed = tails.clone();
        for (_, session) in &self.clients.sessions {
            session.lower_to_needs(&mut needed, tails);
        }
        for position in self.hand_overs.positions() {
            needed.lower(position);
        }
        needed
    }
}

impl Session {
    /// It holds on to all of the logs that is not within.
    pub(crate) fn holds_from(&self, tails: &Frontier) -> Frontier {
        let mut needed = tails.clone();
        self.lower_to_needs(&mut needed, tails);
        needed
    }

    fn lower_to_needs(&self, needed: &mut Frontier, tails: &Frontier) {
        let Some(kept) = self.kept.as_deref() else {
            return;
        };
        let own = match &kept.backlog {
            Some(backlog) => backlog.needs(tails),
            None => tails,
        };
        for (log, number) in tails.iter() {
            if own.of(log) < number {
                needed.lower(Position {
                    log,
                    number: own.of(log) + 1,
                });
            }
        }
        for position in self.positions_here() {
            needed.lower(position);
        }
    }

    /// Of what waits in memory or is under way.
    fn positions_here(&self) -> impl Iterator<Item = Position> + '_ {
        let under_way = self.outbound.iter().filter_map(|entry| match entry {
            InFlight::Publish { message, .. } => message.message.position(),
            InFlight::PubRel { .. } => None,
        });
        let waiting = self.queue.iter();
        under_way.chain(waiting.filter_map(|(_, delivery)| delivery.message.position()))
    }
}

/// What a restart repeats at most, with DUP, of messages of QoS 1 that were acknowledged.
const TELL_PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Of so many sessions the disk is told while as much is appended as for the first.
const HASTENED: u64 = 128;
/// With more of them a shard does not look at all so often.
const SESSIONS_LOOKED_AT: usize = 1_024;
/// How long another shard holds on to the log of this one at most, without wanting any of it.
const TELL_TAIL_EVERY: Duration = Duration::from_secs(5);
