//! Publishers that are served where those live who receive what they publish.
//!
//! ```text
//!          home (client id)                              host (receivers)
//! PUBLISH ------------------> route -- each crosses -->
//!   so many in turn: BarrierAsked to all ... reached
//!          session, without connection  == Move ==>  connection, lane, a session of its own
//!                                                     PUBLISH (QoS 0), PINGREQ
//!          session, whole again         <== Move ==  anything else; or so many in turn cross here
//!                                       <-- Gone --  the connection has ended
//! ```
//!
//! A session lives on the shard its client id falls to. But of a client that only publishes, and to
//! one other shard, there is nothing at home that a message would need, and each that crosses costs
//! a second look-up, and at low rates a second wake. So its connection becomes a *guest* of that
//! shard: what it publishes at QoS 0 is taken in there, and whatever else it says it says at home.
//!
//! Invariants:
//! - A connection leaves a shard when every other one has taken in what that shard wrote to it
//!   before: so what it publishes next overtakes nothing, wherever it is taken in (ADR 51).
//! - The session never moves: who connects again finds it where the id falls to, and waits there
//!   until its guest is back or has gone [MQTT-3.1.4-3]. Its will, its expiry and its end are
//!   home's.
//! - The lane goes where the connection goes, so each message has its number and each number one
//!   message. While somebody watches the lane it stays at home, where news of it arrives.
//! - A guest has no subscriptions and is owed nothing: to subscribe it goes home first.
//! - Shards exchange guests: with all others together one has at most an eighth of its clients more
//!   than these have with it, or [`SURPLUS_MIN`], or one with each. So a receiver that all publish
//!   to draws only a part of them to its shard.
//! - What a client has sent is looked at before its end is: who is on its way is not read.
//!
//! Deliberately absent: publishers whose session or will is on disk, and messages of QoS 1 and 2.
//! Their order is that of one log, and that is home's.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use unbroken_mqtt_proto::{Frame, PacketType};

use crate::audit::IngressLane;
use crate::connection::Connection;
use crate::ids::{ConnectionId, SessionId, ShardId};
use crate::input::{Admission, CloseCause};
use crate::limits::{GUEST_AFTER_MAX, SHARDS_MAX, SURPLUS_MIN, SURPLUS_PARTS};
use crate::mail::Letter;
use crate::output::{Disconnection, Output, StoreId};
use crate::session::Session;
use crate::shard::{Shard, stopping};
use crate::timers::Timer;

/// A connection on its way between two shards, with what is known of its client. Opaque to the
/// driver, which carries it beside the socket.
#[derive(Debug)]
pub struct Traveller {
    connection: Box<Connection>,
    client_id: Arc<str>,
    lane: Option<Box<IngressLane>>,
    /// Where its session lives.
    home: ShardId,
}

impl Traveller {
    /// Bytes of what it has sent and what is to be written to it.
    pub fn bytes(&self) -> u64 {
        (self.connection.unread.len() + self.connection.pending()) as u64
    }
}

/// Guests of this shard, and its own clients that are guests elsewhere.
#[derive(Debug)]
pub(crate) struct Guests {
    here: HashMap<Arc<str>, ConnectionId, FixedState>,
    abroad: HashMap<SessionId, Abroad, FixedState>,
    /// Clients whose guest is home again, or has gone, with what waited for that.
    due: Due,
    /// Removals that wait.
    removals: u32,
    /// What leaves when all shards have reached these barriers.
    departures: VecDeque<(u64, Departure)>,
    /// How many more of our clients each shard has than we have of its.
    surplus: [i32; SHARDS_MAX],
}

/// What waited for guests and does so no more, in the order in which it came.
#[derive(Debug)]
struct Due {
    waiting: VecDeque<(Arc<str>, Waiting)>,
    /// How many of these are of each client.
    of_client: HashMap<Arc<str>, u32, FixedState>,
}

/// A session whose connection is a guest elsewhere.
#[derive(Debug)]
struct Abroad {
    host: ShardId,
    waiting: Vec<Waiting>,
}

/// What waits until a guest is home again, or has gone.
#[derive(Clone, Debug)]
pub(crate) enum Waiting {
    Admission(ConnectionId, Admission),
    Removal,
}

#[derive(Debug)]
enum Departure {
    Connection(ConnectionId),
    Farewell(ShardId, Letter),
}

/// Where the last messages of a connection went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whither {
    shard: u8,
    /// How often its number of messages was doubled.
    doubled: u8,
    /// Messages in turn that went to that shard and to nobody here.
    messages: u32,
}

