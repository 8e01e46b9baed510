//! Verdicts as messages: who watches which lane, and what is told to them.
//!
//! | topic | is told |
//! |---|---|
//! | `$audit/<lane>/receipt` | of each message, when all who were owed it had it or were named |
//! | `$audit/<lane>/window` | for each 1,024 numbers |
//! | `$audit/<lane>/state` | once a second, while something changes |
//! | `$audit/<lane>/fault`, `$audit/<lane>/refused` | at once |
//! | `$audit/account/<client id>` | as it changes: see [`super::statement`] |
//! | `$audit/client/<client id>` | to whoever subscribes to exactly that: the client's lane |
//!
//! A lane is looked up in the index when it publishes and subscriptions have changed since the last
//! time, and only while there is any filter that begins with `$audit/`. So what is not watched
//! costs one comparison a message, and what is subscribed to is followed from SUBACK on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::{EpochEnd, LaneId};
use unbroken_mqtt_proto::{Properties, QoS};

use super::json::Object;
use super::lane::{IngressLane, lane_of};
use super::statement::Statements;
use crate::ids::{SessionId, ShardId};
use crate::item::Item;
use crate::message::{Message, Publication};
use crate::routing::Router;
use crate::settings::ShardOptions;
use crate::shard::Shard;
use crate::timers::Timer;

/// Which shard this is, what time it is, and what is to be told.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) shard: ShardId,
    pub(crate) shards: u8,
    started_us: u64,
    start: Instant,
    /// The time of the present input.
    pub(crate) now: Instant,
    /// Filters in the index that begin with `$audit/`.
    pub(crate) watching: u32,
    /// Sessions whose lane is followed; some may have ended since.
    followed: Vec<SessionId>,
    /// [`Timer::Audit`] is set.
    ticking: bool,
    told: Vec<Told>,
    /// Accounts that are watched.
    pub(crate) statements: Statements,
    /// Those of the audit that clients publish to.
    pub(crate) topics: Topics,
}

/// Topics of the audit, each up to the lane or whoever asked.
#[derive(Debug)]
pub(crate) struct Topics {
    pub(crate) checkpoints: String,
    pub(crate) directories: String,
    pub(crate) answers: String,
    pub(crate) drops: String,
    /// All that the audit has under its prefix.
    own: [String; 5],
}

impl Topics {
    pub(super) fn new(prefix: &str) -> Self {
        let own = ["checkpoint", "directory", "repair", "answer", "drop"];
        Self {
            checkpoints: format!("{prefix}/checkpoint/"),
            directories: format!("{prefix}/directory/"),
            answers: format!("{prefix}/answer/"),
            drops: format!("{prefix}/drop/"),
            own: own.map(|name| format!("{prefix}/{name}")),
        }
    }

    /// Whether this is a topic of the audit or of `$SYS`: its messages are accounted for like all
    /// others, and left out of every sum that is shown.
    #[inline]
    pub(crate) fn is_aside(&self, topic: &str) -> bool {
        let first = topic.as_bytes().first();
        let may_be = first == Some(&b'$') || first == self.checkpoints.as_bytes().first();
        may_be && self.is_aside_by_name(topic)
    }

    #[cold]
    fn is_aside_by_name(&self, topic: &str) -> bool {
        let is_own = |own: &String| {
            let rest = topic.strip_prefix(&**own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        topic.starts_with("$SYS/") || topic.starts_with(PREFIX) || self.own.iter().any(is_own)
    }
}

/// A verdict on its way.
#[derive(Debug)]
pub(crate) struct Told {
    topic: String,
    payload: Vec<u8>,
    qos: QoS,
}

/// What is wanted of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wants(u8);

impl Wants {
    pub(crate) const RECEIPTS: Self = Self(1);
    pub(crate) const WINDOWS: Self = Self(2);
    pub(crate) const STATE: Self = Self(4);

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }
}

impl Told {
    pub(crate) fn about(lane: &IngressLane, what: &str, text: String) -> Self {
        let topic = format!("{PREFIX}{}/{what}", lane.id);
        Self::kept(topic, text.into_bytes())
    }

