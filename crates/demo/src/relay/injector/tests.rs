//! Each fault in raw bytes: what went in, what comes out on both sides, and what is written down.

use std::time::Duration;

use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::next_frame;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A injector with what surrounds it.
struct Theatre {
    injector: Injector,
    orders: Orders,
    now: Instant,
}

/// What came out: onward and back.
type Out = (Vec<u8>, Vec<u8>);

impl Theatre {
    fn with(injections: &[Injection]) -> Self {
        let mut orders = Orders::default();
        for injection in injections {
            orders.give(*injection).unwrap();
        }
        Self {
            injector: Injector::new(),
            orders,
            now: Instant::now(),
        }
    }

    fn pass(&mut self, bytes: &[u8]) -> Out {
        self.pass_in(bytes, Version::V5)
    }

    fn pass_in(&mut self, bytes: &[u8], version: Version) -> Out {
        let (mut onward, mut back) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(frame) = next_frame(&bytes[at..], u32::MAX).unwrap() {
            at += frame.bytes.len();
            self.injector.handle(
                frame,
                Some(version),
                &mut self.orders,
                self.now,
                &mut onward,
                &mut back,
            );
        }
        assert_eq!(at, bytes.len());
        (onward, back)
    }

    /// What goes onward because of a PUBACK with this id, which then is not passed on.
    fn acknowledge(&mut self, packet_id: u8) -> Option<Vec<u8>> {
        let puback = [0x40, 2, 0, packet_id];
        let frame = next_frame(&puback, u32::MAX).unwrap().unwrap();
        self.injector
            .acknowledged(frame, Some(Version::V5), &mut self.orders, self.now)
    }

    fn wait(&mut self, time: Duration) -> Vec<u8> {
        self.now += time;
        let mut onward = Vec::new();
        self.injector
            .release(&mut self.orders, self.now, &mut onward);
        onward
    }

    fn done(&mut self) -> Vec<(Injection, u64, Option<u64>)> {
        let done = self.orders.take_done().into_iter();
        done.map(|injected| {
            let second = injected.overtaken_by.map(|second| second.audit.sequence);
            (injected.injection, injected.message.audit.sequence, second)
        })
        .collect()
    }
}

fn audit_of(lane: u64, sequence: u64, topic: &str, payload: &[u8]) -> Audit {
    let lane = LaneId::new(lane).unwrap();
    let topic = topic.as_bytes();
    Audit::stamp(&Hasher::xxh3(), lane, Epoch(1), sequence, topic, payload)
}

/// A PUBLISH written by hand: QoS, packet id, topic field, alias, audit texts, payload.
fn publish(
    first_byte: u8,
    packet_id: u16,
    topic: &str,
    alias: Option<u16>,
    audit: &[String],
    payload: &[u8],
) -> Vec<u8> {
    let string = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [&length, text.as_bytes()].concat()
    };
    let mut properties = Vec::new();
    if let Some(alias) = alias {
        properties.push(0x23);
        properties.extend(alias.to_be_bytes());
    }
    for text in audit {
        properties.push(0x26);
        properties.extend(string("audit"));
        properties.extend(string(text));
    }
    let mut body = string(topic);
    if first_byte & 0b0110 != 0 {
        body.extend(packet_id.to_be_bytes());
    }
    assert!(properties.len() < 128 && body.len() + properties.len() + payload.len() < 127);
    body.push(u8::try_from(properties.len()).unwrap());
    body.extend(properties);
    body.extend(payload);
    let length = u8::try_from(body.len()).unwrap();
    [vec![first_byte, length], body].concat()
}

/// Number `sequence` of lane 7, at QoS 1 with that packet id.
fn message(sequence: u64) -> Vec<u8> {
    message_of(7, sequence)
}

fn message_of(lane: u64, sequence: u64) -> Vec<u8> {
    let text = audit_of(lane, sequence, "t", b"21.5").to_text();
    let packet_id = u16::try_from(sequence).unwrap();
    publish(0x32, packet_id, "t", None, &[text], b"21.5")
}

/// The message in hand-written form at QoS 0, with another payload.
fn copy(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let text = audit_of(7, sequence, "t", b"21.5").to_text();
    publish(0x30, 0, "t", None, &[text], payload)
}

