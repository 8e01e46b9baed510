//! When the disk learns how far sessions are: soon after something has changed, and together.
//!
//! It is asked late, because a restart without it only repeats what the other side recognizes; what
//! it must not repeat has records of its own ([`crate::durability`]).

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::session::Entry as InFlight;
use unbroken_mqtt_proto::{PacketId, QoS};

use crate::clients::Clients;
use crate::durability::{Presence, Progress, ReceivedEntry, Record};
use crate::ids::{SessionId, StoreId};
use crate::mail::Letter;
use crate::output::Output;
use crate::position::Frontier;
use crate::session::{Delivery, Kept, Session, Untold};
use crate::shard::Shard;
use crate::timers::Timer;

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
        let entry = delivery.to_entry(number, Some(packet_id), qos);
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
        let entry = delivery.to_entry(delivery.entry, None, qos);
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
        let mut through = session.through(&self.gate.tails);
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
        let through = session.through(&self.gate.tails);
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
                given.push(message.to_entry(number, Some(id), qos));
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

impl Shard {
    /// Sees to it that what has changed is told to the disk: soon, and at once if much has been
    /// appended since.
    pub(crate) fn schedule_progress(&mut self, now: Instant) {
        if self.clients.gate.appended_bytes > self.options.settings.hasten_bytes {
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
        self.clients.gate.appended_bytes = 0;
        for id in std::mem::take(&mut self.clients.touched) {
            self.clients.tell_progress(id);
        }
        self.say_needed();
    }

    /// Tells the disk as much as lets it trim the log, unless too little has been appended for so
    /// many sessions.
    #[cold]
    fn hasten_progress(&mut self) {
        let gate = &mut self.clients.gate;
        let more = self.clients.touched.len() as u64 / HASTENED;
        let much = self.options.settings.hasten_bytes.saturating_mul(1 + more);
        if gate.appended_bytes <= much {
            return;
        }
        gate.appended_bytes = 0;
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
        if self.knows_what_is_needed() && self.clients.gate.failed.is_none() {
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
        let gate = &self.clients.gate;
        let news = (gate.tail(), gate.tail_on_disk()) != self.tail_told;
        if news && !self.telling_tail && self.options.shards > 1 {
            self.telling_tail = true;
            self.timers.set(now + TELL_TAIL_EVERY, Timer::Tail);
        }
    }

    pub(crate) fn tell_tail(&mut self) {
        let gate = &self.clients.gate;
        let (tail, on_disk) = (gate.tail(), gate.tail_on_disk());
        (self.telling_tail, self.tail_told) = (false, (tail, on_disk));
        for shard in self.others() {
            self.mail(shard, Letter::Tail { tail, on_disk });
        }
    }

    /// Up to where this shard needs no log, for a session or for what one has left to a group: what
    /// is within may be trimmed. Costs a look at all sessions.
    pub fn needed(&self) -> Frontier {
        let tails = &self.clients.gate.tails;
        let mut needed = tails.clone();
        for (_, session) in &self.clients.sessions {
            session.lower_to_needs(&mut needed, tails);
        }
        let sent = self.clients.gate.unsettled_positions();
        for position in self.groups.positions().chain(sent) {
            needed.lower(position);
        }
        needed
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
