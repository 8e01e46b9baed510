//! How a shard is set up, and what the shards of one broker count together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::TopicFilter;

use crate::client_ids::ClientIdRules;
use crate::filter_size::FilterSize;
use crate::ids::ShardId;
use crate::limits::{Limits, RESERVE_MAX, SHARDS_MAX};
use crate::memory::Budget;
use crate::policy::MountPoint;
use crate::shares::{Full, Held, Table};

/// Everything a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Which shard this is: below `shards`.
    pub id: ShardId,
    /// How many there are: `1..=64`, the same for all.
    pub shards: u8,
    /// The limits of the broker, the same for all.
    pub limits: Limits,
    /// Choices that are not limits, the same for all.
    pub settings: Settings,
    /// What is counted over all shards: one value shared by them.
    pub totals: Arc<Totals>,
    /// Makes assigned client ids unguessable, and tables hard to fill with keys that meet; a test
    /// gives a fixed one.
    pub seed: u64,
    /// When the broker started; the uptime in `$SYS` counts from it.
    pub start: Instant,
}

impl ShardOptions {
    /// Whether shard number and count are possible.
    pub(crate) fn valid(&self) -> bool {
        (1..=SHARDS_MAX).contains(&usize::from(self.shards)) && self.id.0 < self.shards
    }
}

/// Choices that are not limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The longest keep alive, in seconds; a client that asks for more, or for none, is told this
    /// one. `None`: the client decides.
    pub keep_alive_max_s: Option<u16>,
    /// How often `$SYS` is published; `None`: never.
    pub sys_interval: Option<Duration>,
    /// Published as `$SYS/broker/version`.
    pub version: String,
    /// What outlives a connection is asked to be stored, and nothing that promises it leaves
    /// before [`crate::Input::Stored`]: see [`crate::Record`].
    pub durable: bool,
    /// Receivers on one shard up to which a message goes to all of them in one turn. With more, a
    /// turn brings it to a 64th of this number, and at least to one.
    pub at_once: u32,
    /// Bytes of messages that are appended to the log of a shard until it tells the disk how far
    /// sessions are, and what may be trimmed, without waiting for the half second after which it
    /// does so anyway. For each session of which there is something to tell, 8 KiB more are.
    pub hasten_bytes: u64,
    /// What is audited.
    pub audit: AuditSettings,
    /// What listeners ask of client ids, by the number of the listener.
    pub client_ids: Arc<[ClientIdRules]>,
    /// In which part of the topic tree the clients of a listener live, by its number, unless a role
    /// names another one.
    pub mount_points: Arc<[Option<MountPoint>]>,
}

/// What is audited, and from when.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditSettings {
    /// Whether messages are numbered where they come in. What sessions are owed is counted either
    /// way.
    pub enabled: bool,
    /// When the broker started, in µs since 1970: begins the epochs of its lanes, and makes times
    /// of what is told about them.
    pub started_us: u64,
    /// Whether the broker that ran before did not end in good order.
    pub after_crash: bool,
    /// The first one that fits decides; what fits none is stamped, and verified where its
    /// publisher stamps itself.
    pub rules: Vec<AuditRule>,
    /// What the topics of the audit begin with that clients publish to: checkpoints and answers.
    /// One or more levels, without wildcards.
    pub prefix: String,
}

/// A rule for what some clients publish to some topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRule {
    /// A client id; `*` stands for any characters.
    pub client: String,
    /// A topic filter.
    pub topic: String,
    /// What is done.
    pub action: AuditAction,
    /// 5.0 receivers get the property that the message bears inside the broker, as user property
    /// `audit`, unless its publisher gave it one.
    pub forward_stamp: bool,
}

/// What is done with an accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// It is numbered and hashed; what its publisher says about it is passed on unread.
    Stamp,
    /// The same, and if its publisher has stamped it, that is verified. Without a rule it is this.
    Verify,
    /// Neither.
    Off,
}

impl AuditRule {
    /// Everything is verified that can be: what holds without rules.
    pub fn any() -> Self {
        Self {
            client: "*".to_owned(),
            topic: "#".to_owned(),
            action: AuditAction::Verify,
            forward_stamp: false,
        }
    }

