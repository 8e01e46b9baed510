//! Which lanes and accounts are watched, and the reports that are published for them.
//!
//! | topic | is published |
//! |---|---|
//! | `$audit/<lane>/receipt` | for each message, when all expected deliveries have an outcome |
//! | `$audit/<lane>/window` | for each 1,024 numbers |
//! | `$audit/<lane>/state` | once a second, while something changes |
//! | `$audit/<lane>/fault`, `$audit/<lane>/refused` | at once |
//! | `$audit/account/<client id>` | as it changes: see [`super::statement`] |
//! | `$audit/client/<client id>` | to a new subscription to exactly that: the client's lane |
//!
//! A lane is looked up in the index when it publishes and subscriptions have changed since the last
//! time, and only while there is any filter that begins with `$audit/`. So a lane that is not
//! watched costs one comparison a message, and one that is watched is followed from SUBACK on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_merkle_log::{EpochEnd, LaneId};
use unbroken_mqtt_proto::{Properties, QoS};

use super::Audit;
use super::json::Object;
use super::lane::{IngressLane, lane_of};
use super::statement::Statements;
use crate::ids::SessionId;
use crate::message::{Message, Publication};
use crate::settings::ShardOptions;

/// Whose lanes and accounts are watched, and what is to be published for them.
#[derive(Debug)]
pub(super) struct Watch {
    started_us: u64,
    start: Instant,
    /// Filters in the index that begin with `$audit/`.
    watching: u32,
    /// Sessions whose lane is followed; some may have ended since.
    followed: Vec<SessionId>,
    /// A time was asked for to look at them.
    ticking: bool,
    reports: Vec<Report>,
    /// Accounts that are watched.
    pub(super) statements: Statements,
    /// Those of the audit that clients publish to.
    pub(super) topics: Topics,
}

/// Topics of the audit, each up to the lane or the asker.
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

    /// Whether a topic is one of drop records, or is to a client with some mount.
    pub(crate) fn may_be_drops(&self, topic: &str) -> bool {
        let mut found = topic.match_indices(&self.drops);
        found.any(|(at, _)| at == 0 || topic.as_bytes()[at - 1] == b'/')
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

/// What is to be published.
#[derive(Debug)]
pub(crate) struct Report {
    topic: String,
    payload: Vec<u8>,
    qos: QoS,
}

/// What is wanted of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wants(u8);

impl Wants {
    /// What is published of a lane, and who wants it.
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("receipt", Self::RECEIPTS),
        ("window", Self::WINDOWS),
        ("state", Self::STATE),
    ];
    pub(crate) const RECEIPTS: Self = Self(1);
    pub(crate) const WINDOWS: Self = Self(2);
    pub(crate) const STATE: Self = Self(4);

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }
}

impl Report {
    pub(super) fn about(lane: &IngressLane, what: &str, text: String) -> Self {
        let topic = format!("{PREFIX}{}/{what}", lane.id);
        Self::kept(topic, text.into_bytes())
    }

    pub(super) fn account(client_id: &str, text: String) -> Self {
        let topic = format!("{PREFIX}account/{client_id}");
        Self::kept(topic, text.into_bytes())
    }