    pub(crate) fn account(client_id: &str, text: String) -> Self {
        let topic = format!("{PREFIX}account/{client_id}");
        Self::kept(topic, text.into_bytes())
    }

    /// One that says nothing new waits for nobody: who is away would find hundreds.
    pub(crate) fn checkpoint(lane: LaneId, is_new: bool, home: &Home, payload: Vec<u8>) -> Self {
        let topic = format!("{}{lane}", home.topics.checkpoints);
        let qos = if is_new {
            QoS::AtLeastOnce
        } else {
            QoS::AtMostOnce
        };
        Self {
            qos,
            ..Self::kept(topic, payload)
        }
    }

    fn kept(topic: String, payload: Vec<u8>) -> Self {
        Self {
            topic,
            payload,
            qos: QoS::AtLeastOnce,
        }
    }
}

impl Home {
    pub(crate) fn new(options: &ShardOptions) -> Self {
        Self {
            shard: options.id,
            shards: options.shards,
            started_us: options.settings.audit.started_us,
            start: options.start,
            now: options.start,
            watching: 0,
            followed: Vec::new(),
            ticking: false,
            told: Vec::new(),
            statements: Statements::default(),
            topics: Topics::new(&options.settings.audit.prefix),
        }
    }

    /// Whether there is something to tell.
    pub(crate) fn has_untold(&self) -> bool {
        !self.told.is_empty()
    }

    pub(crate) fn tell(&mut self, told: Told) {
        self.told.push(told);
    }

    /// A fault of what concerns this client, for whoever watches its lane.
    pub(crate) fn tell_fault(&mut self, client_id: &str, text: Object) {
        let lane = lane_of(client_id);
        self.tell_if_watched(lane, "fault", text.text("lane", &lane.to_string()));
    }

    /// What became known of a publisher's own lane.
    pub(crate) fn tell_if_watched(&mut self, lane: LaneId, what: &str, text: Object) {
        if self.watching > 0 && self.told.len() < FAULTS_MAX {
            let topic = format!("{PREFIX}{lane}/{what}");
            self.tell(Told::kept(topic, text.end().into_bytes()));
        }
    }

    /// µs since 1970.
    pub(crate) fn time_us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_micros();
        self.started_us + u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl IngressLane {
    /// Looks what is wanted of this lane, if subscriptions have changed since the last time.
    pub(crate) fn look(&mut self, router: &mut Router) {
        if self.looked_at == router.generation() {
            return;
        }
        self.looked_at = router.generation();
        let mut wants = 0;
        for (what, bit) in [
            ("receipt", Wants::RECEIPTS),
            ("window", Wants::WINDOWS),
            ("state", Wants::STATE),
        ] {
            let topic = format!("{PREFIX}{}/{what}", self.id);
            wants |= if router.has_route(&topic) { bit.0 } else { 0 };
        }
        self.wants = Wants(wants);
    }
}

impl Shard {
    /// A filter has come into the index, or gone.
    pub(crate) fn note_filter(&mut self, filter: &str, came: bool) {
        if filter.starts_with(PREFIX) {
            let watching = &mut self.clients.home.watching;
            *watching = watching.saturating_add_signed(if came { 1 } else { -1 });
            self.note_account_filter(filter, came);
        }
    }

    /// The lane of this session is followed from now on.
    pub(crate) fn follow(&mut self, now: Instant, session: SessionId) {
        self.clients.home.followed.push(session);
        self.start_ticking_audit(now);
    }

    pub(super) fn start_ticking_audit(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.clients.home.ticking, true) {
            self.timers.set(now + TICK, Timer::Audit);
        }
    }

