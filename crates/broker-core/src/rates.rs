//! Rates of clients: how many messages and bytes the broker takes of them in a second, and how many
//! connections it lets in.
//!
//! ```text
//! PUBLISH, bytes ──▶ Rates of the connection ──▶ Bucket of each scope ──▶ now, or a later time
//!                      │ until then nothing of the connection is used or read
//!                      └ for longer than it has patience: the connection ends
//! ```
//!
//! A [`RateScope`] is what some connections have together: those of one client, of a user, or of
//! all clients that a rule of the driver is about. A bucket is a token bucket of one second's worth
//! (GCRA, ITU-T I.371) in one number. It grants what comes in the order in which it comes, in
//! advance if need be, so that many connections that wait for one bucket wake up one by one.
//!
//! Invariants:
//! - In any time a bucket lets through no more than one second's worth and what the time is worth,
//!   and one unit; a single packet that is larger is let through, and is paid for afterwards.
//! - What waits is used in its order, and nothing of it is lost while its connection is open.
//! - A place in a scope is given back when the connection ends, however it ends.
//! - Like [`Totals`](crate::Totals) a scope has numbers, not state: no shard learns from it what
//!   another holds.
//!
//! Deliberately absent: which scopes a client has, which the driver decides by its configuration.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::ReasonCode;

use crate::reason::Fault;

/// How much there may be of what; `None` is without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Connections at the same time. Beyond it: CONNACK 0x97 (3.x: 3).
    pub max_connections: Option<u32>,
    /// Connections that are let in, in a second. Beyond it: CONNACK 0x9F (3.x: 3).
    pub connections_per_second: Option<u32>,
    /// PUBLISH packets that are received, in a second. Beyond it they wait.
    pub messages_per_second: Option<u32>,
    /// Bytes that are received, in a second. Beyond it they wait.
    pub bytes_per_second: Option<u32>,
}

/// Connections that share rates.
#[derive(Debug)]
pub struct RateScope {
    /// The number of its rule in the driver's list.
    rule: u16,
    /// Whose rates these are, for people.
    name: Arc<str>,
    start: Instant,
    max_connections: Option<u32>,
    open: AtomicU32,
    connections: Option<Bucket>,
    messages: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// Why a connection is not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateRefusal {
    /// The reason code that the client gets.
    pub reason: ReasonCode,
    /// Why, for people.
    pub detail: String,
}

impl RateScope {
    /// Without connections, and with full buckets. `name`: how the log calls it.
    pub fn new(rule: u16, name: Arc<str>, limits: RateLimits, start: Instant) -> Self {
        Self {
            rule,
            name,
            start,
            max_connections: limits.max_connections,
            open: AtomicU32::new(0),
            connections: limits.connections_per_second.map(Bucket::new),
            messages: limits.messages_per_second.map(Bucket::new),
            bytes: limits.bytes_per_second.map(Bucket::new),
        }
    }

    /// A place for one more connection, if there may be one. `in_place`: it takes the place of one
    /// of these, which is still open.
    pub fn enter(self: &Arc<Self>, in_place: bool) -> Result<RatePlace, RateRefusal> {
        let most = self.max_connections.unwrap_or(u32::MAX);
        let most = most.saturating_add(u32::from(in_place));
        let one_more = |open: u32| (open < most).then_some(open.saturating_add(1));
        let entered = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        match entered {
            Ok(_) => Ok(RatePlace(Arc::clone(self))),
            Err(_) => Err(RateRefusal {
                reason: ReasonCode::QuotaExceeded,
                detail: format!("max_connections of {} is reached", self.name),
            }),
        }
    }

    /// A place for a connection that is there already.
    pub fn join(self: &Arc<Self>) -> RatePlace {
        self.open.fetch_add(1, Ordering::Relaxed);
        RatePlace(Arc::clone(self))
    }

    /// The number of the rule that it is of.
    pub const fn rule(&self) -> u16 {
        self.rule
    }

    /// Whether it would be the same if it were forgotten and made anew.
    pub fn is_idle(&self, now: Instant) -> bool {
        let elapsed = self.elapsed(now);
        let buckets = [&self.connections, &self.messages, &self.bytes];
        let mut buckets = buckets.into_iter().flatten();
        self.open.load(Ordering::Relaxed) == 0 && buckets.all(|bucket| bucket.is_full(elapsed))
    }

    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    const fn bucket(&self, of: Rated) -> Option<&Bucket> {
        match of {
            Rated::Messages => self.messages.as_ref(),
            Rated::Bytes => self.bytes.as_ref(),
        }
    }
}

