//! The state of delivery at one moment, from one snapshot of the counters.

use std::collections::BTreeMap;

use serde::Serialize;
use unbroken_broker::handle::{DropReason, Stats};
use utoipa::ToSchema;

use super::incidents::Counts;
use crate::time::Moment;

/// Whether all is well, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// Every expected delivery is accounted for, and none was lost.
    Green,
    /// Dropped by a configured policy, unproven, or waiting for long.
    Amber,
    /// A fault, or a message was dropped that should have arrived.
    Red,
    /// No message has come yet.
    Empty,
}

/// What became of all messages since `since`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Delivery {
    pub(crate) state: Health,
    /// All of it in a sentence.
    pub(crate) sentence: String,
    /// Why it is not green, the worst first.
    pub(crate) reasons: Vec<String>,
    /// What the broker cannot see.
    pub(crate) not_seen: Vec<&'static str>,
    /// The start of the counting.
    #[schema(value_type = String)]
    pub(crate) since: Moment,
    /// The run before ended by a crash.
    pub(crate) after_crash: bool,
    #[schema(value_type = String)]
    pub(crate) as_of: Moment,
    /// Messages accepted from clients.
    pub(crate) published: u64,
    /// Of those, the ones without a subscriber.
    pub(crate) unrouted: u64,
    /// Deliveries: one for each session that is to have a message.
    pub(crate) expected: u64,
    /// QoS 0: given to the kernel.
    pub(crate) handed_to_network: u64,
    /// QoS 1 and 2.
    pub(crate) sent: u64,
    pub(crate) acknowledged: u64,
    pub(crate) processed: u64,
    /// Handed to the network or acknowledged.
    pub(crate) delivered: u64,
    /// Accepted and not sent yet.
    pub(crate) waiting: u64,
    /// Messages that wait for sessions without a connection, on disk too, as of the last update of
    /// `$SYS`. Those that were not read from the disk are in no other figure.
    pub(crate) waiting_offline: u64,
    /// Sent and not acknowledged yet.
    pub(crate) in_flight: u64,
    /// Sent, and never to be acknowledged: whether they arrived is not known.
    pub(crate) given_up: u64,
    pub(crate) dropped: u64,
    /// By reason; those that are 0 are left out.
    pub(crate) dropped_by_reason: BTreeMap<&'static str, u64>,
    /// Faults inside the broker.
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) altered: u64,
    pub(crate) unbalanced: u64,
    /// Faults before the broker, of publishers that stamp their messages.
    pub(crate) publishers: Publishers,
    pub(crate) windows: Windows,
    pub(crate) incidents: Counts,
}

/// What was found in the lanes of publishers that stamp their messages.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Publishers {
    pub(crate) verified: u64,
    pub(crate) unaudited: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) altered: u64,
    pub(crate) injected: u64,
    pub(crate) forged: u64,
}

/// Windows of sessions and lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Windows {
    pub(crate) proven: u64,
    pub(crate) faulty: u64,
    pub(crate) unproven: u64,
}

/// What is known beside the counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    pub(crate) incidents: Counts,
    /// Why incidents may not be known, or not after a restart.
    pub(crate) blind: Vec<String>,
    /// For how long nothing has moved although something waits or is in flight.
    pub(crate) stuck_s: u64,
}

/// What the broker cannot see, whatever it counts.
const NOT_SEEN: [&str; 5] = [
    "QoS 0 counts as delivered once the kernel takes it: if the connection breaks after that, only \
     the receiver knows.",
    "Messages that a publisher does not stamp are counted from the broker on: what is lost before \
     it comes here is not seen.",
    "An acknowledgement says that the receiver has the message. Only one that reports `processed` \
     says what it did with it.",
    "Messages that wait on disk for a session without a connection are counted as expected when \
     they are read.",
    "Counters begin with each start of the broker; incidents of earlier runs are kept.",
];

impl Delivery {
    /// `since`, `after_crash`: of the broker's start.
    pub(crate) fn of(
        stats: &Stats,
        (since, after_crash): (Moment, bool),
        beside: &Beside,
        as_of: Moment,
    ) -> Self {
        let audit = &stats.audit;
        let aside = &audit.aside;
        let handed_to_network = audit.shown_handed_to_network();
        let sent = audit.shown_sent();
        let acknowledged = audit.acknowledged.saturating_sub(aside.acknowledged);
        let given_up = audit.given_up.saturating_sub(aside.given_up);
        let by_reason = DropReason::ALL.map(|reason| (reason.name(), stats.dropped_shown(reason)));
        let by_reason = by_reason.into_iter().filter(|(_, count)| *count > 0);
        let dropped_by_reason: BTreeMap<_, _> = by_reason.collect();
        let mut delivery = Self {
            state: Health::Empty,
            sentence: String::new(),
            reasons: Vec::new(),
            not_seen: NOT_SEEN.to_vec(),
            since,
            after_crash,
            as_of,
            published: audit.received.saturating_sub(aside.received),
            unrouted: stats.publishes_unrouted.saturating_sub(aside.unrouted),
            expected: audit.expected.saturating_sub(aside.expected),
            handed_to_network,
            sent,
            acknowledged,
            processed: audit.processed,
            delivered: handed_to_network + acknowledged,
            waiting: audit.shown_waiting(),
            waiting_offline: stats.sleeping.messages,
            in_flight: sent.saturating_sub(acknowledged + given_up),
            given_up,
            dropped: dropped_by_reason.values().sum(),
            dropped_by_reason,
            lost: audit.lost,
            duplicated: audit.duplicated,
            reordered: audit.reordered,
            altered: audit.altered,
            unbalanced: audit.unbalanced,
            publishers: Publishers::of(stats),
            windows: windows(stats),
            incidents: beside.incidents,
        };
        delivery.judge(stats, beside);
        delivery
    }