    /// Tells the states that have changed, and forgets what is not followed any more.
    pub(crate) fn tick_audit(&mut self, now: Instant) {
        let clients = &mut self.clients;
        clients.home.ticking = false;
        let mut followed = std::mem::take(&mut clients.home.followed);
        followed.sort_unstable();
        followed.dedup();
        followed.retain(|id| {
            let session = clients.sessions.get_mut(id.index());
            let Some(lane) = session.and_then(|session| session.lane.as_deref_mut()) else {
                return false;
            };
            lane.look(&mut self.router);
            lane.tell_state(&mut clients.home);
            lane.tick_beacon(EpochEnd::Open, &mut clients.home);
            if !lane.is_followed() && !lane.wants.any() {
                lane.tracking = None;
                return lane.beacon.is_some();
            }
            true
        });
        clients.home.followed = followed;
        self.tell_over();
        self.tell_accounts();
        let home = &self.clients.home;
        if !home.followed.is_empty() || !home.statements.is_empty() || self.over.goes_on() {
            self.start_ticking_audit(now);
        }
    }

    /// Publishes what is to be told.
    pub(crate) fn tell_audit(&mut self, now: Instant) {
        // Whoever is told something gets what is on its way there, of which there is more to tell.
        while !self.clients.home.told.is_empty() {
            let told = std::mem::take(&mut self.clients.home.told);
            if self.clients.stopping {
                return; // nobody would hear it
            }
            for Told {
                topic,
                payload,
                qos,
            } in told
            {
                let verdict = Publication {
                    qos,
                    ..verdict(now, &topic, &payload)
                };
                let mut item = Item::borrowed(verdict, None);
                self.route(now, &mut item, None);
                item.finish(&mut self.clients.pool);
            }
        }
    }

    /// What a subscription to `$audit/client/<client id>` finds: the lane of that client.
    pub(crate) fn lane_answer(&self, filter: &str) -> Option<Arc<Message>> {
        let client_id = asked_client(filter)?;
        let text = Object::new()
            .text("client", client_id)
            .text("lane", &lane_of(client_id).to_string())
            .end();
        let publication = verdict(self.clients.home.now, filter, text.as_bytes());
        Some(Arc::new(Message::new(&publication, None)))
    }
}

/// The client whose lane a subscription asks for: one, so no wildcards.
fn asked_client(filter: &str) -> Option<&str> {
    let client_id = filter.strip_prefix(PREFIX)?.strip_prefix("client/")?;
    (!client_id.contains(['+', '#'])).then_some(client_id)
}

fn verdict<'a>(now: Instant, topic: &'a str, payload: &'a [u8]) -> Publication<'a> {
    Publication {
        topic,
        properties: Properties::EMPTY,
        payload,
        qos: QoS::AtLeastOnce,
        retain: false,
        expires: None,
        stamp: now,
        mark: None,
    }
}

pub(super) const PREFIX: &str = "$audit/";
/// Between two looks at the lanes that are followed.
const TICK: Duration = Duration::from_secs(1);
/// Faults told at once; all of them are logged and counted.
const FAULTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audits_own_topics_are_known_by_their_first_levels() {
        let topics = Topics::new("proof/of");
        for topic in [
            "$SYS/audit/verdict",
            "$audit/7/receipt",
            "proof/of/checkpoint/7",
            "proof/of/directory",
            "proof/of/repair/7",
            "proof/of/answer/7/t",
            "proof/of/drop/phone",
        ] {
            assert!(topics.is_aside(topic), "{topic}");
        }
        for topic in [
            "$other",
            "proof",
            "proof/of",
            "proof/of/drops",
            "audit/drop/phone",
            "t",
        ] {
            assert!(!topics.is_aside(topic), "{topic}");
        }
    }

    #[test]
    fn a_lane_is_asked_for_by_one_whole_client_id() {
        assert_eq!(asked_client("$audit/client/a/b"), Some("a/b"));
        for filter in ["$audit/client/+", "$audit/client/#", "$audit/7/receipt"] {
            assert_eq!(asked_client(filter), None, "{filter}");
        }
    }
}