    /// Whether the topic filter is one.
    pub fn has_valid_topic(&self) -> bool {
        TopicFilter::parse(&self.topic).is_ok()
    }
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            started_us: 0,
            after_crash: false,
            rules: Vec::new(),
            prefix: "audit".to_owned(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keep_alive_max_s: None,
            sys_interval: Some(Duration::from_secs(10)),
            version: format!("unbroken version {}", env!("CARGO_PKG_VERSION")),
            durable: false,
            at_once: 4_096,
            hasten_bytes: 1024 * 1024,
            audit: AuditSettings::default(),
            client_ids: Arc::default(),
            mount_points: Arc::default(),
        }
    }
}

/// Connections that the system has room for, whatever the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Those that have a place.
    pub places: u32,
    /// Those beside them whose CONNECT is read, and which are refused with a reason if it does not
    /// give them the place of another one.
    pub reserve: u32,
}

impl Default for Room {
    /// As much as anybody may ask for.
    fn default() -> Self {
        Self {
            places: u32::MAX - RESERVE_MAX,
            reserve: RESERVE_MAX,
        }
    }
}

/// Counts that a limit holds for all shards together. They are numbers, not state: no shard learns
/// from them what another holds.
#[derive(Debug, Default)]
pub struct Totals {
    room: Room,
    connections: Total,
    /// By the number of the listener; one that is not here has no limit of its own.
    listeners: Box<[ListenerTotal]>,
    pub(crate) sessions: Total,
    pub(crate) subscriptions: Total,
    filter_levels: Total,
    deep_levels: Total,
    pub(crate) retained_messages: Total,
    pub(crate) retained_bytes: Total,
    /// Memory of clients that are not admitted.
    pub(crate) unadmitted: Arc<Budget>,
    /// Memory of all others, and of messages that wait.
    pub(crate) memory: Arc<Budget>,
}

/// Connections of one listener.
#[derive(Debug)]
struct ListenerTotal {
    taken: Total,
    limit: AtomicU64,
}

/// Why there is no place for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPlace {
    /// `limits.connections_max`.
    Broker,
    /// The share that an address has of it.
    Address,
    /// The open files that the system allows, which are fewer.
    OpenFiles,
    /// `listeners.max_connections`.
    Listener,
}

impl Totals {
    /// For so many connections, and with listeners that have these limits of them.
    pub fn new(room: Room, limits: &[Option<u32>]) -> Self {
        let listener = |_: &Option<u32>| ListenerTotal {
            taken: Total::default(),
            limit: AtomicU64::new(u64::MAX),
        };
        let totals = Self {
            room,
            listeners: limits.iter().map(listener).collect(),
            ..Self::default()
        };
        totals.set_listener_limits(limits);
        totals
    }

    /// Connections above a lowered limit stay.
    pub fn set_listener_limits(&self, limits: &[Option<u32>]) {
        for (listener, limit) in self.listeners.iter().zip(limits) {
            let limit = limit.map_or(u64::MAX, u64::from);
            listener.limit.store(limit, Ordering::Relaxed);
        }
    }

    /// Takes a place for a connection whose address has so many.
    pub(crate) fn enter(
        &self,
        listener: u16,
        connections_max: u32,
        held: Held,
    ) -> Result<(), NoPlace> {
        if !self.enter_listener(listener) {
            return Err(NoPlace::Listener);
        }
        let max = connections_max.min(self.room.places);
        let judge = |table: Table| table.judge(1, held);
        self.connections.take(1, max.into(), judge).map_err(|full| {
            self.leave_listener(listener);
            match full {
                Full::Client | Full::Address => NoPlace::Address,
                Full::Table if max < connections_max => NoPlace::OpenFiles,
                Full::Table => NoPlace::Broker,
            }
        })
    }

    /// Connections of one of so many shards that have no place and have sent no CONNECT: so many
    /// may wait. They come to the shards in turn. The rest of the reserve is for those that have
    /// sent one.
    pub(crate) fn silent_max(&self, shards: u8) -> usize {
        (self.room.reserve / 2 / u32::from(shards)).max(1) as usize
    }

    /// Connections that have a place, of all shards.
    pub(crate) fn open_connections(&self) -> u64 {
        self.connections.get()
    }

    /// Bytes that clients make the broker hold: those that are not admitted, and all others.
    pub(crate) fn memory_in_use(&self) -> [u64; 2] {
        [self.unadmitted.used(), self.memory.used()]
    }

