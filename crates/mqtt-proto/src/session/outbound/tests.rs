use super::*;

use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};

/// What is sent again until the window is full or nothing is left.
fn resent(outbound: &mut Outbound<char>) -> String {
    let mut text = String::new();
    while let Some(resend) = outbound.poll_resend() {
        match resend {
            Resend::Publish {
                dup: true, message, ..
            } => text.push(*message),
            Resend::Publish {
                dup: false,
                message,
                ..
            } => text.extend(['+', *message]),
            Resend::PubRel { .. } => text.push('.'),
        }
    }
    text
}

#[test]
fn the_window_is_open_exactly_as_long_as_there_is_room_for_an_entry() {
    let mut outbound = Outbound::new();
    for n in 0..u32::from(INFLIGHT_MAX) {
        assert!(outbound.window_open(), "{n} in flight");
        assert!(outbound.begin(AtLeastOnce, 'a').is_ok());
    }
    assert!(!outbound.window_open());
    assert_eq!(outbound.begin(AtLeastOnce, 'b'), Err('b'));
    assert!(outbound.handle_puback(PacketId::FIRST).is_ok());
    assert!(outbound.window_open());
}

#[test]
fn a_narrow_window_grows_up_to_the_receive_maximum() {
    let mut outbound = Outbound::new();
    outbound.set_receive_maximum(3);
    assert!(!outbound.is_narrow());
    outbound.begin_narrow(1);
    assert!(outbound.begin(AtLeastOnce, 'a').is_ok());
    assert!(outbound.is_narrow() && !outbound.window_open());
    for _ in 0..5 {
        outbound.widen();
    }
    assert_eq!((outbound.window(), outbound.is_narrow()), (3, false));
    outbound.set_receive_maximum(2);
    outbound.begin_narrow(9);
    assert_eq!(outbound.window(), 2);
}

// [MQTT-4.3.2-3] [MQTT-4.3.3-3] [MQTT-4.3.3-5] [MQTT311-4.3.2-1] [MQTT311-4.3.3-1]
#[test]
fn a_message_is_unfinished_until_its_last_acknowledgement() {
    let mut outbound = Outbound::new();
    let a = outbound.begin(AtLeastOnce, 'a').unwrap();
    let b = outbound.begin(ExactlyOnce, 'b').unwrap();
    assert_eq!(outbound.handle_puback(a), Ok('a'));
    assert_eq!(outbound.inflight(), 1);
    assert_eq!(
        outbound.handle_pubrec(b, false),
        Ok(PubRec::SendPubRel(Some('b')))
    );
    assert_eq!(outbound.inflight(), 1);
    assert_eq!(outbound.handle_pubcomp(b), Ok(()));
    assert_eq!(outbound.inflight(), 0);
}

// [MQTT-4.4.0-2] [MQTT-4.3.3-4]
#[test]
fn a_refusing_pubrec_ends_the_message_and_frees_the_window() {
    let mut outbound = Outbound::new();
    outbound.set_receive_maximum(1);
    let a = outbound.begin(ExactlyOnce, 'a').unwrap();
    assert_eq!(outbound.handle_pubrec(a, true), Ok(PubRec::Ended('a')));
    assert_eq!(outbound.handle_pubrec(a, false), Err(AckError::Unknown));
    assert!(outbound.begin(ExactlyOnce, 'b').is_ok());
    outbound.handle_disconnected();
    assert_eq!(resent(&mut outbound), "b");
}

#[test]
fn a_repeated_pubrec_is_answered_again() {
    let mut outbound = Outbound::new();
    let a = outbound.begin(ExactlyOnce, 'a').unwrap();
    assert_eq!(
        outbound.handle_pubrec(a, false),
        Ok(PubRec::SendPubRel(Some('a')))
    );
    assert_eq!(
        outbound.handle_pubrec(a, false),
        Ok(PubRec::SendPubRel(None))
    );
    assert_eq!(
        outbound.handle_pubrec(a, true),
        Ok(PubRec::SendPubRel(None))
    );
}