    /// One with nothing new does not wait: an offline session would find hundreds.
    pub(super) fn checkpoint(lane: LaneId, is_new: bool, watch: &Watch, payload: Vec<u8>) -> Self {
        let topic = format!("{}{lane}", watch.topics.checkpoints);
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

impl Report {
    /// As it is published.
    pub(crate) fn publication(&self, now: Instant) -> Publication<'_> {
        Publication {
            qos: self.qos,
            ..own_publication(now, &self.topic, &self.payload)
        }
    }
}

impl Watch {
    pub(super) fn new(options: &ShardOptions) -> Self {
        Self {
            started_us: options.settings.audit.started_us,
            start: options.start,
            watching: 0,
            followed: Vec::new(),
            ticking: false,
            reports: Vec::new(),
            statements: Statements::default(),
            topics: Topics::new(&options.settings.audit.prefix),
        }
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(super) fn report(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// A fault of what concerns this client, for those who watch its lane.
    pub(super) fn report_fault(&mut self, client_id: &str, text: Object) {
        let lane = lane_of(client_id);
        self.report_on_lane(lane, "fault", text.text("lane", &lane.to_string()));
    }

    /// What became known of a lane.
    pub(super) fn report_on_lane(&mut self, lane: LaneId, what: &str, text: Object) {
        if self.watching > 0 && self.reports.len() < FAULTS_MAX {
            let topic = format!("{PREFIX}{lane}/{what}");
            self.report(Report::kept(topic, text.end().into_bytes()));
        }
    }

    /// µs since 1970.
    pub(super) fn time_us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_micros();
        self.started_us + u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl IngressLane {
    /// Whether it was looked up what is wanted of this lane, since subscriptions have changed last.
    pub(crate) fn was_looked_up(&self, generation: u64) -> bool {
        self.looked_at == generation
    }

    /// What is wanted of this lane.
    pub(crate) fn set_wants(&mut self, generation: u64, wants: Wants) {
        self.looked_at = generation;
        self.wants = wants;
    }

    /// The topic of what is published of it.
    pub(crate) fn topic(&self, what: &str) -> String {
        format!("{PREFIX}{}/{what}", self.id)
    }
}

impl Audit {
    /// A filter has come into the index, or gone.
    pub(crate) fn note_filter(&mut self, filter: &str, came: bool) {
        if filter.starts_with(PREFIX) {
            let watching = &mut self.watch.watching;
            *watching = watching.saturating_add_signed(if came { 1 } else { -1 });
            self.note_account_filter(filter, came);
        }
    }

    /// Whether any filter begins with `$audit/`.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.watching > 0
    }

    /// The lane of this session is followed from now on.
    pub(super) fn follow(&mut self, session: SessionId) {
        self.watch.followed.push(session);
    }

    /// When lanes and accounts that are watched are to be looked at, if that was not asked for
    /// before.
    pub(crate) fn next_tick(&mut self, now: Instant) -> Option<Instant> {
        let watch = &mut self.watch;
        let has_work =
            !watch.followed.is_empty() || !watch.statements.is_empty() || self.over.goes_on();
        if watch.ticking || !has_work {
            return None;
        }
        watch.ticking = true;
        Some(now + TICK)
    }

    /// The time has come: takes the sessions whose lanes are followed, each once.
    pub(crate) fn take_followed(&mut self) -> Vec<SessionId> {
        self.watch.ticking = false;
        let mut followed = std::mem::take(&mut self.watch.followed);
        followed.sort_unstable();
        followed.dedup();
        followed
    }

    /// Reports how a followed lane is, if that has changed. Answers whether it is to be followed
    /// further.
    pub(crate) fn tick_followed(&mut self, now: Instant, lane: &mut IngressLane) -> bool {
        lane.report_state(&mut self.watch);
        lane.tick_beacon(now, EpochEnd::Open, &mut self.watch);
        if !lane.is_followed() && !lane.wants.any() {
            lane.tracking = None;
            return lane.beacon.is_some();
        }
        true
    }

    /// Takes back those that are to be followed further.
    pub(crate) fn keep_following(&mut self, followed: Vec<SessionId>) {
        self.watch.followed = followed;
    }

    /// Takes what is to be published.
    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.watch.reports)
    }
}

/// What a subscription to `$audit/client/<client id>` finds: the lane of that client.
pub(crate) fn lane_answer(now: Instant, filter: &str) -> Option<Arc<Message>> {
    let client_id = asked_client(filter)?;
    let text = Object::new()
        .text("client", client_id)
        .text("lane", &lane_of(client_id).to_string())
        .end();
    let publication = own_publication(now, filter, text.as_bytes());
    Some(Arc::new(Message::new(&publication, None)))
}

/// The client whose lane a subscription asks for: one, so no wildcards.
fn asked_client(filter: &str) -> Option<&str> {
    let client_id = filter.strip_prefix(PREFIX)?.strip_prefix("client/")?;
    (!client_id.contains(['+', '#'])).then_some(client_id)
}

fn own_publication<'a>(now: Instant, topic: &'a str, payload: &'a [u8]) -> Publication<'a> {
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
/// Faults published at once; all of them are logged and counted.
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
