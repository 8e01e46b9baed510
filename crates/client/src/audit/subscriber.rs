//! The receiver's end: judges each message, asks for what is missing, and proves that nothing is.
//!
//! There is no task: everything happens in [`AuditedSubscriber::next`], so what was delivered and
//! what the ledger knows are always the same, and can be saved together.
//!
//! Invariants: where the owner saves, nothing that changed the ledger is acknowledged before it is
//! saved, whether it was a message or word of the audit's own; the lateness clock runs only while
//! the client is connected and nothing waits; a retained copy is not judged; a copy that the
//! broker repeats is replayed, not a duplicate; nothing is asked for before it is lost; a lane of
//! which only checkpoints are heard is not audited, since this subscriber may not subscribe to its
//! topics.

mod answers;
mod away;
mod delivery;
mod directories;
mod dropped;
mod mounts;
mod options;
mod origins;
mod saved;
mod strangers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::sleep_until;
use unbroken_merkle_log::ledger::{Event, Join, Ledger, LedgerLimits, Request, Verdict};
use unbroken_merkle_log::{
    Checkpoint, DropRecord, Epoch, Hasher, LaneId, Property, SealedCheckpoint,
};
use unbroken_mqtt_proto::QoS;

pub use self::away::Absence;
use self::away::Away;
pub use self::delivery::Delivery;
use self::options::Expected;
pub use self::options::{Scope, SubscriberOptions};
pub use self::saved::Saved;
use super::asking::Asking;
use super::judged::{AuditedMessage, NoStamp};
use super::taken::{Heard, SharedTaken, write_position};
use super::{AUDIT, Clock, Kind, Names, THROUGH, TOPIC};
use crate::inbox::Acknowledgement;
use crate::options::random;
use crate::{Acknowledging, Client, Filter, Message, Received, SubscribeError, Subscription};

/// A subscription whose messages come with verdicts.
pub struct AuditedSubscriber {
    client: Client,
    names: Names,
    /// What messages are heard by.
    filters: Vec<Filter>,
    hasher: Hasher,
    ledger: Ledger<Hasher>,
    join: Join,
    limits: LedgerLimits,
    clock: Clock,
    messages: Subscription,
    acknowledging: Acknowledging,
    token: String,
    /// Lanes whose messages come here themselves.
    direct: BTreeSet<LaneId>,
    /// Expected lanes of which something has fitted.
    come: BTreeSet<LaneId>,
    /// Lanes whose messages came here as what others were made of.
    origins: BTreeSet<LaneId>,
    ready: VecDeque<Delivery>,
    running: Running,
    away: Away,
    /// Lanes of which nothing has fitted yet, and whether that was said.
    strangers: BTreeMap<LaneId, bool>,
    /// Epochs of lanes for which there is no room, as far as it was said.
    no_room: BTreeSet<(LaneId, Epoch)>,
    /// It was said that there is no room for one more producer.
    is_full_of_producers: bool,
    /// Lanes that come at QoS 0.
    at_most_once: BTreeSet<LaneId>,
    asking: Option<Asking>,
    judges_origins: bool,
    crosses_mounts: bool,
    expected: Expected,
    /// What the broker kept from this client of lanes of which nothing has come yet.
    early: Vec<DropRecord>,
    /// When to look for what is worth asking for, though no event has told of it.
    next_look: Duration,
    next_poll: Duration,
    position: Vec<u8>,
    /// A processor acknowledges checkpoints and drop records itself: these, in the order of their
    /// deliveries.
    releases: Option<VecDeque<Option<Acknowledgement>>>,
    /// The owner saves, and has not yet saved what these led to.
    unsaved: Option<Vec<Acknowledgement>>,
}

/// Whether the lateness clock runs.
enum Running {
    /// Not connected, or messages wait.
    Stands,
    /// Nothing waits here; the broker is asked whether it has something.
    Probing(u64, Pin<Box<dyn Future<Output = bool> + Send + Sync>>),
    /// On this connection, of which everything was read.
    Runs(u64),
}