#[test]
fn acknowledgements_of_the_wrong_kind_are_distinguished_and_change_nothing() {
    let mut outbound = Outbound::new();
    let one = outbound.begin(AtLeastOnce, 'a').unwrap();
    let two = outbound.begin(ExactlyOnce, 'b').unwrap();
    assert_eq!(outbound.handle_pubrec(one, false), Err(AckError::WrongQoS));
    assert_eq!(outbound.handle_pubcomp(one), Err(AckError::WrongQoS));
    assert_eq!(outbound.handle_puback(two), Err(AckError::WrongQoS));
    assert_eq!(outbound.handle_pubcomp(two), Err(AckError::TooEarly));
    assert_eq!(
        outbound.handle_puback(PacketId::new(99).unwrap()),
        Err(AckError::Unknown)
    );
    assert_eq!(outbound.inflight(), 2);
}

// [MQTT-3.3.4-7] [MQTT-3.3.4-8] [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-2] [MQTT-4.9.0-3]
#[test]
fn the_window_gives_back_what_it_cannot_take() {
    let mut outbound = Outbound::new();
    outbound.set_receive_maximum(1);
    assert_eq!(outbound.begin(AtMostOnce, 'z'), Err('z'));
    let a = outbound.begin(ExactlyOnce, 'a').unwrap();
    assert_eq!(outbound.begin(AtLeastOnce, 'b'), Err('b'));
    assert!(outbound.handle_pubrec(a, false).is_ok());
    assert_eq!(
        outbound.begin(AtLeastOnce, 'b'),
        Err('b'),
        "PUBREC frees no slot"
    );
    assert_eq!(outbound.handle_pubcomp(a), Ok(()));
    assert!(outbound.begin(AtLeastOnce, 'b').is_ok());
}

// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-4.6.0-4] [MQTT-4.3.3-6] [MQTT-3.3.1-1] [MQTT311-3.3.1-1]
#[test]
fn a_reconnect_sends_the_unfinished_again_in_order_and_before_the_new() {
    let mut outbound = Outbound::new();
    let ids: Vec<_> = "abcd"
        .chars()
        .map(|m| outbound.begin(ExactlyOnce, m).unwrap())
        .collect();
    assert!(outbound.handle_pubrec(ids[2], false).is_ok());
    assert_eq!(
        resent(&mut outbound),
        "",
        "nothing is sent again without a reconnect"
    );
    outbound.handle_disconnected();
    assert_eq!(outbound.begin(AtLeastOnce, 'e'), Err('e'));
    assert_eq!(resent(&mut outbound), "ab.d");
    assert!(outbound.begin(AtLeastOnce, 'e').is_ok());
}

// [MQTT-3.3.4-9]
#[test]
fn a_smaller_window_sends_the_rest_as_acknowledgements_come() {
    let mut outbound = Outbound::new();
    let ids: Vec<_> = "abc"
        .chars()
        .map(|m| outbound.begin(AtLeastOnce, m).unwrap())
        .collect();
    outbound.handle_disconnected();
    outbound.set_receive_maximum(1);
    assert_eq!(resent(&mut outbound), "a");
    assert!(outbound.handle_puback(ids[0]).is_ok());
    assert_eq!(resent(&mut outbound), "b");
    assert!(outbound.resending());
    // A connection that breaks on the way begins again with the oldest.
    outbound.handle_disconnected();
    outbound.set_receive_maximum(9);
    assert_eq!(resent(&mut outbound), "bc");
    assert!(!outbound.resending());
}

// [MQTT-3.3.1-1] [MQTT-4.3.3-2]
#[test]
fn what_has_never_left_is_sent_without_dup() {
    let mut outbound = Outbound::new();
    let a = outbound.begin_unsent(ExactlyOnce, 'a').unwrap();
    let b = outbound.begin_unsent(ExactlyOnce, 'b').unwrap();
    assert_eq!(outbound.handle_pubrec(a, false), Err(AckError::Unknown));
    assert_eq!(outbound.mark_sent(a), Some(&'a'));
    assert_eq!(outbound.mark_sent(a), None);
    outbound.handle_disconnected();
    assert_eq!(outbound.mark_sent(b), None, "its connection is gone");
    assert_eq!(resent(&mut outbound), "a+b");
    assert_eq!(outbound.mark_sent(b), None, "it was sent");
}