impl Guests {
    /// The seed keeps clients from choosing ids that meet in the table.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            here: HashMap::with_hasher(FixedState::with_seed(seed)),
            abroad: HashMap::with_hasher(FixedState::with_seed(seed)),
            due: Due::new(seed),
            removals: 0,
            departures: VecDeque::new(),
            surplus: [0; SHARDS_MAX],
        }
    }

    /// Whether the connection of this session is elsewhere.
    pub(crate) fn has_abroad(&self, id: SessionId) -> bool {
        self.abroad.contains_key(&id)
    }

    fn count(&mut self, shard: ShardId, more: i32) {
        self.surplus[usize::from(shard.0)] += more;
    }
}

impl Due {
    fn new(seed: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            of_client: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    fn has(&self, client_id: &Arc<str>) -> bool {
        self.of_client.contains_key(client_id)
    }

    fn push(&mut self, client_id: Arc<str>, what: Waiting) {
        *self.of_client.entry(Arc::clone(&client_id)).or_default() += 1;
        self.waiting.push_back((client_id, what));
    }

    fn pop(&mut self) -> Option<(Arc<str>, Waiting)> {
        let due = self.waiting.pop_front()?;
        if let Some(count) = self.of_client.get_mut(&due.0) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&due.0);
            }
        }
        Some(due)
    }
}

/// Whether a guest may say this where it is.
pub(crate) fn serves(frame: Frame<'_>) -> bool {
    frame.bytes[0] == QOS_0 || frame.packet_type() == Some(PacketType::PingReq)
}

impl Shard {
    /// A message of this connection was routed: perhaps it is better taken in elsewhere. If it
    /// could have been, `elsewhere` says where.
    #[inline(never)]
    pub(crate) fn note_whither(&mut self, id: ConnectionId, elsewhere: Option<ShardId>) {
        let after = self.options.settings.guest_after;
        let Some(connection) = self.clients.named(id) else {
            return;
        };
        let whither = &mut connection.whither;
        let Some(ShardId(shard)) = elsewhere else {
            whither.messages = 0;
            return;
        };
        if whither.shard != shard {
            (whither.shard, whither.messages) = (shard, 0);
        }
        whither.messages = whither.messages.saturating_add(1);
        let most = GUEST_AFTER_MAX.max(after);
        let enough = (u64::from(after) << whither.doubled).min(most.into());
        if after > 0 && u64::from(whither.messages) >= enough {
            whither.messages = 0;
            whither.doubled = (whither.doubled + 1).min(DOUBLED_MAX);
            self.consider_leaving(id, ShardId(shard));
        }
    }

    #[cold]
    fn consider_leaving(&mut self, id: ConnectionId, to: ShardId) {
        let home = self.guest_of(id);
        if home.is_some() || self.may_be_guest(id, to) {
            self.depart(id, home.unwrap_or(to));
        }
    }

    fn guest_of(&self, id: ConnectionId) -> Option<ShardId> {
        self.clients.connection(id.index)?.guest_of
    }

    /// Whether nothing of this client but what it publishes at QoS 0 needs its home now, and the
    /// other shard has not too many of ours.
    fn may_be_guest(&mut self, id: ConnectionId, host: ShardId) -> bool {
        let ours = self.clients.stats.clients_connected / SURPLUS_PARTS;
        let others = i32::from(self.options.shards) - 1;
        let most = i32::try_from(ours).unwrap_or(i32::MAX).max(SURPLUS_MIN) / others;
        if self.clients.stopping || self.guests.surplus[usize::from(host.0)] >= most.max(1) {
            return false;
        }
        let Some(connection) = self.clients.connection(id.index) else {
            return false;
        };
        let is_idle = connection.pending() == 0
            && connection.held.is_empty()
            && connection.held_bytes == 0
            && !connection.answers_first
            && !connection.waits_for_spreads
            && self.clients.gate_open(connection);
        let Some(session_id) = connection.session else {
            return false;
        };
        let Some(session) = self.clients.sessions.get(session_id.index()) else {
            return false;
        };
        is_idle
            && has_only_its_connection(session)
            && !self.publishers.knows(&session.client_id)
            && !self.is_watched(session_id)
    }

    /// Whether somebody is told of what this session publishes.
    fn is_watched(&mut self, id: SessionId) -> bool {
        let session = self.clients.sessions.get_mut(id.index());
        let Some(lane) = session.and_then(|session| session.lane.as_deref_mut()) else {
            return false;
        };
        if self.clients.home.watching > 0 {
            lane.look(&self.index, &mut self.routes);
            return lane.wants.any() || lane.is_told();
        }
        lane.is_told()
    }