#[test]
fn nothing_ordered_changes_no_byte() {
    let mut theatre = Theatre::with(&[]);
    let bytes = [
        message(1),
        vec![0xC0, 0],
        vec![0x40, 2, 0, 1],
        vec![0x62, 2, 0, 9],
    ]
    .concat();
    assert_eq!(theatre.pass(&bytes), (bytes, vec![]));
}

#[test]
fn a_lost_message_of_qos_1_is_acknowledged_to_its_sender() {
    let mut theatre = Theatre::with(&[Injection::Lose]);
    assert_eq!(theatre.pass(&message(5)), (vec![], vec![0x40, 2, 0, 5]));
    assert_eq!(theatre.pass(&message(6)), (message(6), vec![]));
    assert_eq!(theatre.done(), [(Injection::Lose, 5, None)]);
}

#[test]
fn a_lost_message_of_qos_2_is_acknowledged_to_the_end_of_its_exchange() {
    let mut theatre = Theatre::with(&[Injection::Lose]);
    let text = audit_of(7, 5, "t", b"x").to_text();
    let lost = publish(0x34, 9, "t", None, &[text], b"x");
    assert_eq!(theatre.pass(&lost), (vec![], vec![0x50, 2, 0, 9]));
    let pubrel = |id| vec![0x62, 2, 0, id];
    assert_eq!(theatre.pass(&pubrel(8)), (pubrel(8), vec![]));
    assert_eq!(theatre.pass(&pubrel(9)), (vec![], vec![0x70, 2, 0, 9]));
    assert_eq!(theatre.pass(&pubrel(9)), (pubrel(9), vec![]));
}

#[test]
fn a_lost_message_of_qos_0_leaves_no_trace() {
    let mut theatre = Theatre::with(&[Injection::Lose]);
    assert_eq!(theatre.pass(&copy(5, b"21.5")), (vec![], vec![]));
}

#[test]
fn a_second_message_follows_the_acknowledgement_of_the_first_which_the_sender_does_not_see() {
    let text = audit_of(7, 5, "t", b"21.5").to_text();
    let invented = publish(0x32, 5, "t", None, &[text], b"21/5");
    for (injection, second) in [
        (Injection::Duplicate, message(5)),
        (Injection::Inject, invented),
    ] {
        let mut theatre = Theatre::with(&[injection]);
        assert_eq!(theatre.pass(&message(5)), (message(5), vec![]));
        assert_eq!(theatre.acknowledge(4), None);
        assert_eq!(theatre.done(), []);
        assert_eq!(theatre.acknowledge(5), Some(second));
        assert_eq!(theatre.done(), [(injection, 5, None)]);
        assert_eq!(theatre.acknowledge(5), None);
    }
}

#[test]
fn an_old_message_is_replayed_behind_a_new_one_and_noted_by_its_own_number() {
    let mut theatre = Theatre::with(&[]);
    let last = u8::try_from(REPLAYED_AFTER).unwrap() + 10;
    for number in 1..=last {
        theatre.pass(&message(number.into()));
    }
    theatre.orders.give(Injection::Replay).unwrap();
    let new = message(u64::from(last) + 1);
    assert_eq!(theatre.pass(&new), (new, vec![]));
    let old = u64::from(REPLAYED_AFTER);
    let text = audit_of(7, old, "t", b"21.5").to_text();
    let replayed = publish(0x32, u16::from(last) + 1, "t", None, &[text], b"21.5");
    assert_eq!(theatre.acknowledge(last + 1), Some(replayed));
    assert_eq!(theatre.done(), [(Injection::Replay, old, None)]);
}

#[test]
fn at_qos_0_a_second_message_follows_at_once() {
    let mut theatre = Theatre::with(&[Injection::Duplicate, Injection::Inject]);
    let first = copy(5, b"21.5");
    let expect = [first.clone(), first.clone()].concat();
    assert_eq!(theatre.pass(&first), (expect, vec![]));
    let expect = [copy(6, b"21.5"), copy(6, b"21/5")].concat();
    assert_eq!(theatre.pass(&copy(6, b"21.5")), (expect, vec![]));
}

