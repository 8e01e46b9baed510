//! Turns events about clients into log records.
//!
//! Invariants:
//! - Every record about a client has the field `client`, so that records can be filtered by client.
//! - Text chosen by a client is written with [`Escaped`], so that it can neither break nor forge a
//!   line.
//! - A payload is never logged.
//! - One client causes a bounded number of records ([`Tallies`]).
//! - A reason code is logged only where it was sent or received: a client of 3.x gets a return
//!   code, or its connection is only closed.

mod tallies;

use std::fmt::{self, Display};

use tracing::Level;
use unbroken_broker_core::{CloseCause, Disconnection, DropReason, Event, FaultPlace};
use unbroken_mqtt_proto::ReasonCode;

use crate::bounds::LOG_NAME_CHARACTERS;

/// The target of records about clients, for filters such as `unbroken::client=debug`.
const CLIENT: &str = "unbroken::client";

pub(crate) use self::tallies::Tallies;

/// Writes a record about a client at a level that is known only now.
macro_rules! record_at {
    ($level:expr, $($record:tt)+) => {
        match $level {
            Level::ERROR => tracing::error!(target: CLIENT, $($record)+),
            Level::WARN => tracing::warn!(target: CLIENT, $($record)+),
            Level::INFO => tracing::info!(target: CLIENT, $($record)+),
            _ => tracing::debug!(target: CLIENT, $($record)+),
        }
    };
}

/// WARN: someone should look. INFO: a step in the life of a client. DEBUG: what a client does all
/// the time, or many do at once.
fn level_of(event: &Event) -> Level {
    match event {
        Event::Fault { .. } => Level::ERROR,
        Event::Connected { .. }
        | Event::SessionEnded { .. }
        | Event::SubscriptionRevoked { .. }
        | Event::WillPublished { .. }
        | Event::SentAgain { .. }
        // What its publisher or its receiver has chosen.
        | Event::Dropped {
            reason:
                DropReason::NotConnected
                | DropReason::Expired
                | DropReason::SessionEnded
                | DropReason::ConnectionLost
                | DropReason::RefusedByReceiver,
            ..
        } => Level::INFO,
        Event::Subscribed { reason, .. } if reason.is_error() => Level::WARN,
        Event::Subscribed { .. } | Event::Unsubscribed { .. } | Event::Slowed { .. } => {
            Level::DEBUG
        }
        Event::Disconnected { why, .. } => level_of_end(why),
        _ => Level::WARN,
    }
}

fn level_of_end(why: &Disconnection) -> Level {
    match why {
        _ if why.is_expiry() => Level::INFO,
        Disconnection::ByBroker { reason, .. } => match reason {
            // Of all clients at once: there is a record for each listener.
            ReasonCode::ServerShuttingDown => Level::DEBUG,
            ReasonCode::SessionTakenOver
            | ReasonCode::KeepAliveTimeout
            | ReasonCode::AdministrativeAction => Level::INFO,
            _ => Level::WARN,
        },
        _ => Level::INFO,
    }
}

/// Writes one record.
#[cold]
fn event(event: &Event) {
    match event {
        Event::Connected { .. }
        | Event::Refused { .. }
        | Event::Disconnected { .. }
        | Event::Slowed { .. }
        | Event::SessionEnded { .. } => connection_event(event),
        Event::Subscribed { .. }
        | Event::Unsubscribed { .. }
        | Event::SubscriptionRevoked { .. }
        | Event::WillPublished { .. }
        | Event::Dropped { .. } => message_event(event),
        Event::Fault { .. }
        | Event::PublisherFault { .. }
        | Event::SentAgain { .. }
        | Event::LaneIntruded { .. }
        | Event::LaneOwner { .. }
        | Event::LaneRefused { .. } => audit_event(event),
        other => tracing::warn!(target: CLIENT, event = ?other, "an event without a log message"),
    }
}