    /// Whether a guest has to go home before this is looked at; then it is on its way.
    pub(crate) fn is_called_home(
        &mut self,
        id: ConnectionId,
        session: Option<SessionId>,
        frame: Frame<'_>,
    ) -> bool {
        let is_watched = self.clients.home.watching > 0
            && session.is_some_and(|session| self.is_watched(session));
        let calls = is_watched || !serves(frame);
        if calls {
            self.send_home(id);
        }
        calls
    }

    /// Sends a guest home, if it is one; what it has sent and is not used goes with it.
    #[cold]
    pub(crate) fn send_home(&mut self, id: ConnectionId) -> bool {
        let home = self.guest_of(id);
        if let Some(home) = home {
            self.depart(id, home);
        }
        home.is_some()
    }

    /// Nothing of this connection is looked at from now on; when every shard has what was written
    /// to it before, it leaves.
    fn depart(&mut self, id: ConnectionId, to: ShardId) {
        if let Some(connection) = self.clients.named(id)
            && connection.leaves_for.is_none()
        {
            connection.leaves_for = Some(to);
            self.pause(id);
            self.leave_behind_mail(Departure::Connection(id));
        }
    }

    fn pause(&mut self, connection: ConnectionId) {
        let pause = Output::Pause { connection };
        self.clients.outputs.push_back(pause);
    }

    /// A connection that is about to leave ends where it is: what it has sent is looked at before.
    /// Of a guest it cannot be, and goes home with what it is.
    pub(crate) fn keep_from_leaving(&mut self, now: Instant, id: ConnectionId) {
        while let Some(connection) = self.clients.named(id)
            && connection.guest_of.is_none()
            && connection.leaves_for.take().is_some()
        {
            // It may depart once more, and then not by this barrier.
            let is_its = |departure: &Departure| matches!(departure, Departure::Connection(whose) if *whose == id);
            self.guests.departures.retain(|(_, it)| !is_its(it));
            self.consume_unread(now, id);
        }
    }

    fn leave_behind_mail(&mut self, departure: Departure) {
        let barrier = self.barriers.issue();
        for shard in self.others() {
            self.mail(shard, Letter::BarrierAsked { barrier });
        }
        self.guests.departures.push_back((barrier, departure));
    }

    /// Lets those leave that wait for no shard any more.
    pub(crate) fn let_depart(&mut self) {
        let reached = self.barriers.reached();
        while let Some((_, departure)) = self
            .guests
            .departures
            .pop_front_if(|(barrier, _)| *barrier <= reached)
        {
            match departure {
                Departure::Connection(id) => self.let_go(id),
                Departure::Farewell(home, letter) => self.mail(home, letter),
            }
        }
    }

    fn let_go(&mut self, id: ConnectionId) {
        let Some(connection) = self.clients.named(id) else {
            return; // it has ended meanwhile
        };
        let Some((to, session_id)) = connection.leaves_for.zip(connection.session) else {
            return;
        };
        let is_guest = connection.guest_of.is_some();
        if !is_guest && !self.may_be_guest(id, to) {
            return self.stay(id);
        }
        let Some(mut connection) = self.clients.connections[id.index as usize].take() else {
            return;
        };
        connection.session = None;
        let (client_id, lane, home);
        if is_guest {
            let Some(mut session) = self.take_guest(session_id, to) else {
                return;
            };
            (client_id, lane, home) = (session.client_id, session.lane.take(), to);
        } else {
            let Some(session) = self.clients.session_mut(session_id) else {
                return;
            };
            session.connection = None;
            client_id = Arc::clone(&session.client_id);
            (lane, home) = (session.lane.take(), self.options.id);
            self.guests.count(to, 1);
            let abroad = Abroad {
                host: to,
                waiting: Vec::new(),
            };
            self.guests.abroad.insert(session_id, abroad);
        }
        self.clients.stats.connections_moved += 1;
        let traveller = Traveller {
            connection,
            client_id,
            lane,
            home,
        };
        self.clients.outputs.push_back(Output::Move {
            connection: id,
            to,
            unread: Vec::new(),
            traveller: Some(traveller),
        });
    }

    /// It does not leave after all.
    fn stay(&mut self, id: ConnectionId) {
        if let Some(connection) = self.clients.named(id) {
            connection.leaves_for = None;
        }
        // What it has sent is looked at behind the write.
        self.clients.relieve(self.clients.home.now, id);
    }

    /// Takes the session that stands for a guest.
    fn take_guest(&mut self, id: SessionId, home: ShardId) -> Option<Session> {
        let mut session = self.clients.sessions.try_remove(id.index())?;
        self.guests.here.remove(&session.client_id);
        self.guests.count(home, 1);
        for event in session.drops.take_untold(self.clients.home.now) {
            self.event(event);
        }
        Some(session)
    }