impl AuditedSubscriber {
    /// The next message or event. An error says why there will be none. Cancelling loses nothing.
    pub async fn next(&mut self) -> Result<Delivery, SubscribeError> {
        loop {
            if let Some(delivery) = self.ready() {
                return Ok(delivery);
            }
            self.watch_absence();
            self.watch_connection();
            if let Some(received) = self.messages.try_recv() {
                self.handle(received?);
                self.let_time_pass();
                continue;
            }
            self.begin_probe();
            let wake = self.clock.instant(self.next_poll);
            tokio::select! {
                received = self.messages.recv() => self.handle(received?),
                is_drained = probed(&mut self.running) => self.handle_probed(is_drained),
                () = sleep_until(wake) => {}
            }
            self.let_time_pass();
        }
    }

    /// What is known already, without reading more.
    pub fn ready(&mut self) -> Option<Delivery> {
        self.ready.pop_front()
    }

    /// Whether a lane's own messages come here, and not only what others were made of.
    pub fn hears(&self, lane: LaneId) -> bool {
        self.direct.contains(&lane)
    }

    /// Whether messages of a lane come at QoS 0. Then their delivery was not promised: one that is
    /// lost is named like any other and asked for, and the producer sends it again at QoS 0 while
    /// it still has it, but its loss is no broken promise of the broker's.
    pub fn is_at_most_once(&self, lane: LaneId) -> bool {
        self.at_most_once.contains(&lane)
    }

    /// What is known of the lanes. Its clock is this subscriber's.
    pub fn ledger(&self) -> &Ledger<Hasher> {
        &self.ledger
    }

    /// Everything that is known, with `position`, the owner's own note of how far it has come; to
    /// be stored in one transaction with what the messages led to. Take what is
    /// [`ready`](Self::ready) first: events that were not taken are not saved.
    ///
    /// Drop records, checkpoints and answers change what is known, too. Where the owner
    /// [acknowledges by hand](SubscriberOptions::acknowledged_by_hand) they are acknowledged by
    /// [`Saved::stored`] from the first call on, which should therefore come before the first
    /// message; and it should save again whenever something [is unsaved](Self::has_unsaved), since
    /// the broker sends no more than [`receive_maximum`](crate::Limits::receive_maximum) before.
    pub fn save(&mut self, position: &[u8]) -> Saved {
        let position = write_position(&self.direct, &self.origins, position);
        let mut bytes = Vec::new();
        self.ledger.save(&position, self.clock.now(), &mut bytes);
        let saves = self.acknowledging == Acknowledging::ByHand && self.releases.is_none();
        let covers = self.unsaved.take().unwrap_or_default();
        self.unsaved = saves.then(Vec::new);
        Saved { bytes, covers }
    }

