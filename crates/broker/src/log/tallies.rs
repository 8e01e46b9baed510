//! How many records one client may cause, and what becomes of the rest.
//!
//! ```text
//! event ──▶ class (client, kind) ──▶ written, while the class has lines left in this second
//!                               └──▶ counted; one record gives the number when the second is over
//! ```
//!
//! Invariants:
//! - A class uses up its own lines only: no client keeps a record of another client, or of another
//!   kind, out of the log.
//! - Refused filters of one packet share a record for each reason.
//! - Faults of the broker itself are always written.
//! - What is not written is counted, and the count is written.
//!
//! Deliberately absent: records that a slow reader of the log keeps waiting (`logging/queue.rs`).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Level;
use unbroken_broker_core::{Disconnection, Event};
use unbroken_mqtt_proto::ReasonCode;

use super::{CLIENT, Escaped, level_of, subscription_refused};
use crate::bounds::{LOG_CLASSES, LOG_LINES_PER_CLASS};
use crate::logging::about;

/// The second that lines are counted in.
const PERIOD: Duration = Duration::from_secs(1);

/// The records of one shard.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    classes: HashMap<Class, Tally>,
    /// When the period of these began.
    began: Option<Instant>,
    /// Refused filters of the packet in hand, of one client.
    refused: Vec<Refused>,
}

/// Records that share their lines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Class {
    client: Option<Arc<str>>,
    /// Of a client that is not let in: it may claim the id of another one.
    address: Option<IpAddr>,
    kind: &'static str,
    level: Level,
}

#[derive(Debug, Default)]
struct Tally {
    written: u32,
    suppressed: u64,
}

#[derive(Debug)]
struct Refused {
    client: Arc<str>,
    /// The first of them.
    filter: Box<str>,
    reason: ReasonCode,
    sent: u8,
    count: u64,
}

impl Tallies {
    /// Writes a record, or counts it.
    #[cold]
    pub(crate) fn event(&mut self, now: Instant, event: &Event) {
        if let Event::Subscribed {
            client_id,
            filter,
            reason,
            sent,
        } = event
            && reason.is_error()
        {
            if self.refused.iter().any(|one| one.client != *client_id) {
                self.end_packet(now);
            }
            let same = self.refused.iter_mut().find(|one| one.reason == *reason);
            match same {
                Some(one) => one.count += 1,
                None => self.refused.push(Refused {
                    client: Arc::clone(client_id),
                    filter: filter.clone(),
                    reason: *reason,
                    sent: *sent,
                    count: 1,
                }),
            }
            return;
        }
        self.end_packet(now);
        if Class::of(event).is_none_or(|class| self.may_write(now, class)) {
            about(event.client_id(), || super::event(event));
        }
    }

    /// The events of one input have come: no more filters are of the same packet.
    pub(crate) fn end_packet(&mut self, now: Instant) {
        for one in std::mem::take(&mut self.refused) {
            let class = Class::new(&one.client, "subscription refused", Level::WARN);
            if self.may_write(now, class) {
                let Refused {
                    client,
                    filter,
                    reason,
                    sent,
                    count,
                } = &one;
                about(Some(client), || {
                    subscription_refused(client, filter, *reason, *sent, *count);
                });
            }
        }
    }

    /// A connection was closed because its peer broke the protocol of a transform, such as TLS.
    #[cold]
    pub(crate) fn refused_by_transport(
        &mut self,
        now: Instant,
        listener: &str,
        address: Option<SocketAddr>,
        why: &str,
    ) {
        let class = Class {
            client: None,
            address: address.map(|address| address.ip()),
            kind: "connection refused",
            level: Level::WARN,
        };
        if self.may_write(now, class) {
            tracing::warn!(
                target: CLIENT,
                listener,
                address = address.map(tracing::field::display),
                detail = %Escaped(why),
                "connection refused"
            );
        }
    }

    /// When [`report_due`](Self::report_due) has something to report.
    pub(crate) fn next_report(&self) -> Option<Instant> {
        self.began.map(|began| began + PERIOD)
    }