#[test]
fn at_qos_2_there_is_no_second_message() {
    let mut theatre = Theatre::with(&[Injection::Duplicate]);
    let text = audit_of(7, 5, "t", b"x").to_text();
    let once = publish(0x34, 9, "t", None, &[text], b"x");
    assert_eq!(theatre.pass(&once), (once, vec![]));
    assert_eq!(theatre.orders.pending(), 1);
}

#[test]
fn an_altered_message_keeps_all_but_its_payload() {
    let mut theatre = Theatre::with(&[Injection::Alter]);
    let text = audit_of(7, 5, "t", b"21.5").to_text();
    let expect = publish(0x32, 5, "t", None, &[text], b"21/5");
    assert_eq!(theatre.pass(&message(5)), (expect, vec![]));
}

#[test]
fn a_forged_message_fits_its_own_digest() {
    let mut theatre = Theatre::with(&[Injection::Forge]);
    let text = audit_of(7, 5, "t", b"21/5").to_text();
    let expect = publish(0x32, 5, "t", None, &[text], b"21/5");
    assert_eq!(theatre.pass(&message(5)), (expect, vec![]));
    assert_eq!(theatre.done(), [(Injection::Forge, 5, None)]);
}

#[test]
fn a_swapped_message_waits_for_the_next_of_its_lane() {
    let mut theatre = Theatre::with(&[Injection::Swap]);
    assert_eq!(theatre.pass(&message(5)), (vec![], vec![]));
    let other = message_of(8, 5);
    assert_eq!(theatre.pass(&other), (other, vec![]));
    assert_eq!(theatre.done(), []);
    let expect = [message(6), message(5)].concat();
    assert_eq!(theatre.pass(&message(6)), (expect, vec![]));
    assert_eq!(theatre.done(), [(Injection::Swap, 5, Some(6))]);
}

#[test]
fn a_swap_without_a_neighbour_has_not_happened_and_is_done_to_the_next() {
    let mut theatre = Theatre::with(&[Injection::Swap]);
    theatre.pass(&message(5));
    assert_eq!(theatre.wait(SWAP_WITHIN), message(5));
    assert_eq!(theatre.done(), []);
    assert!(theatre.pass(&message(6)).0.is_empty());
}

#[test]
fn a_held_message_that_none_overtook_has_no_fault() {
    let mut theatre = Theatre::with(&[Injection::Hold(SECOND)]);
    theatre.pass(&message(5));
    theatre.pass(&message_of(8, 5));
    assert_eq!(theatre.wait(SECOND), message(5));
    assert_eq!(theatre.done(), []);
    assert_eq!(theatre.orders.pending(), 1);
}

#[test]
fn a_held_message_comes_after_its_time_and_others_pass_unchanged_until_then() {
    let mut theatre = Theatre::with(&[Injection::Hold(SECOND), Injection::Lose]);
    assert!(theatre.pass(&message(5)).0.is_empty());
    assert_eq!(theatre.pass(&message(6)).0, message(6));
    assert!(theatre.wait(SECOND / 2).is_empty());
    assert_eq!(theatre.wait(SECOND / 2), message(5));
    assert!(theatre.pass(&message(7)).0.is_empty());
    let expect = [
        (Injection::Hold(SECOND), 5, None),
        (Injection::Lose, 7, None),
    ];
    assert_eq!(theatre.done(), expect);
}

#[test]
fn an_unacknowledged_fault_is_undone_and_ordered_again_when_the_connection_ends() {
    let injections = [
        Injection::Alter,
        Injection::Swap,
        Injection::Duplicate,
        Injection::Lose,
    ];
    let mut theatre = Theatre::with(&injections);
    for number in 1..=5 {
        theatre.pass(&message(number));
    }
    // The altered one, and the first of two alike.
    assert_eq!(theatre.acknowledge(1), None);
    assert!(theatre.acknowledge(4).is_some());
    let done = theatre.orders.take_done();
    let numbers = |injected: &[Injected]| -> Vec<_> {
        let numbers = injected.iter();
        numbers
            .map(|injected| injected.message.audit.sequence)
            .collect()
    };
    assert_eq!(numbers(&done), [1, 2, 5, 4]);
    let Theatre {
        injector,
        mut orders,
        ..
    } = theatre;
    injector.abandon(&mut orders);
    assert_eq!(numbers(&orders.take_undone()), [2, 4]);
    assert_eq!(orders.pending(), 2);
}