    pub(crate) fn leave(&self, listener: u16) {
        self.connections.subtract(1);
        self.leave_listener(listener);
    }

    /// Gives the place of a connection to another one, unless the listener of that is full.
    pub(crate) fn hand_on_place(&self, from: u16, to: u16) -> bool {
        if from == to {
            return true;
        }
        let has_room = self.enter_listener(to);
        if has_room {
            self.leave_listener(from);
        }
        has_room
    }

    /// Takes room for a filter of this size, whose subscription is counted already.
    pub(crate) fn try_filter(&self, size: FilterSize, limits: &Limits) -> bool {
        let levels_max = limits.filter_levels_max.into();
        if !self.filter_levels.try_add(size.levels.into(), levels_max) {
            return false;
        }
        let has_room = self
            .deep_levels
            .try_add(size.deep.into(), limits.deep_levels_max.into());
        if !has_room {
            self.filter_levels.subtract(size.levels.into());
        }
        has_room
    }

    /// One that was there before the broker started: whatever the limits are.
    pub(crate) fn restore_subscription(&self, size: FilterSize) {
        self.subscriptions.add(1);
        self.filter_levels.add(size.levels.into());
        self.deep_levels.add(size.deep.into());
    }

    /// A subscription has ended.
    pub(crate) fn unsubscribe(&self, size: FilterSize) {
        self.subscriptions.subtract(1);
        self.filter_levels.subtract(size.levels.into());
        self.deep_levels.subtract(size.deep.into());
    }

    fn enter_listener(&self, listener: u16) -> bool {
        self.listeners.get(usize::from(listener)).is_none_or(|it| {
            let limit = it.limit.load(Ordering::Relaxed);
            it.taken.try_add(1, limit)
        })
    }

    fn leave_listener(&self, listener: u16) {
        if let Some(listener) = self.listeners.get(usize::from(listener)) {
            listener.taken.subtract(1);
        }
    }
}

/// One count.
#[derive(Debug, Default)]
pub(crate) struct Total(AtomicU64);

impl Total {
    /// Adds, unless that would pass the limit.
    pub(crate) fn try_add(&self, amount: u64, limit: u64) -> bool {
        self.try_replace(0, amount, limit)
    }

    /// Adds an amount if it is judged to be in order, in one atomic step.
    pub(crate) fn take(
        &self,
        more: u64,
        limit: u64,
        judge: impl Fn(Table) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let mut taken = self.0.load(Ordering::Relaxed);
        loop {
            judge(Table { limit, taken })?;
            let next = taken.saturating_add(more);
            match self
                .0
                .compare_exchange_weak(taken, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => taken = now,
            }
        }
    }

    /// Replaces an amount that was added, whatever the limit is.
    pub(crate) fn replace(&self, old: u64, new: u64) {
        self.try_replace(old, new, u64::MAX);
    }

    /// Replaces an amount that was added, unless it is the larger one and the sum would pass the
    /// limit. Nobody gets in between: who has a place can always have it for something no larger.
    fn try_replace(&self, old: u64, new: u64, limit: u64) -> bool {
        let replaced = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
                let next = sum.saturating_sub(old).saturating_add(new);
                (new <= old || next <= limit).then_some(next)
            });
        replaced.is_ok()
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds, whatever the limit is: of what was there before.
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        let before = self.0.fetch_sub(amount, Ordering::Relaxed);
        debug_assert!(
            before >= amount,
            "more was taken off a total than was added"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_total_does_not_pass_its_limit() {
        let total = Total::default();
        assert!(total.try_add(3, 5));
        assert!(!total.try_add(3, 5));
        assert!(total.try_replace(3, 5, 5));
        assert!(!total.try_replace(5, 6, 5));
        assert!(total.try_replace(5, 5, 2), "it is no more than before");
        assert!(total.try_replace(5, 1, 2));
        assert!(total.try_add(1, 2));
    }

    #[test]
    fn who_has_a_place_at_the_limit_does_not_lose_it_to_others() {
        let (total, done) = (Total::default(), AtomicBool::new(false));
        assert!(total.try_add(1, 1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!total.try_add(1, 1), "the place was taken");
                }
            });
            let kept = (0..2_000_000).all(|_| total.try_replace(1, 1, 1));
            done.store(true, Ordering::Relaxed);
            assert!(kept);
        });
    }
}