    /// Whether the audit's own topics have brought something since the owner has last saved.
    /// Messages are not counted: of those the owner knows.
    pub fn has_unsaved(&self) -> bool {
        self.unsaved.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// The position that was saved with the ledger; empty without one.
    pub fn position(&self) -> &[u8] {
        &self.position
    }

    /// Takes in what another member of a shared group knows.
    pub fn merge(&mut self, other: &Ledger<Hasher>) -> Vec<(LaneId, Epoch)> {
        self.take_events();
        self.ledger.merge(other)
    }

    /// Subscribed to what a lane's producer is asked by; ends at the broker.
    pub async fn unsubscribe(self) -> Result<(), SubscribeError> {
        self.messages.unsubscribe().await
    }

    /// A processor begins on this input; `taken` is what the spool of its outputs remembers.
    pub(super) fn begin_processing(&mut self, taken: Option<&SharedTaken>) {
        // What is ready was acknowledged when it came; what was not yet, comes again.
        let is_released = |delivery: &&Delivery| {
            matches!(
                delivery,
                Delivery::Checkpoint { .. } | Delivery::Dropped { .. }
            )
        };
        let ready = self.ready.iter().filter(is_released);
        self.releases = Some(ready.map(|_| None).collect());
        self.early.clear();
        self.unsaved = None;
        let Some(taken) = taken else {
            return;
        };
        let own = Heard {
            ledger: self.ledger.clone(),
            direct: std::mem::take(&mut self.direct),
            origins: std::mem::take(&mut self.origins),
        };
        let heard = taken.lock().begin(own, self.join, &self.limits);
        self.ledger = heard.ledger;
        self.direct = heard.direct;
        self.origins = heard.origins;
        self.expect();
    }

    /// That of the checkpoint or drop record that was given last.
    pub(super) fn take_release(&mut self) -> Option<Acknowledgement> {
        self.releases.as_mut()?.pop_front()?
    }

    /// The algorithm of its lanes, with their key.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Whether all that a checkpoint covers has come, as far as it still may: what went to other
    /// members of a group will not, and without a way back nothing comes again.
    pub(super) fn is_settled(&self, checkpoint: &Checkpoint) -> bool {
        if self.join == Join::Member || self.asking.is_none() {
            return true;
        }
        let lane = self.ledger.lane(checkpoint.lane, checkpoint.epoch);
        lane.is_none_or(|lane| lane.is_settled_below(checkpoint.size))
    }

    fn handle(&mut self, mut received: Received) {
        self.watch_absence();
        match self.names.kind(received.topic()) {
            None => self.handle_message(received),
            // What is retained is no sign of what its sender does now, and may be recorded.
            Some(_) if received.is_retained() => received.acknowledge(),
            Some(Kind::Other) => received.acknowledge(),
            Some(kind) => {
                let result = match kind {
                    Kind::Checkpoint => self.handle_checkpoint(&mut received),
                    Kind::Directory => {
                        if let Err((why, lanes)) = self.handle_directory(received.payload()) {
                            let topic = received.topic().to_owned();
                            self.ready
                                .push_back(Delivery::Refused { topic, why, lanes });
                        }
                        Ok(())
                    }
                    Kind::Drop => self.handle_drop(&mut received),
                    Kind::Answer(token) if token != self.token => Ok(()),
                    Kind::Answer(_) => match received.user_property(TOPIC) {
                        Some(topic) => {
                            let topic = topic.into();
                            let received = Received { topic, ..received };
                            let message = self.judge_answer(&received);
                            self.give(message, received);
                            return;
                        }
                        None => self.handle_answer(&received),
                    },
                    Kind::Other => Ok(()),
                };
                if let Err(why) = result {
                    let (topic, lanes) = (received.topic().to_owned(), Vec::new());
                    self.ready
                        .push_back(Delivery::Refused { topic, why, lanes });
                }
                match (received.take_acknowledgement(), &mut self.unsaved) {
                    (Some(acknowledgement), Some(unsaved)) => unsaved.push(acknowledgement),
                    (Some(acknowledgement), None) => acknowledgement.give(),
                    (None, _) => {}
                }
                self.take_events();
            }
        }
    }

    fn handle_message(&mut self, received: Received) {
        let message = self.judge(&received);
        self.give(message, received);
    }

    fn give(&mut self, mut message: AuditedMessage, mut received: Received) {
        if self.acknowledging == Acknowledging::Automatic {
            received.acknowledge_now();
        }
        message.received = received;
        self.ready.push_back(Delivery::Message(message));
        self.take_events();
    }

    fn judge(&mut self, received: &Received) -> AuditedMessage {
        let now = self.clock.now();
        let mut message = unjudged(received);
        let mut stamps = received.user_properties(AUDIT);
        message.property = match (stamps.next(), stamps.next()) {
            (None, _) => Err(NoStamp::Absent),
            (Some(_), Some(_)) => Err(NoStamp::Several),
            (Some(stamp), None) => Property::parse_text(stamp).map_err(NoStamp::Unreadable),
        };
        // It is older than the subscription, so out of scope, whatever it bears.
        if received.is_retained() {
            return message;
        }
        let mut property = match message.property {
            Ok(property) => property,
            Err(NoStamp::Absent) => return message,
            Err(_) => {
                message.verdict = Some(Verdict::Injected);
                return message;
            }
        };
        // The broker says itself that it may have sent it before: no second copy, and not moved.
        if received.is_repeated() && self.is_below_next(&property) {
            property.flags.resent = true;
        }
        let topic = mounts::signed_topic(received, self.crosses_mounts).as_bytes();
        let payload = received.payload();
        if self.origins.contains(&property.lane) && property.fits(&self.hasher, topic, payload) {
            self.hear_itself(&property);
        }
        if !self.early.is_empty() && property.fits(&self.hasher, topic, payload) {
            self.take_early(property.lane);
        }
        let mut verdict = self.ledger.message(&property, topic, payload, now);
        // The ledger says nothing of what is before its scope; its digest does.
        if verdict == Verdict::OutOfScope && !property.fits(&self.hasher, topic, payload) {
            verdict = Verdict::Altered;
        }
        if matches!(verdict, Verdict::Injected | Verdict::Altered) {
            if self.is_other_algorithm(&property) {
                verdict = Verdict::NotAudited;
            }
        } else if verdict == Verdict::NotAudited {
            message.is_unjudged = true;
            self.name_no_room(&property);
        } else if !self.is_known(property.lane) {
            self.make_known(property.lane);
        }
        if received.qos() == QoS::AtMostOnce && self.direct.contains(&property.lane) {
            self.at_most_once.insert(property.lane);
        }
        if verdict == Verdict::InOrder {
            self.note_in_order((property.lane, property.epoch));
        }
        message.verdict = Some(verdict);
        if message.is_new() && self.judges_origins {
            self.judge_origins(received, property.flags.resent, now, &mut message);
        }
        message
    }

    fn handle_checkpoint(&mut self, received: &mut Received) -> Result<(), String> {
        let payload = received.payload();
        let sealed = Checkpoint::parse(payload).map_err(|error| error.to_string())?;
        let lane = sealed.lane();
        let through = received.user_property(THROUGH).map(lane_named);
        let is_in_order = match through {
            None => self.direct.contains(&lane),
            Some(None) => return Err("a checkpoint passed on by no lane".to_owned()),
            Some(Some(processor)) => {
                self.direct.contains(&processor)
                    && self.origins.contains(&lane)
                    && !self.direct.contains(&lane)
            }
        };
        if !is_in_order {
            if through.is_none() {
                self.hear_of(sealed);
            }
            return Ok(());
        }
        let checkpoint = match sealed.open(&self.hasher) {
            Ok(checkpoint) => checkpoint,
            Err(error) if through.is_none() && !self.is_known(lane) => {
                self.name_other_key_once(lane, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if through.is_none() && !self.is_known(lane) {
            self.make_known(lane);
        }
        self.ledger.checkpoint(&checkpoint, self.clock.now());
        self.ready.push_back(Delivery::Checkpoint {
            checkpoint,
            bytes: payload.to_vec(),
        });
        if let Some(releases) = &mut self.releases {
            releases.push_back(received.take_acknowledgement());
        }
        Ok(())
    }

    /// A checkpoint of a lane of which no message has come here claims nothing.
    fn hear_of(&mut self, sealed: SealedCheckpoint) {
        let lane = sealed.lane();
        if let Err(error) = sealed.open(&self.hasher)
            && self.strangers.get(&lane) == Some(&false)
        {
            self.name_other_key(lane, &error.to_string());
        }
    }

    fn is_below_next(&self, property: &Property) -> bool {
        let lane = self.ledger.lane(property.lane, property.epoch);
        lane.is_some_and(|lane| property.sequence < lane.next())
    }

    fn take_events(&mut self) {
        let events = self.ledger.take_events();
        for (lane, epoch, event) in events {
            // What one processor has dropped, another may have passed on.
            if matches!(event, Event::DropContradicted(_)) && !self.direct.contains(&lane) {
                continue;
            }
            self.away.note((lane, epoch), &event);
            if let Event::Lost { .. }
            | Event::RootDiffers(_)
            | Event::Forged(_)
            | Event::ForgedAmong(_) = event
            {
                self.next_look = Duration::ZERO;
            }
            self.ready.push_back(Delivery::Event { lane, epoch, event });
        }
    }

    /// Stops the clock when the connection is gone or too much waits.
    fn watch_connection(&mut self) {
        let present = self.client.connection();
        let is_behind = self.messages.waiting() >= BACKLOG;
        let on = match &self.running {
            Running::Stands => return,
            Running::Probing(on, _) | Running::Runs(on) => *on,
        };
        if present != Some(on) || is_behind {
            self.ledger.pause(self.clock.now());
            self.running = Running::Stands;
        }
    }

    /// Nothing waits here. Whether nothing waits at the broker either, a ping tells: it answers in
    /// order.
    fn begin_probe(&mut self) {
        if let (Running::Stands, Some(on)) = (&self.running, self.client.connection()) {
            let client = self.client.clone();
            let ping = Box::pin(async move { client.ping().await.is_ok() });
            self.running = Running::Probing(on, ping);
        }
    }

    fn handle_probed(&mut self, is_answered: bool) {
        let Running::Probing(on, _) = self.running else {
            return;
        };
        let is_drained = is_answered
            && self.client.connection() == Some(on)
            && self.messages.waiting() < BACKLOG;
        self.running = if is_drained {
            self.ledger.resume(self.clock.now());
            Running::Runs(on)
        } else {
            Running::Stands
        };
    }

    fn let_time_pass(&mut self) {
        let now = self.clock.now();
        if now < self.next_poll {
            return;
        }
        self.next_poll = now + POLL_STEP;
        if matches!(self.running, Running::Runs(_)) {
            self.ledger.poll(now);
            self.take_events();
            self.take_presences();
        }
        self.ask(now);
    }

    /// Asks producers for what is lost, and again after growing pauses. What came altered is never
    /// reported lost, so it is found by looking.
    fn ask(&mut self, now: Duration) {
        let Some(asking) = &mut self.asking else {
            return;
        };
        if now < self.next_look || self.client.connection().is_none() {
            return;
        }
        self.next_look = now + LOOK_STEP;
        let missed = self.ledger.requests().filter(|(lane, _, request)| {
            // What a processor is to make of them, it must get itself.
            !matches!(request, Request::Numbers(_)) || self.direct.contains(lane)
        });
        for (lane, epoch, request) in asking.due(missed, now) {
            let mut payload = Vec::new();
            request.encode(epoch, &mut payload);
            let message = Message::new(self.names.repair(lane), payload)
                .map_err(|_| ())
                .and_then(|message| {
                    let answer = self.names.answer(&self.token);
                    message.response_topic(&answer).map_err(|_| ())
                })
                .and_then(|message| {
                    message
                        .correlation_data(&random().to_be_bytes())
                        .map_err(|_| ())
                })
                .expect("a topic of the audit fits a packet");
            if self.client.try_send(message).is_ok() {
                self.ready.push_back(Delivery::Asked {
                    lane,
                    epoch,
                    request,
                });
            }
        }
    }
}

impl std::fmt::Debug for AuditedSubscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditedSubscriber")
            .field("lanes", &self.direct)
            .finish_non_exhaustive()
    }
}

/// A message of which nothing is said yet.
fn unjudged(received: &Received) -> AuditedMessage {
    AuditedMessage {
        received: received.without_acknowledgement(),
        verdict: None,
        property: Err(NoStamp::Absent),
        origins: Vec::new(),
        parents: None,
        is_unjudged: false,
    }
}

fn lane_named(text: &str) -> Option<LaneId> {
    LaneId::new(u64::from_str_radix(text, 16).ok()?)
}

/// The answer of the probe that is under way; for ever if none is. Cancelling it loses nothing.
async fn probed(running: &mut Running) -> bool {
    match running {
        Running::Probing(_, ping) => ping.await,
        Running::Stands | Running::Runs(_) => std::future::pending().await,
    }
}

/// Epochs remembered for which there is no room; about 30 bytes each. Of more it is not said: what
/// to do is the same.
const NO_ROOM_MAX: usize = 1_024;
/// Messages that wait here before the broker counts as having more.
const BACKLOG: usize = 256;
/// How often time passes in the ledger.
const POLL_STEP: Duration = Duration::from_millis(50);
/// How often to look for what is worth asking for, where no event tells of it.
const LOOK_STEP: Duration = Duration::from_millis(250);