/// Connections and sessions.
fn connection_event(event: &Event) {
    match event {
        Event::Connected {
            client_id,
            user,
            address,
            version,
            session_present,
            keep_alive_s,
        } => {
            tracing::info!(
                target: CLIENT,
                client = %Escaped(client_id),
                user = user.as_deref().map(|user| tracing::field::display(Escaped(user))),
                address = address.map(tracing::field::display),
                version = %version,
                session_present,
                keep_alive_s,
                "connected"
            );
        }
        Event::Refused {
            client_id,
            user_name,
            address,
            reason,
            sent,
            detail,
        } => tracing::warn!(
            target: CLIENT,
            client = client_id.as_deref().map(|id| tracing::field::display(Escaped(id))),
            user = user_name.as_deref().map(|user| tracing::field::display(Escaped(user))),
            address = address.map(tracing::field::display),
            reason = reason_field(*reason, *sent),
            return_code = return_code(*reason, *sent),
            detail = detail_field(*reason, *sent, detail),
            "refused"
        ),
        Event::Disconnected { client_id, why } => disconnected(client_id, why, level_of(event)),
        Event::Slowed { client_id, rate } => tracing::debug!(
            target: CLIENT,
            client = %Escaped(client_id),
            detail = %Escaped(rate),
            "slowed: it is over its rate"
        ),
        Event::SessionEnded {
            client_id,
            undelivered,
            uncounted_of,
        } => {
            tracing::info!(
                target: CLIENT,
                client = %Escaped(client_id),
                undelivered,
                "session ended"
            );
            if *uncounted_of > 0 {
                tracing::warn!(
                    target: CLIENT,
                    client = %Escaped(client_id),
                    among = uncounted_of,
                    "the session ended before its messages from before the restart were counted: \
                     those among the stored ones that were for it are not delivered"
                );
            }
        }
        _ => {}
    }
}

/// Subscriptions and messages.
fn message_event(event: &Event) {
    match event {
        Event::Subscribed {
            client_id,
            filter,
            reason,
            sent,
        } => {
            if reason.is_error() {
                subscription_refused(client_id, filter, *reason, *sent, 1);
            } else {
                tracing::debug!(
                    target: CLIENT,
                    client = %Escaped(client_id),
                    filter = %Escaped(filter),
                    qos = *reason as u8,
                    "subscribed"
                );
            }
        }
        Event::Unsubscribed { client_id, filter } => tracing::debug!(
            target: CLIENT,
            client = %Escaped(client_id),
            filter = %Escaped(filter),
            "unsubscribed"
        ),
        Event::SubscriptionRevoked {
            client_id,
            filter,
            why,
        } => tracing::info!(
            target: CLIENT,
            client = %Escaped(client_id),
            filter = %Escaped(filter),
            reason = why.name(),
            "subscription ended: it is not allowed any more"
        ),
        Event::WillPublished { client_id, topic } => tracing::info!(
            target: CLIENT,
            client = %Escaped(client_id),
            topic = %Escaped(topic),
            "will published"
        ),
        Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            full,
            ..
        } => record_at!(
            level_of(event),
            client = %Escaped(client_id),
            topic = (!topic.is_empty()).then(|| tracing::field::display(Escaped(topic))),
            reason = reason.name(),
            full = full.as_deref().map(|full| tracing::field::display(Escaped(full))),
            count,
            "messages not delivered"
        ),
        _ => {}
    }
}

/// So many filters of one packet, the first of which is named.
fn subscription_refused(client_id: &str, filter: &str, reason: ReasonCode, sent: u8, count: u64) {
    tracing::warn!(
        target: CLIENT,
        client = %Escaped(client_id),
        filter = %Escaped(filter),
        reason = reason_field(reason, Some(sent)),
        return_code = return_code(reason, Some(sent)),
        detail = detail_field(reason, Some(sent), reason.name()),
        count = (count > 1).then_some(count),
        "subscription refused"
    );
}

/// Results of the audit.
fn audit_event(event: &Event) {
    match event {
        Event::Fault {
            place,
            kind,
            first,
            count,
        } => fault(place, kind.name(), *first, *count),
        Event::PublisherFault {
            client_id,
            lane,
            kind,
            first,
            count,
            ..
        } => tracing::warn!(
            target: CLIENT,
            client = %Escaped(client_id),
            lane = format_args!("{lane:016x}"),
            kind = kind.name(),
            first,
            count,
            "a received message differs from its client's stamp"
        ),
        Event::SentAgain {
            client_id,
            lane,
            number,
            ..
        } => tracing::info!(
            target: CLIENT,
            client = %Escaped(client_id),
            lane = format_args!("{lane:016x}"),
            number,
            "the client has sent a message again that a receiver asked for"
        ),
        Event::LaneIntruded { .. } => lane_intruded(event),
        Event::LaneOwner {
            client_id,
            lane,
            before,
        } => tracing::warn!(
            target: CLIENT,
            client = %Escaped(client_id),
            lane = format_args!("{lane:016x}"),
            before = %Escaped(before),
            "the client has opened a lane that belonged to another client"
        ),
        Event::LaneRefused {
            client_id,
            lane,
            why,
            count,
        } => tracing::warn!(
            target: CLIENT,
            client = %Escaped(client_id),
            lane = format_args!("{lane:016x}"),
            reason = why.name(),
            count,
            "messages not verified: the client may open no more lanes"
        ),
        _ => {}
    }
}