    /// Reports what was suppressed, if the period is over.
    pub(crate) fn report_due(&mut self, now: Instant) {
        if self.next_report().is_some_and(|due| due <= now) {
            self.report();
        }
    }

    fn may_write(&mut self, now: Instant, class: Class) -> bool {
        self.report_due(now);
        self.began.get_or_insert(now);
        if self.classes.len() >= LOG_CLASSES && !self.classes.contains_key(&class) {
            // The queue of the log is fair to it.
            return true;
        }
        let tally = self.classes.entry(class).or_default();
        if tally.written < LOG_LINES_PER_CLASS {
            tally.written += 1;
            return true;
        }
        tally.suppressed += 1;
        false
    }

    fn report(&mut self) {
        self.began = None;
        for (class, tally) in self.classes.drain() {
            if tally.suppressed > 0 {
                about(class.client.as_ref(), || class.report(tally.suppressed));
            }
        }
    }
}

impl Drop for Tallies {
    fn drop(&mut self) {
        self.report();
    }
}

impl Class {
    fn new(client: &Arc<str>, kind: &'static str, level: Level) -> Self {
        Self {
            client: Some(Arc::clone(client)),
            address: None,
            kind,
            level,
        }
    }

    /// None if it is always written.
    fn of(event: &Event) -> Option<Self> {
        let kind = match event {
            Event::Fault { .. } => return None,
            Event::Connected { .. } => "connected",
            Event::Refused { .. } => "refused",
            Event::Disconnected {
                why: Disconnection::ByBroker { .. },
                ..
            } => "disconnected by the broker",
            Event::Disconnected { .. } => "disconnected",
            Event::SessionEnded { .. } => "session ended",
            Event::Subscribed { .. } => "subscribed",
            Event::Unsubscribed { .. } => "unsubscribed",
            Event::Slowed { .. } => "slowed",
            Event::SubscriptionRevoked { .. } => "subscription ended",
            Event::WillPublished { .. } => "will published",
            Event::Dropped { .. } => "messages not delivered",
            Event::SentAgain { .. } => "sent again",
            _ => "audit",
        };
        let level = level_of(event);
        let address = match event {
            Event::Refused { address, .. } => address.map(|address| address.ip()),
            _ => None,
        };
        Some(Self {
            client: event.client_id().cloned(),
            address,
            kind,
            level,
        })
    }