    /// A connection comes in that another shard has let go.
    pub(crate) fn arrive(&mut self, now: Instant, id: ConnectionId, traveller: Traveller) {
        let Traveller {
            mut connection,
            client_id,
            lane,
            home,
        } = traveller;
        connection.id = id;
        connection.dirty = false;
        connection.leaves_for = None;
        connection.whither.messages = 0;
        // It was not read meanwhile.
        connection.last_received = now;
        // It was open, and requests are numbered anew here.
        connection.gate = StoreId::NOTHING;
        // What is on its way to very many where it was goes before what comes from here.
        connection.waits_for_spreads = false;
        let session_id;
        if home == self.options.id {
            let Some((its, abroad)) = self.take_abroad(&client_id) else {
                debug_assert!(
                    false,
                    "the session of a guest does not end before it is back"
                );
                return;
            };
            session_id = its;
            connection.guest_of = None;
            self.go_on_for(now, &client_id, abroad);
        } else {
            let key = self
                .clients
                .sessions
                .insert(Session::new(Arc::clone(&client_id)));
            session_id = SessionId(u32::try_from(key).expect("as many as there are connections"));
            self.clients.sessions[key].serial = self.token();
            self.guests.here.insert(Arc::clone(&client_id), id);
            self.guests.count(home, -1);
            connection.guest_of = Some(home);
        }
        if let Some(session) = self.clients.session_mut(session_id) {
            session.connection = Some(id.index);
            session.lane = lane;
            if let Some(lane) = session.lane.as_deref_mut() {
                lane.forget_look();
            }
        }
        connection.session = Some(session_id);
        if let Some(keep_alive) = connection.keep_alive {
            let until = connection.last_received + keep_alive;
            self.timers.set(until, Timer::KeepAlive(id));
        }
        let index = id.index as usize;
        if self.clients.connections.len() <= index {
            self.clients.connections.resize_with(index + 1, || None);
        }
        self.clients.connections[index] = Some(connection);
        if self.clients.stopping {
            // As whoever was here. What its client has said at the end is known at home.
            if home == self.options.id {
                self.consume_unread(now, id);
            }
            return self.fail(now, id, stopping());
        }
        self.clients.mark_dirty(id);
        self.consume_unread(now, id);
    }

    /// The socket of a connection was lost between two shards.
    pub(crate) fn strand(&mut self, now: Instant, traveller: Traveller, cause: CloseCause) {
        let Traveller {
            connection,
            client_id,
            lane,
            home,
        } = traveller;
        if connection.counted {
            self.options.totals.leave(connection.peer.listener);
        }
        self.say_farewell(now, home, client_id, lane, Disconnection::Lost(cause));
    }

    /// The connection of a guest has ended.
    pub(crate) fn end_guest(&mut self, now: Instant, connection: &Connection, why: Disconnection) {
        if let Some((id, home)) = connection.session.zip(connection.guest_of)
            && let Some(mut session) = self.take_guest(id, home)
        {
            let lane = session.lane.take();
            self.say_farewell(now, home, session.client_id, lane, why);
        }
    }

    /// Tells the home of a guest that its connection has ended, behind all that it has published.
    fn say_farewell(
        &mut self,
        now: Instant,
        home: ShardId,
        client_id: Arc<str>,
        lane: Option<Box<IngressLane>>,
        why: Disconnection,
    ) {
        if home == self.options.id {
            return self.end_abroad(now, &client_id, lane, why);
        }
        let letter = Letter::GuestGone {
            client_id,
            lane,
            why,
        };
        self.leave_behind_mail(Departure::Farewell(home, letter));
    }

    /// The connection of a client of this shard has ended elsewhere.
    pub(crate) fn end_abroad(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        lane: Option<Box<IngressLane>>,
        why: Disconnection,
    ) {
        let Some((id, abroad)) = self.take_abroad(client_id) else {
            debug_assert!(
                false,
                "the session of a guest does not end before it has gone"
            );
            return;
        };
        if let Some(session) = self.clients.session_mut(id) {
            session.lane = lane;
        }
        self.begin_absence(now, id, why);
        self.go_on_for(now, client_id, abroad);
    }

    fn take_abroad(&mut self, client_id: &Arc<str>) -> Option<(SessionId, Abroad)> {
        let id = *self.clients.by_client_id.get(client_id)?;
        let abroad = self.guests.abroad.remove(&id)?;
        self.guests.count(abroad.host, -1);
        Some((id, abroad))
    }

