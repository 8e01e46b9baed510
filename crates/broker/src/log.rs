//! What the broker says about its clients: one place where events become log records.
//!
//! Invariants:
//! - Every record about a client has the field `client`, so that its story can be filtered out of
//!   all others.
//! - Text that a client chose goes through [`Chosen`], which escapes what could break or forge a
//!   line.
//! - A payload is never logged.
//! - A reason code is logged where it was sent or came: a client of 3.x is sent a return code, or
//!   its connection is only closed.
//!
//! Field names: `client`, `user`, `address`, `version`, `topic`, `filter`, `reason`,
//! `return_code`, `detail`, `count`, of what was refused because a session was `full` whose that
//! is, and of faults `kind`, `first`, `lane`.

use std::fmt::{self, Display, Write};

use unbroken_broker_core::{CloseCause, Disconnection, Event, FaultPlace};
use unbroken_mqtt_proto::ReasonCode;

/// The target of records about clients, for filters such as `unbroken::client=debug`.
const CLIENT: &str = "unbroken::client";

/// Writes one record.
#[cold]
pub(crate) fn event(event: &Event) {
    match event {
        Event::Connected {
            client_id,
            address,
            version,
            session_present,
            keep_alive_s,
        } => {
            tracing::info!(
                target: CLIENT,
                client = %Chosen(client_id),
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
            client = client_id.as_deref().map(|id| tracing::field::display(Chosen(id))),
            user = user_name.as_deref().map(|user| tracing::field::display(Chosen(user))),
            address = address.map(tracing::field::display),
            reason = named(*reason, *sent),
            return_code = return_code(*reason, *sent),
            detail = beyond(*reason, *sent, detail),
            "refused"
        ),
        Event::Disconnected { client_id, why } => disconnected(client_id, why),
        Event::SessionEnded {
            client_id,
            undelivered,
            uncounted_of,
        } => {
            tracing::info!(
                target: CLIENT,
                client = %Chosen(client_id),
                undelivered,
                "session ended"
            );
            if *uncounted_of > 0 {
                tracing::warn!(
                    target: CLIENT,
                    client = %Chosen(client_id),
                    among = uncounted_of,
                    "the session ended before it was counted what waited for it since before the \
                     start: among so many messages on disk, those for it are not delivered"
                );
            }
        }
        Event::Subscribed {
            client_id,
            filter,
            reason,
            sent,
        } => {
            if reason.is_error() {
                tracing::warn!(
                    target: CLIENT,
                    client = %Chosen(client_id),
                    filter = %Chosen(filter),
                    reason = named(*reason, Some(*sent)),
                    return_code = return_code(*reason, Some(*sent)),
                    detail = beyond(*reason, Some(*sent), reason.name()),
                    "subscription refused"
                );
            } else {
                tracing::debug!(
                    target: CLIENT,
                    client = %Chosen(client_id),
                    filter = %Chosen(filter),
                    qos = *reason as u8,
                    "subscribed"
                );
            }
        }
        Event::Unsubscribed { client_id, filter } => tracing::debug!(
            target: CLIENT,
            client = %Chosen(client_id),
            filter = %Chosen(filter),
            "unsubscribed"
        ),
        Event::WillPublished { client_id, topic } => tracing::info!(
            target: CLIENT,
            client = %Chosen(client_id),
            topic = %Chosen(topic),
            "will published"
        ),
        Event::Dropped {
            client_id,
            topic,
            reason,
            count,
            full,
        } => tracing::warn!(
            target: CLIENT,
            client = %Chosen(client_id),
            topic = (!topic.is_empty()).then(|| tracing::field::display(Chosen(topic))),
            reason = reason.name(),
            full = full.as_deref().map(|full| tracing::field::display(Chosen(full))),
            count,
            "messages not delivered"
        ),
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
        } => tracing::warn!(
            target: CLIENT,
            client = %Chosen(client_id),
            lane = format_args!("{lane:016x}"),
            kind = kind.name(),
            first,
            count,
            "what came is not what this client has stamped"
        ),
        Event::LaneIntruded { .. } => lane_intruded(event),
        Event::LaneOwner {
            client_id,
            lane,
            before,
        } => tracing::warn!(
            target: CLIENT,
            client = %Chosen(client_id),
            lane = format_args!("{lane:016x}"),
            before = %Chosen(before),
            "the client has opened a lane that was another client's"
        ),
        Event::LaneRefused {
            client_id,
            lane,
            why,
            count,
        } => tracing::warn!(
            target: CLIENT,
            client = %Chosen(client_id),
            lane = format_args!("{lane:016x}"),
            reason = why.name(),
            count,
            "messages not judged: the client may open no more lanes"
        ),
        other => tracing::warn!(target: CLIENT, event = ?other, "an event without words"),
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
        client = %Chosen(client_id),
        user = user.as_deref().map(|user| tracing::field::display(Chosen(user))),
        lane = format_args!("{lane:016x}"),
        owner = %Chosen(owner),
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
            client = %Chosen(client_id),
            kind,
            first,
            count,
            "the audit found a fault in the broker, among the messages for this client"
        ),
        FaultPlace::Lane(client_id) => tracing::error!(
            target: CLIENT,
            client = %Chosen(client_id),
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

fn disconnected(client_id: &str, why: &Disconnection) {
    let client = Chosen(client_id);
    match why {
        Disconnection::ByClient(reason) => {
            let reason = reason.map(|reason| tracing::field::display(Named(reason)));
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
        } => tracing::warn!(
            target: CLIENT,
            %client,
            reason = named(*reason, *sent),
            return_code = return_code(*reason, *sent),
            detail = beyond(*reason, *sent, detail),
            "disconnected by the broker"
        ),
        other => tracing::warn!(target: CLIENT, %client, why = ?other, "disconnected"),
    }
}

/// A reason code, if it was sent.
fn named(reason: ReasonCode, sent: Option<u8>) -> Option<tracing::field::DisplayValue<Named>> {
    (sent == Some(reason as u8)).then(|| tracing::field::display(Named(reason)))
}

/// What 3.x has instead, if that was sent.
fn return_code(reason: ReasonCode, sent: Option<u8>) -> Option<u8> {
    sent.filter(|sent| *sent != reason as u8)
}

/// A detail, where it says more than the name of a reason that is logged.
fn beyond(
    reason: ReasonCode,
    sent: Option<u8>,
    detail: &str,
) -> Option<tracing::field::DisplayValue<Chosen<'_>>> {
    let is_said = detail == reason.name() && sent == Some(reason as u8);
    (!is_said).then(|| tracing::field::display(Chosen(detail)))
}

/// A reason code as `0x87 Not authorized`.
struct Named(ReasonCode);

impl Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02x} {}", self.0 as u8, self.0.name())
    }
}