// [MQTT-3.3.4-9] [MQTT-4.6.0-6] [MQTT-3.3.1-1]
#[test]
fn what_was_begun_ahead_has_its_id_and_waits_for_its_place() {
    let mut outbound = Outbound::new();
    outbound.set_receive_maximum(1);
    let a = outbound.begin(ExactlyOnce, 'a').unwrap();
    let b = outbound.begin_ahead(ExactlyOnce, 'b').unwrap();
    let c = outbound.begin_ahead(ExactlyOnce, 'c').unwrap();
    assert_eq!(outbound.begin(AtLeastOnce, 'd'), Err('d'));
    assert_eq!(outbound.start(b), Start::Wait);
    assert_eq!(outbound.handle_pubrec(b, false), Err(AckError::Unknown));
    assert!(outbound.handle_pubrec(a, false).is_ok());
    assert_eq!(outbound.start(b), Start::Wait, "PUBREC frees no place");
    assert_eq!(outbound.handle_pubcomp(a), Ok(()));
    assert_eq!(outbound.start(c), Start::Gone, "b comes first");
    assert_eq!(outbound.start(b), Start::Send);
    assert_eq!(outbound.mark_sent(b), Some(&'b'));
    assert_eq!(outbound.start(c), Start::Wait);
    outbound.handle_disconnected();
    outbound.set_receive_maximum(2);
    assert_eq!(resent(&mut outbound), "b+c");
    assert_eq!(outbound.begin(AtLeastOnce, 'd'), Err('d'));
}

// [MQTT-3.1.2-25]
#[test]
fn what_is_given_up_while_re_sending_makes_room_for_the_next() {
    let mut outbound = Outbound::new();
    for message in ['a', 'b'] {
        assert!(outbound.begin(AtLeastOnce, message).is_ok());
    }
    outbound.handle_disconnected();
    outbound.set_receive_maximum(1);
    assert_eq!(resent(&mut outbound), "a");
    assert_eq!(outbound.forget(PacketId::FIRST), Some('a'));
    assert_eq!(outbound.forget(PacketId::FIRST), None);
    assert_eq!(resent(&mut outbound), "b");
}

// [MQTT-4.8.2-5]
#[test]
fn what_is_drained_says_whether_the_other_side_may_have_it() {
    let mut outbound = Outbound::new();
    assert!(outbound.begin(AtLeastOnce, 'a').is_ok());
    let b = outbound.begin(ExactlyOnce, 'b').unwrap();
    assert!(outbound.handle_pubrec(b, false).is_ok());
    assert!(outbound.begin_unsent(ExactlyOnce, 'c').is_ok());
    let drained: Vec<_> = outbound
        .drain()
        .map(|d| (d.qos, d.sent, d.message))
        .collect();
    assert_eq!(
        drained,
        [(AtLeastOnce, true, 'a'), (ExactlyOnce, false, 'c')]
    );
    assert_eq!(outbound.inflight(), 0);
}

#[test]
fn ids_go_on_where_the_other_side_has_none_and_pass_over_those_in_use() {
    let [first, last] = [2, 65_535].map(|id| PacketId::new(id).unwrap());
    let entries = [first, last].map(|id| Entry::PubRel { id });
    let mut outbound = Outbound::restore(entries).unwrap();
    while outbound.poll_resend().is_some() {}
    assert_eq!(outbound.newest(), Some(last));
    outbound.go_on_behind(65_533);
    let ids = "abc".chars().map(|m| outbound.begin(ExactlyOnce, m));
    let ids: Vec<_> = ids.map(|id| id.unwrap().get()).collect();
    assert_eq!(ids, [65_534, 1, 3]);
}

#[test]
fn a_store_that_names_an_id_twice_is_refused() {
    let id = PacketId::FIRST;
    let entries = [
        Entry::PubRel { id },
        Entry::Publish {
            id,
            qos: AtLeastOnce,
            message: 'a',
        },
    ];
    assert_eq!(Outbound::restore(entries).err(), Some(DuplicateId(id)));
}