/// The place of one connection in a scope; dropping it gives it back.
#[derive(Debug)]
pub struct RatePlace(Arc<RateScope>);

impl RatePlace {
    /// Counts the connection as let in now, if there may be one more.
    pub fn admit(&self, now: Instant) -> Result<(), RateRefusal> {
        let Self(scope) = self;
        let elapsed = scope.elapsed(now);
        match &scope.connections {
            Some(bucket) if !bucket.try_take(elapsed) => Err(RateRefusal {
                reason: ReasonCode::ConnectionRateExceeded,
                detail: format!("connections_per_second of {} is exceeded", scope.name),
            }),
            _ => Ok(()),
        }
    }

    /// The connection is not let in after all.
    pub fn take_back(&self) {
        if let Some(bucket) = &self.0.connections {
            bucket.give_back(1);
        }
    }
}

impl Drop for RatePlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The rates of one connection. All must have room.
#[derive(Debug)]
pub struct Rates {
    places: Box<[RatePlace]>,
    /// The next PUBLISH has had its turn granted.
    is_granted: bool,
    /// Bytes that were taken, and are not used while the pause lasts.
    unused: u64,
    pause: Option<Pause>,
    /// How long it was paused, less the time for which it was not.
    impatience: Duration,
    /// Since when it is not paused.
    since: Instant,
}

/// Nothing is used or read of a connection.
#[derive(Debug)]
struct Pause {
    since: Instant,
    until: Instant,
    /// Whose rate it is over, and of what.
    scope: Arc<RateScope>,
    of: Rated,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rated {
    Messages,
    Bytes,
}

/// What has become of a pause.
#[derive(Debug)]
pub(crate) enum PauseEnd {
    /// There is none.
    None,
    /// It is over.
    Over,
    /// It is to be looked at again then.
    Later(Instant),
    /// The connection ends for this.
    Impatient(Fault),
}

impl Rates {
    /// Those of a connection with these places.
    pub fn new(places: Vec<RatePlace>, now: Instant) -> Self {
        Self {
            places: places.into(),
            is_granted: false,
            unused: 0,
            pause: None,
            impatience: Duration::ZERO,
            since: now,
        }
    }

    /// Whether it has a place in this scope.
    pub fn is_in(&self, scope: &Arc<RateScope>) -> bool {
        let mut places = self.places.iter();
        places.any(|RatePlace(it)| Arc::ptr_eq(it, scope))
    }

    /// The rules that its scopes are of, in their order.
    pub fn rules(&self) -> impl Iterator<Item = u16> {
        self.places.iter().map(|RatePlace(scope)| scope.rule)
    }

    /// Whether nothing may be used or read for now.
    pub(crate) const fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Takes one PUBLISH; or it is not its turn, and there is a pause.
    pub(crate) fn take_message(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.is_granted) {
            return true;
        }
        let has_turn = self.take(now, Rated::Messages, 1);
        self.is_granted = !has_turn;
        has_turn
    }

    /// The PUBLISH that was taken is looked at once more.
    pub(crate) const fn give_back_message(&mut self) {
        self.is_granted = true;
    }

    /// Takes so many bytes; or they have to wait, and there is a pause.
    pub(crate) fn take_bytes(&mut self, now: Instant, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let is_in_time = self.take(now, Rated::Bytes, bytes);
        if self.is_paused() {
            self.unused = self.unused.saturating_add(bytes);
        }
        is_in_time
    }

    fn take(&mut self, now: Instant, of: Rated, count: u64) -> bool {
        let due = self.places.iter().filter_map(|RatePlace(scope)| {
            let due = scope.bucket(of)?.take(scope.elapsed(now), count)?;
            Some((scope.start + due, scope))
        });
        let Some((until, scope)) = due.max_by_key(|(until, _)| *until) else {
            return true;
        };
        let scope = Arc::clone(scope);
        if let Some(pause) = &mut self.pause {
            pause.until = pause.until.max(until);
        } else {
            let at_rest = now.saturating_duration_since(self.since);
            self.impatience = self.impatience.saturating_sub(at_rest);
            self.pause = Some(Pause {
                since: now,
                until,
                scope,
                of,
            });
        }
        false
    }