fn lane_intruded(event: &Event) {
    let Event::LaneIntruded {
        client_id,
        user,
        lane,
        owner,
        sent,
        number,
        count,
    } = event
    else {
        return;
    };
    tracing::warn!(
        target: CLIENT,
        client = %Escaped(client_id),
        user = user.as_deref().map(|user| tracing::field::display(Escaped(user))),
        lane = format_args!("{lane:016x}"),
        owner = %Escaped(owner),
        sent = sent.name(),
        number,
        count,
        "the client publishes in a lane that another client stamps"
    );
}

fn fault(place: &FaultPlace, kind: &str, first: u64, count: u64) {
    match place {
        FaultPlace::Session(client_id) => tracing::error!(
            target: CLIENT,
            client = %Escaped(client_id),
            kind,
            first,
            count,
            "the audit found a fault in the broker, among the messages for this client"
        ),
        FaultPlace::Lane(client_id) => tracing::error!(
            target: CLIENT,
            client = %Escaped(client_id),
            kind,
            first,
            count,
            "the audit found a fault in the broker, among the messages of this client"
        ),
        place => tracing::error!(
            ?place,
            kind,
            first,
            count,
            "the audit found a fault in the broker"
        ),
    }
}

fn disconnected(client_id: &str, why: &Disconnection, level: Level) {
    let client = Escaped(client_id);
    match why {
        Disconnection::ByClient(reason) => {
            let reason = reason.map(|reason| tracing::field::display(ReasonText(reason)));
            tracing::info!(target: CLIENT, %client, reason, "disconnected");
        }
        Disconnection::Lost(CloseCause::Peer) => {
            tracing::info!(target: CLIENT, %client, "closed its connection without DISCONNECT");
        }
        Disconnection::Lost(CloseCause::Transport(kind)) => {
            tracing::info!(target: CLIENT, %client, detail = %kind, "connection lost");
        }
        Disconnection::ByBroker {
            reason,
            sent,
            detail,
        } => record_at!(
            level,
            %client,
            reason = reason_field(*reason, *sent),
            return_code = return_code(*reason, *sent),
            detail = detail_field(*reason, *sent, detail),
            "disconnected by the broker"
        ),
        other => tracing::warn!(target: CLIENT, %client, why = ?other, "disconnected"),
    }
}

/// The field `reason`: a reason code, if it was sent.
fn reason_field(
    reason: ReasonCode,
    sent: Option<u8>,
) -> Option<tracing::field::DisplayValue<ReasonText>> {
    (sent == Some(reason as u8)).then(|| tracing::field::display(ReasonText(reason)))
}

/// The field `return_code`: the code of 3.x, if that was sent.
fn return_code(reason: ReasonCode, sent: Option<u8>) -> Option<u8> {
    sent.filter(|sent| *sent != reason as u8)
}

/// The field `detail`, if it adds to the name of a logged reason.
fn detail_field(
    reason: ReasonCode,
    sent: Option<u8>,
    detail: &str,
) -> Option<tracing::field::DisplayValue<Escaped<'_>>> {
    let is_said = detail == reason.name() && sent == Some(reason as u8);
    (!is_said).then(|| tracing::field::display(Escaped(detail)))
}

/// A reason code as `0x87 Not authorized`.
struct ReasonText(ReasonCode);

impl Display for ReasonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02x} {}", self.0 as u8, self.0.name())
    }
}