#[test]
fn a_lost_message_that_its_sender_repeats_was_not_lost() {
    let mut theatre = Theatre::with(&[Injection::Lose, Injection::Lose]);
    theatre.pass(&message(1));
    theatre.pass(&message(2));
    assert_eq!(theatre.orders.pending(), 0);
    let mut again = message(2);
    again[0] |= 0b1000; // DUP
    assert_eq!(theatre.pass(&again).0, again);
    assert_eq!(theatre.orders.pending(), 1);
    assert_eq!(theatre.done(), [(Injection::Lose, 1, None)]);
}

#[test]
fn what_was_not_done_when_the_connection_ends_stands_as_an_order() {
    let mut theatre = Theatre::with(&[Injection::Duplicate, Injection::Hold(SECOND)]);
    theatre.pass(&message(4));
    theatre.pass(&message(5));
    let Theatre {
        injector,
        mut orders,
        ..
    } = theatre;
    injector.abandon(&mut orders);
    assert_eq!(orders.pending(), 2);
    assert_eq!(orders.take_done(), []);
}

#[test]
fn a_changed_message_with_an_alias_is_written_with_its_topic() {
    let mut theatre = Theatre::with(&[]);
    let text = |sequence| audit_of(7, sequence, "t", b"21.5").to_text();
    let setting = publish(0x32, 4, "t", Some(3), &[text(4)], b"21.5");
    theatre.orders.give(Injection::Alter).unwrap();
    assert_eq!(theatre.pass(&setting).0, setting, "one that sets an alias");
    let using = publish(0x32, 5, "", Some(3), &[text(5)], b"21.5");
    let expect = publish(0x32, 5, "t", None, &[text(5)], b"21/5");
    assert_eq!(theatre.pass(&using).0, expect);
    theatre.orders.give(Injection::Swap).unwrap();
    let using = publish(0x32, 6, "", Some(3), &[text(6)], b"21.5");
    assert!(theatre.pass(&using).0.is_empty());
    let expect = [message(7), message(6)].concat();
    assert_eq!(theatre.pass(&message(7)).0, expect);
}

#[test]
fn what_no_receiver_could_name_is_not_injected() {
    let text = audit_of(7, 5, "t", b"x").to_text();
    let mut resent = audit_of(7, 5, "t", b"x");
    resent.flags.resent = true;
    let unfit = [
        publish(0x32, 1, "t", None, &[], b"x"),
        publish(0x32, 1, "t", None, &["?".to_owned()], b"x"),
        publish(0x32, 1, "t", None, &[text.clone(), "x".to_owned()], b"x"),
        publish(0x32, 1, "t", None, &[resent.to_text()], b"x"),
        publish(0x3A, 1, "t", None, &[text], b"x"),
    ];
    let mut theatre = Theatre::with(&[Injection::Lose]);
    for bytes in unfit {
        assert_eq!(theatre.pass(&bytes), (bytes, vec![]));
    }
    // In 3.1.1 there are no properties; these bytes are part of the payload there.
    let bytes = message(5);
    assert_eq!(theatre.pass_in(&bytes, Version::V3_1_1), (bytes, vec![]));
    assert_eq!(theatre.done(), []);
}

#[test]
fn one_checkpoint_in_so_many_is_lost() {
    let mut theatre = Theatre::with(&[]);
    let two = std::num::NonZeroU32::new(2);
    theatre.orders.lose_checkpoints("audit/checkpoint/", two);
    let checkpoint = publish(0x32, 7, "audit/checkpoint/9", None, &[], b"raw");
    let passed: Vec<bool> = (0..4)
        .map(|_| theatre.pass(&checkpoint) == (checkpoint.clone(), vec![]))
        .collect();
    assert_eq!(passed, [true, false, true, false]);
    assert_eq!(theatre.pass(&message(5)).0, message(5));
}