    /// As loud as what it stands for.
    fn report(&self, count: u64) {
        macro_rules! write {
            ($level:ident) => {
                tracing::$level!(
                    target: CLIENT,
                    client = self.client.as_deref().map(|id| tracing::field::display(Escaped(id))),
                    address = self.address.map(tracing::field::display),
                    kind = self.kind,
                    count,
                    "log lines suppressed: one client caused more in a second than are written"
                )
            };
        }
        match self.level {
            Level::WARN => write!(warn),
            Level::INFO => write!(info),
            _ => write!(debug),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use unbroken_broker_core::{DropPlace, DropReason};

    use super::*;
    use crate::log::tests::log_of;

    fn refused(client: &str, filter: &str, reason: ReasonCode) -> Event {
        Event::Subscribed {
            client_id: Arc::from(client),
            filter: filter.into(),
            reason,
            sent: reason as u8,
        }
    }

    fn ended(client: &str) -> Event {
        Event::SessionEnded {
            client_id: Arc::from(client),
            undelivered: 0,
            uncounted_of: 0,
        }
    }

    fn not_let_in(client: &str, address: &str) -> Event {
        let address: SocketAddr = address.parse().unwrap();
        Event::Refused {
            client_id: Some(Arc::from(client)),
            user_name: None,
            address: Some(address),
            reason: ReasonCode::BadUserNameOrPassword,
            sent: None,
            detail: "".into(),
        }
    }

    fn count(log: &str, part: &str) -> usize {
        log.lines().filter(|line| line.contains(part)).count()
    }

    const MANY: u32 = 10 * LOG_LINES_PER_CLASS;

    #[test]
    fn refused_filters_of_a_packet_share_a_line_for_each_reason() {
        let log = log_of(|| {
            let (mut tallies, now) = (Tallies::default(), Instant::now());
            for number in 0..9_000 {
                let filter = format!("f/{number}");
                tallies.event(now, &refused("a", &filter, ReasonCode::QuotaExceeded));
                tallies.event(now, &refused("a", &filter, ReasonCode::NotAuthorized));
            }
            tallies.end_packet(now);
            tallies.event(now, &refused("a", "alone", ReasonCode::QuotaExceeded));
            tallies.event(now, &refused("b", "other", ReasonCode::QuotaExceeded));
            tallies.end_packet(now);
        });
        assert_eq!(count(&log, "subscription refused"), 4, "{log}");
        for line in [
            "client=a filter=f/0 reason=0x97 Quota exceeded count=9000",
            "client=a filter=f/0 reason=0x87 Not authorized count=9000",
            "client=a filter=alone reason=0x97 Quota exceeded\n",
            "client=b filter=other reason=0x97 Quota exceeded\n",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
    }

    #[test]
    fn one_client_uses_up_its_own_lines_and_the_rest_is_a_line() {
        let begin = Instant::now();
        let log = log_of(|| {
            let mut tallies = Tallies::default();
            for _ in 0..MANY {
                tallies.event(begin, &ended("loud"));
            }
            tallies.event(begin, &ended("quiet"));
            let dropped = Event::Dropped {
                client_id: Arc::from("loud"),
                topic: "t".into(),
                reason: DropReason::QueueFull,
                count: 1,
                full: None,
                place: DropPlace::Receiver,
                numbers: None,
            };
            tallies.event(begin, &dropped);
            assert_eq!(tallies.next_report(), Some(begin + PERIOD));
            tallies.report_due(begin + PERIOD / 2);
            tallies.report_due(begin + PERIOD);
            assert_eq!(tallies.next_report(), None);
            // The next second has lines of its own.
            tallies.event(begin + PERIOD, &ended("loud"));
        });
        let lines = LOG_LINES_PER_CLASS as usize;
        assert_eq!(count(&log, "client=loud undelivered=0"), lines + 1, "{log}");
        assert_eq!(count(&log, "client=quiet"), 1);
        assert_eq!(count(&log, "messages not delivered"), 1);
        let suppressed = MANY - LOG_LINES_PER_CLASS;
        let words = format!("client=loud kind=\"session ended\" count={suppressed}");
        assert_eq!(count(&log, &words), 1, "{log}");
        assert_eq!(count(&log, "suppressed"), 1, "{log}");
    }

    #[test]
    fn who_claims_the_id_of_another_does_not_use_up_its_lines() {
        let now = Instant::now();
        let log = log_of(|| {
            let mut tallies = Tallies::default();
            for _ in 0..MANY {
                tallies.event(now, &not_let_in("meter", "192.0.2.1:5"));
            }
            tallies.event(now, &not_let_in("meter", "192.0.2.2:5"));
            tallies.event(now, &ended("meter"));
        });
        assert_eq!(count(&log, "address=192.0.2.2:5"), 1, "{log}");
        assert_eq!(count(&log, "session ended"), 1);
        // What is left at the end is reported too.
        assert_eq!(
            count(&log, "address=192.0.2.1 kind=\"refused\""),
            1,
            "{log}"
        );
    }

    #[test]
    fn the_table_has_a_limit_and_a_client_without_a_place_is_written() {
        let now = Instant::now();
        let log = log_of(|| {
            let mut tallies = Tallies::default();
            for number in 0..=LOG_CLASSES {
                tallies.event(now, &ended(&format!("c{number}")));
            }
            assert_eq!(tallies.classes.len(), LOG_CLASSES);
        });
        assert_eq!(count(&log, &format!("client=c{LOG_CLASSES} ")), 1);
    }
}