    /// What a pause is for, if it is the first after a time in which there was none.
    pub(crate) fn first_pause(&self) -> Option<String> {
        let pause = self.pause.as_ref()?;
        self.impatience.is_zero().then(|| pause.rate())
    }

    /// When a pause is to be looked at, if there is one.
    pub(crate) fn next_look(&self, patience: Option<Duration>) -> Option<Instant> {
        let pause = self.pause.as_ref()?;
        let left = patience.map(|patience| patience.saturating_sub(self.impatience));
        let lost = left.and_then(|left| pause.since.checked_add(left));
        Some(lost.map_or(pause.until, |lost| lost.min(pause.until)))
    }

    /// Ends a pause if its time is over, or the patience.
    pub(crate) fn end_pause(&mut self, now: Instant, patience: Option<Duration>) -> PauseEnd {
        let Some(pause) = &self.pause else {
            return PauseEnd::None;
        };
        let impatience = self.impatience + now.saturating_duration_since(pause.since);
        if pause.until <= now {
            self.impatience = impatience;
            self.since = now;
            self.pause = None;
            self.unused = 0;
            return PauseEnd::Over;
        }
        if patience.is_some_and(|patience| patience <= impatience) {
            return PauseEnd::Impatient(pause.fault());
        }
        match self.next_look(patience) {
            Some(at) => PauseEnd::Later(at),
            None => PauseEnd::None,
        }
    }
}

/// What was taken in advance and is not used is there for the others again.
impl Drop for Rates {
    fn drop(&mut self) {
        for RatePlace(scope) in &self.places {
            if let Some(bucket) = &scope.messages
                && self.is_granted
            {
                bucket.give_back(1);
            }
            if let Some(bucket) = &scope.bytes {
                bucket.give_back(self.unused);
            }
        }
    }
}

impl Pause {
    /// The rate that the connection is over, for people.
    fn rate(&self) -> String {
        let key = match self.of {
            Rated::Messages => "messages_per_second",
            Rated::Bytes => "bytes_per_second",
        };
        format!("{key} of {}", self.scope.name)
    }

    fn fault(&self) -> Fault {
        let reason = match self.of {
            Rated::Messages => ReasonCode::MessageRateTooHigh,
            Rated::Bytes => ReasonCode::QuotaExceeded,
        };
        let rate = self.rate();
        let detail = format!("it was over {rate} for longer than limits.rate_patience allows");
        Fault {
            reason,
            detail: Cow::Owned(detail),
        }
    }
}

/// A token bucket of one second's worth. The times here are since its scope began.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    /// Units that were taken, where there was no time in which it was full; otherwise those that
    /// had come by then, and were taken since.
    taken: AtomicU64,
}

impl Bucket {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.max(1).into(),
            taken: AtomicU64::new(0),
        }
    }

    /// Units that have come by then.
    fn come_by(&self, time: Duration) -> u64 {
        let units = time.as_nanos() * u128::from(self.per_second) / NANOS;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// When so many units have come.
    fn time_of(&self, units: u64) -> Duration {
        let nanos = (u128::from(units) * NANOS).div_ceil(self.per_second.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes so many units; answers when it is their turn, if that is later.
    fn take(&self, now: Duration, count: u64) -> Option<Duration> {
        let come = self.come_by(now);
        let with_these = |taken: u64| taken.max(come).saturating_add(count);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                Some(with_these(taken))
            });
        let taken = with_these(taken.unwrap_or_else(|taken| taken));
        let due = taken.saturating_sub(self.per_second);
        (due > come).then(|| self.time_of(due))
    }

    /// Takes one unit if it is there now.
    fn try_take(&self, now: Duration) -> bool {
        let come = self.come_by(now);
        let with_one = |taken: u64| {
            let taken = taken.max(come).saturating_add(1);
            (taken <= come.saturating_add(self.per_second)).then_some(taken)
        };
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_one);
        taken.is_ok()
    }

    /// So many units that were taken are not used.
    fn give_back(&self, count: u64) {
        let without = |taken: u64| Some(taken.saturating_sub(count));
        let given = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, without);
        debug_assert!(given.is_ok(), "it is always done");
    }

    fn is_full(&self, now: Duration) -> bool {
        self.taken.load(Ordering::Relaxed) <= self.come_by(now)
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