/// Text chosen by a client, escaped so that it stays on its line. Long text is cut; an id or topic
/// can have 65,535 bytes.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unbroken_mqtt_proto::Escaped::at_most(self.0, LOG_NAME_CHARACTERS).fmt(f)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Seek as _, SeekFrom};
    use std::sync::{Arc, Mutex};

    use unbroken_broker_core::DropPlace;

    use super::*;

    /// The log of `done`.
    pub(crate) fn log_of(done: impl FnOnce()) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(Mutex::new(file.try_clone().unwrap()));
        tracing::subscriber::with_default(log.finish(), done);
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_refusal_logs_its_user_and_no_redundant_detail() {
        let logged = |detail: &'static str, sent| {
            let refused = Event::Refused {
                client_id: Some(Arc::from("c")),
                user_name: Some("al\nice".into()),
                address: None,
                reason: ReasonCode::BadUserNameOrPassword,
                sent,
                detail: detail.into(),
            };
            log_of(|| event(&refused))
        };
        let name = ReasonCode::BadUserNameOrPassword.name();
        let plain = logged(name, Some(0x86));
        assert!(
            plain.contains("client=c user=al\\nice reason=0x86"),
            "{plain}"
        );
        assert!(!plain.contains("detail="), "{plain}");
        let more = logged("the file is locked", Some(0x86));
        assert!(more.contains("detail=the file is locked"), "{more}");
        let of_3_1_1 = logged(name, Some(4));
        assert!(
            of_3_1_1.contains(&format!("return_code=4 detail={name}")),
            "{of_3_1_1}"
        );
        assert!(!of_3_1_1.contains("reason="), "{of_3_1_1}");
        let closed = logged(name, None);
        assert!(
            closed.contains(&format!("user=al\\nice detail={name}")),
            "{closed}"
        );
    }

    #[test]
    fn a_reason_that_was_not_sent_is_not_logged_as_one() {
        let log = |sent| {
            let why = Disconnection::ByBroker {
                reason: ReasonCode::ServerBusy,
                sent,
                detail: "the broker is stopping".into(),
            };
            log_of(|| disconnected("c", &why, Level::WARN))
        };
        assert!(log(Some(0x89)).contains("client=c reason=0x89"));
        assert!(log(None).contains("client=c detail=the broker is stopping"));
        let goodbye = log_of(|| disconnected("c", &Disconnection::ByClient(None), Level::INFO));
        assert!(!goodbye.contains("reason"), "{goodbye}");
        let refused = |sent| {
            let subscribed = Event::Subscribed {
                client_id: Arc::from("c"),
                filter: "t".into(),
                reason: ReasonCode::QuotaExceeded,
                sent,
            };
            log_of(|| event(&subscribed))
        };
        assert!(refused(0x97).contains("filter=t reason=0x97 Quota exceeded"));
        assert!(refused(0x80).contains("filter=t return_code=128 detail=Quota exceeded"));
    }

    #[test]
    fn routine_is_no_warning() {
        let ended = |reason| Event::Disconnected {
            client_id: Arc::from("c"),
            why: Disconnection::ByBroker {
                reason,
                sent: Some(reason as u8),
                detail: "words".into(),
            },
        };
        let expired = Event::Disconnected {
            client_id: Arc::from("c"),
            why: Disconnection::ByBroker {
                reason: ReasonCode::NotAuthorized,
                sent: None,
                detail: "its token has expired: the time for which it was authenticated is over"
                    .into(),
            },
        };
        let dropped = |reason| Event::Dropped {
            client_id: Arc::from("c"),
            topic: "t".into(),
            reason,
            count: 1,
            full: None,
            place: DropPlace::Receiver,
            numbers: None,
        };
        for (event, level) in [
            (ended(ReasonCode::SessionTakenOver), " INFO "),
            (ended(ReasonCode::KeepAliveTimeout), " INFO "),
            (ended(ReasonCode::AdministrativeAction), " INFO "),
            (ended(ReasonCode::ProtocolError), " WARN "),
            (ended(ReasonCode::NotAuthorized), " WARN "),
            (expired, " INFO "),
            (ended(ReasonCode::ServerShuttingDown), ""),
            (dropped(DropReason::NotConnected), " INFO "),
            (dropped(DropReason::QueueFull), " WARN "),
            (dropped(DropReason::StoreFailed), " WARN "),
        ] {
            let log = log_of(|| super::event(&event));
            assert!(log.contains(level), "{log}");
            assert_eq!(log.is_empty(), level.is_empty(), "{event:?}: {log}");
        }
    }

    #[test]
    fn an_unknown_topic_is_not_logged() {
        let logged = |topic: &str| {
            let dropped = Event::Dropped {
                client_id: Arc::from("c"),
                topic: topic.into(),
                reason: DropReason::SessionEnded,
                count: 3,
                full: None,
                place: DropPlace::Receiver,
                numbers: None,
            };
            log_of(|| event(&dropped))
        };
        assert!(logged("a/b").contains("client=c topic=a/b reason="));
        assert!(logged("").contains("client=c reason="), "{}", logged(""));
    }

    #[test]
    fn endless_text_is_cut() {
        let shown = Escaped(&"x".repeat(70_000)).to_string();
        assert_eq!(shown.chars().count(), LOG_NAME_CHARACTERS + 1);
    }
}