/// Text that a client chose: shown so that it stays on its line and cannot be taken for anything
/// else. Long text is cut; an id or topic can have 65,535 bytes.
pub(crate) struct Chosen<'a>(pub(crate) &'a str);

/// Characters shown of a [`Chosen`].
const SHOWN: usize = 512;

impl Display for Chosen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, character) in self.0.chars().enumerate() {
            if index == SHOWN {
                return f.write_char('…');
            }
            if character.is_control() || is_invisible(character) || character == '\\' {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Characters that change how the text around them is shown.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Seek as _, SeekFrom};
    use std::sync::{Arc, Mutex};

    use unbroken_broker_core::DropReason;

    use super::*;

    /// What is logged meanwhile.
    pub(crate) fn log_of(done: impl FnOnce()) -> String {
        let mut file = tempfile::tempfile().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false);
        let log = log.with_writer(Mutex::new(file.try_clone().unwrap()));
        tracing::subscriber::with_default(log.finish(), done);
        let mut words = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut words).unwrap();
        words
    }

    #[test]
    fn a_refusal_names_its_user_and_says_nothing_twice() {
        let told = |detail: &'static str, sent| {
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
        let plain = told(name, Some(0x86));
        assert!(
            plain.contains("client=c user=al\\nice reason=0x86"),
            "{plain}"
        );
        assert!(!plain.contains("detail="), "{plain}");
        let more = told("the file is locked", Some(0x86));
        assert!(more.contains("detail=the file is locked"), "{more}");
        let of_3_1_1 = told(name, Some(4));
        assert!(
            of_3_1_1.contains(&format!("return_code=4 detail={name}")),
            "{of_3_1_1}"
        );
        assert!(!of_3_1_1.contains("reason="), "{of_3_1_1}");
        let closed = told(name, None);
        assert!(
            closed.contains(&format!("user=al\\nice detail={name}")),
            "{closed}"
        );
    }

    #[test]
    fn a_reason_that_was_not_sent_is_not_logged_as_one() {
        let log = |sent| {
            let why = Disconnection::ByBroker {
                reason: ReasonCode::ServerShuttingDown,
                sent,
                detail: "the broker is stopping".into(),
            };
            log_of(|| disconnected("c", &why))
        };
        assert!(log(Some(0x8b)).contains("client=c reason=0x8b"));
        assert!(log(None).contains("client=c detail=the broker is stopping"));
        let goodbye = log_of(|| disconnected("c", &Disconnection::ByClient(None)));
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
    fn a_topic_that_is_not_known_is_left_out() {
        let told = |topic: &str| {
            let dropped = Event::Dropped {
                client_id: Arc::from("c"),
                topic: topic.into(),
                reason: DropReason::SessionEnded,
                count: 3,
                full: None,
            };
            log_of(|| event(&dropped))
        };
        assert!(told("a/b").contains("client=c topic=a/b reason="));
        assert!(told("").contains("client=c reason="), "{}", told(""));
    }

    fn check(chosen: &str, shown: &str) {
        assert_eq!(Chosen(chosen).to_string(), shown);
    }

    #[test]
    fn what_a_client_chose_stays_on_its_line() {
        check("plain/topic ü 日本", "plain/topic ü 日本");
        check("a\nERROR forged", "a\\nERROR forged");
        check("\u{1b}[31mred", "\\u{1b}[31mred");
        check("back\\slash", "back\\\\slash");
        check("\u{202e}txet", "\\u{202e}txet");
        check("", "");
    }

    #[test]
    fn endless_text_is_cut() {
        let shown = Chosen(&"x".repeat(70_000)).to_string();
        assert_eq!(shown.chars().count(), SHOWN + 1);
    }
}