    fn judge(&mut self, stats: &Stats, beside: &Beside) {
        let (mut red, mut amber) = (Vec::new(), Vec::new());
        let faults = stats.audit.faults();
        if faults > 0 {
            red.push(format!("{} inside the broker", some(faults, "fault")));
        }
        let counts = beside.incidents;
        if counts.red > 0 {
            red.push(format!(
                "{} open: messages were lost, altered or dropped that should have arrived",
                some(counts.red, "incident")
            ));
        }
        if stats.store_failed > 0 {
            red.push("the store has failed: nothing is stored any more".to_owned());
        }
        if stats.disk_lacks_space > 0 {
            amber.push("the disk lacks the space that the store needs".to_owned());
        }
        if counts.amber > 0 {
            amber.push(format!(
                "{} open: messages were left out by a policy, or their fate is not known",
                some(counts.amber, "incident")
            ));
        }
        amber.extend(beside.blind.iter().cloned());
        if counts.evicted_open > 0 {
            amber.push(format!(
                "{} open and not kept: there were too many",
                some(counts.evicted_open, "incident")
            ));
        }
        if counts.missed > 0 {
            amber.push(format!(
                "{} had no room: some incidents may not be named",
                some(counts.missed, "event")
            ));
        }
        if self.given_up > 0 {
            amber.push(format!(
                "{} sent and never acknowledged: the session has ended",
                some(self.given_up, "delivery")
            ));
        }
        if beside.stuck_s >= STUCK_S && self.waiting + self.in_flight > 0 {
            amber.push(format!(
                "{} waited for {} s without any progress",
                some(self.waiting + self.in_flight, "delivery"),
                beside.stuck_s
            ));
        }
        self.state = match (red.is_empty(), amber.is_empty()) {
            (false, _) => Health::Red,
            (_, false) => Health::Amber,
            _ if self.published + self.expected == 0 => Health::Empty,
            _ => Health::Green,
        };
        red.append(&mut amber);
        self.reasons = red;
        self.sentence = self.words();
    }

    fn words(&self) -> String {
        let since = self.since.text();
        let since = since.split_once('.').map_or(&*since, |(since, _)| since);
        let since = since.replace('T', " ");
        let crash = if self.after_crash {
            " (started after a crash)"
        } else {
            ""
        };
        if self.published + self.expected == 0 {
            return format!("No message has come since {since} UTC{crash}");
        }
        let mut words = vec![
            format!("{} published", grouped(self.published)),
            format!(
                "{} of {} expected deliveries made ({} acknowledged, {} handed to the network)",
                grouped(self.delivered),
                grouped(self.expected),
                grouped(self.acknowledged),
                grouped(self.handed_to_network),
            ),
            format!("{} lost", grouped(self.lost)),
            format!("{} dropped", grouped(self.dropped)),
        ];
        for (count, text) in [
            (self.publishers.faults(), "faults before the broker"),
            (self.waiting + self.in_flight, "under way"),
            (
                self.waiting_offline,
                "waiting for sessions that are not connected",
            ),
            (self.incidents.repaired, "incidents repaired"),
        ] {
            if count > 0 {
                words.push(format!("{} {text}", grouped(count)));
            }
        }
        let words = words.join(", ");
        format!("{words}; since {since} UTC{crash}")
    }
}

impl Publishers {
    fn faults(&self) -> u64 {
        let all = [
            self.lost,
            self.duplicated,
            self.reordered,
            self.altered,
            self.injected,
        ];
        all.iter()
            .fold(self.forged, |sum, count| sum.saturating_add(*count))
    }

    fn of(stats: &Stats) -> Self {
        let of = &stats.audit.publishers;
        Self {
            verified: of.verified,
            unaudited: of.unaudited,
            lost: of.lost,
            duplicated: of.duplicated + of.repeated,
            reordered: of.reordered,
            altered: of.altered,
            injected: of.injected,
            forged: of.forged,
        }
    }
}

pub(crate) fn windows(stats: &Stats) -> Windows {
    let (audit, of) = (&stats.audit, &stats.audit.publishers);
    Windows {
        proven: audit.windows_proven + of.windows_proven,
        faulty: audit.windows_faulty + of.windows_faulty,
        unproven: audit.windows_unproven + of.windows_unproven,
    }
}

fn some(count: u64, what: &str) -> String {
    let ending = match (count, what) {
        (1, _) => return format!("1 {what}"),
        (_, "delivery") => "deliveries",
        _ => return format!("{} {what}s", grouped(count)),
    };
    format!("{} {ending}", grouped(count))
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Nothing has moved for so long: longer than a client takes to acknowledge.
const STUCK_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_known_is_amber() {
        let mut stats = Stats::default();
        stats.audit.received = 1;
        let of = |beside: &Beside| Delivery::of(&stats, (Moment(0), false), beside, Moment(1));
        assert_eq!(of(&Beside::default()).state, Health::Green);
        let blind = Beside {
            blind: vec!["incidents cannot be stored".to_owned()],
            ..Beside::default()
        };
        let delivery = of(&blind);
        assert_eq!(delivery.state, Health::Amber);
        assert_eq!(delivery.reasons, blind.blind);
        let evicted = Beside {
            incidents: Counts {
                evicted_open: 1,
                ..Counts::default()
            },
            ..Beside::default()
        };
        assert_eq!(of(&evicted).state, Health::Amber);
    }
}