    /// Whether the session of the client that is let in, or is to be removed, has its connection
    /// elsewhere; then that is called home, and this is looked at again afterwards. So is what
    /// comes when others wait for the same client: it comes behind them.
    pub(crate) fn waits_for_guest(&mut self, client_id: &Arc<str>, what: Waiting) -> bool {
        if self.guests.due.has(client_id) {
            self.keep_waiting(&what);
            self.guests.due.push(Arc::clone(client_id), what);
            return true;
        }
        self.calls_guest_home(client_id, &what) || self.is_behind_leaver(client_id, &what)
    }

    /// Whether the client of this session has a connection here that was about to leave. Now it is
    /// not, and read once more before this.
    fn is_behind_leaver(&mut self, client_id: &Arc<str>, what: &Waiting) -> bool {
        let id = self.clients.by_client_id.get(client_id).copied();
        let Some(id) = id.and_then(|id| self.clients.connection_of(id)) else {
            return false;
        };
        let leaves = |found: &Connection| found.leaves_for.is_some();
        if !self.clients.connection(id.index).is_some_and(leaves) {
            return false;
        }
        let now = self.clients.home.now;
        self.keep_from_leaving(now, id);
        self.clients.relieve(now, id);
        self.keep_waiting(what);
        self.guests.due.push(Arc::clone(client_id), what.clone());
        self.schedule_waiting(now);
        true
    }

    fn calls_guest_home(&mut self, client_id: &Arc<str>, what: &Waiting) -> bool {
        let id = self.clients.by_client_id.get(client_id);
        let Some(abroad) = id.and_then(|id| self.guests.abroad.get_mut(id)) else {
            return false;
        };
        let host = abroad.host;
        abroad.waiting.push(what.clone());
        self.keep_waiting(what);
        let client_id = Arc::clone(client_id);
        self.mail(host, Letter::GuestCalled { client_id });
        true
    }

    fn keep_waiting(&mut self, what: &Waiting) {
        match what {
            Waiting::Admission(id, _) => self.pause(*id),
            Waiting::Removal => self.guests.removals += 1,
        }
    }

    /// Whether something that an operator removes waits until a guest is home.
    pub fn has_removals_to_do(&self) -> bool {
        self.guests.removals > 0
    }

    /// The home of a guest wants it back. It may have left already.
    pub(crate) fn call_home(&mut self, client_id: &str) {
        if let Some(id) = self.guests.here.get(client_id).copied() {
            self.send_home(id);
        }
    }

    /// What waited goes on behind what the guest has brought.
    fn go_on_for(&mut self, now: Instant, client_id: &Arc<str>, abroad: Abroad) {
        for what in abroad.waiting {
            self.guests.due.push(Arc::clone(client_id), what);
        }
        self.schedule_waiting(now);
    }

    fn schedule_waiting(&mut self, now: Instant) {
        if !self.guests.due.waiting.is_empty() {
            // A turn of the loop comes between, in which more of the guest is read.
            self.timers.set(now + NEXT_TURN, Timer::Guests);
        }
    }

    /// One at a time, as everything that comes from outside; and who has given up costs no turn.
    pub(crate) fn go_on_waiting(&mut self, now: Instant) {
        while let Some((client_id, what)) = self.guests.due.pop() {
            match what {
                Waiting::Admission(id, _) if self.clients.named(id).is_none() => continue,
                Waiting::Admission(id, ref admission) => {
                    if !self.calls_guest_home(&client_id, &what) {
                        self.decide(now, id, admission.clone());
                    }
                }
                Waiting::Removal => {
                    self.guests.removals -= 1;
                    if !self.calls_guest_home(&client_id, &what) {
                        self.end_for_operator(now, &client_id);
                    }
                }
            }
            break;
        }
        self.schedule_waiting(now);
    }
}

/// Nothing is known of this session but who its client is, and what it publishes.
fn has_only_its_connection(session: &Session) -> bool {
    !session.is_durable()
        && !session.will_on_disk
        && session.subscriptions.is_empty()
        && session.inbound.iter().next().is_none()
        && session.inbound.inflight() == 0
        && session.unanswered.get().is_none()
        && session.outbound.inflight() == 0
        && session.queue.is_empty()
        && session.retained.is_empty()
        && session.missed.is_none()
        && session.rules.is_empty()
}

/// The first byte of a PUBLISH at QoS 0 that is not to be retained.
const QOS_0: u8 = (PacketType::Publish as u8) << 4;
/// Later than now.
const NEXT_TURN: Duration = Duration::from_nanos(1);
/// A number of messages that is doubled more often is above [`GUEST_AFTER_MAX`].
const DOUBLED_MAX: u8 = 16;
