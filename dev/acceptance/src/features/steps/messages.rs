//! Subscribing, publishing and receiving.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::raw::{AckKind, Publish, id};
use cucumber::{given, then, when};

use crate::features::room::Room;
use crate::features::scene::Scene;
use crate::features::words;

#[given(regex = r#"^(\w+) subscribes to "([^"]*)"(?: at QoS (\d))?(?: (.+))?$"#)]
#[when(regex = r#"^(\w+) subscribes to "([^"]*)"(?: at QoS (\d))?(?: (.+))?$"#)]
async fn subscribes(scene: &mut Scene, name: String, filter: String, qos: String, list: String) {
    scene
        .act(move |room| {
            let subscribe = words::subscription(&filter, &qos, &list);
            let granted = subscribe.filters[0].1 & 3;
            assert_eq!(room.peer(&name).subscribe(&subscribe), [granted]);
        })
        .await;
}

#[given(regex = r#"^(\w+) is granted QoS (\d) when it subscribes to "([^"]*)" at QoS (\d)$"#)]
#[then(regex = r#"^(\w+) is granted QoS (\d) when it subscribes to "([^"]*)" at QoS (\d)$"#)]
async fn is_granted(scene: &mut Scene, name: String, granted: u8, filter: String, qos: String) {
    scene
        .act(move |room| {
            let subscribe = words::subscription(&filter, &qos, "");
            assert_eq!(room.peer(&name).subscribe(&subscribe), [granted]);
        })
        .await;
}

#[then(regex = r#"^(\w+) may not subscribe to "([^"]*)" because (.+)$"#)]
async fn may_not_subscribe(scene: &mut Scene, name: String, filter: String, why: String) {
    scene
        .act(move |room| {
            let subscribe = words::subscription(&filter, "", "");
            let codes = room.peer(&name).subscribe(&subscribe);
            assert_eq!(codes, [words::reason_code(&why)], "{filter}");
        })
        .await;
}

/// Subscribes and does not wait, because the broker is expected to object.
#[when(regex = r#"^(\w+) dares to subscribe to "([^"]*)"(?: at QoS (\d))?(?: (.+))?$"#)]
async fn dares_to_subscribe(
    scene: &mut Scene,
    name: String,
    filter: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let subscribe = words::subscription(&filter, &qos, &list);
            let client = room.client(&name);
            client.send(subscribe.encode(client.version(), 1));
        })
        .await;
}

#[given(regex = r#"^(\w+) unsubscribes from "([^"]*)"$"#)]
#[when(regex = r#"^(\w+) unsubscribes from "([^"]*)"$"#)]
async fn unsubscribes(scene: &mut Scene, name: String, filter: String) {
    scene
        .act(move |room| room.peer(&name).unsubscribe(&filter))
        .await;
}

#[given(regex = r#"^(\w+) publishes "([^"]*)" to "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
#[when(regex = r#"^(\w+) publishes "([^"]*)" to "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
async fn publishes(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = words::message(&topic, &payload, &qos, &list);
            let reason = room.peer(&name).publish(message);
            assert!(reason < 0x80, "{name} was told {reason:#04x}");
            room.last_actor = Some(name);
        })
        .await;
}

#[when(regex = r#"^(\w+) publishes (\d+) messages to "([^"]*)"(?: at QoS (\d))?$"#)]
async fn publishes_many(scene: &mut Scene, name: String, count: u32, topic: String, qos: String) {
    scene
        .act(move |room| {
            for number in 1..=count {
                let message = words::message(&topic, &number.to_string(), &qos, "");
                room.peer(&name).publish(message);
            }
            room.last_actor = Some(name);
        })
        .await;
}

/// As fast as the broker takes them.
#[given(regex = r#"^(\w+) publishes (\d+) messages of (\d+) bytes to "([^"]*)" at QoS 1$"#)]
#[when(regex = r#"^(\w+) publishes (\d+) messages of (\d+) bytes to "([^"]*)" at QoS 1$"#)]
async fn publishes_large(
    scene: &mut Scene,
    name: String,
    count: u32,
    length: usize,
    topic: String,
) {
    scene
        .act(move |room| {
            for _ in 0..count {
                let message = words::message(&topic, &"x".repeat(length), "1", "");
                room.peer(&name).publish(message);
            }
            room.last_actor = Some(name);
        })
        .await;
}

#[given(regex = r#"^(\w+) publishes messages (\d+) to (\d+) to "([^"]*)" at QoS ([12])$"#)]
#[when(regex = r#"^(\w+) publishes messages (\d+) to (\d+) to "([^"]*)" at QoS ([12])$"#)]
async fn publishes_from_to(
    scene: &mut Scene,
    name: String,
    first: u32,
    last: u32,
    topic: String,
    qos: String,
) {
    scene
        .act(move |room| {
            let messages =
                (first..=last).map(|number| words::message(&topic, &number.to_string(), &qos, ""));
            room.client(&name).publish_all(messages);
            room.last_actor = Some(name);
        })
        .await;
}

#[given(regex = r#"^(\w+) publishes a retained message to each of (\d+) topics under "([^"]*)"$"#)]
async fn publishes_retained(scene: &mut Scene, name: String, count: u32, root: String) {
    scene
        .act(move |room| {
            let messages = (1..=count).map(|number| {
                let topic = format!("{root}/{number}");
                words::message(&topic, &number.to_string(), "1", "retained")
            });
            room.client(&name).publish_all(messages);
            room.last_actor = Some(name);
        })
        .await;
}

#[then(regex = r"^(\w+) receives (\d+) retained messages$")]
async fn receives_retained(scene: &mut Scene, name: String, count: usize) {
    scene
        .act(move |room| {
            let mut topics = HashSet::new();
            for _ in 0..count {
                let message = room.peer(&name).receive();
                assert!(message.retain, "{message:?}");
                topics.insert(message.topic);
            }
            assert_eq!(topics.len(), count, "each once");
        })
        .await;
}

#[then(
    regex = r#"^(\w+) learns that (.+) when it publishes "([^"]*)" to "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#
)]
async fn learns(
    scene: &mut Scene,
    name: String,
    what: String,
    payload: String,
    topic: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = words::message(&topic, &payload, &qos, &list);
            assert_eq!(room.peer(&name).publish(message), words::reason_code(&what));
        })
        .await;
}

/// Publishes again until the answer is this, where it depends on what the broker finds by itself.
#[then(
    regex = r#"^(\w+) sooner or later learns that (.+) when it publishes "([^"]*)" to "([^"]*)" at QoS 1$"#
)]
async fn sooner_or_later_learns(
    scene: &mut Scene,
    name: String,
    what: String,
    payload: String,
    topic: String,
) {
    scene
        .act(move |room| {
            let wanted = words::reason_code(&what);
            let begin = Instant::now();
            let publish = |room: &mut Room| {
                let message = words::message(&topic, &payload, "1", "");
                room.peer(&name).publish(message)
            };
            while publish(room) != wanted {
                assert!(begin.elapsed() < PATIENCE, "{what:?} was never said");
                room.server().let_a_second_pass();
            }
        })
        .await;
}

/// Of a message whose stamp the broker forwards: the epoch is compared with that of the one before.
#[then(
    regex = r#"^(\w+) receives "([^"]*)" on "([^"]*)" as number (\d+) of (its lane|the same epoch|a later epoch)$"#
)]
async fn receives_as_number(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    number: u64,
    epoch: String,
) {
    scene
        .act(move |room| {
            let message = room.peer(&name).receive();
            assert_eq!((message.text(), &message.topic), (payload, &topic));
            let stamp = words::stamp(&message);
            assert_eq!(stamp.number, number, "{stamp:?}");
            let before = room.received.insert(name, message);
            let before = before.map(|before| words::stamp(&before).epoch);
            assert!(
                match epoch.as_str() {
                    "its lane" => before.is_none(),
                    "the same epoch" => before == Some(stamp.epoch),
                    _ => before < Some(stamp.epoch),
                },
                "{stamp:?} is not of {epoch}: {before:?}"
            );
        })
        .await;
}

/// Publishes and does not wait, because the broker is expected to object.
#[when(regex = r#"^(\w+) dares to publish "([^"]*)" to "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
async fn dares_to_publish(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = words::message(&topic, &payload, &qos, &list).packet_id(1);
            room.client(&name).send_publish(&message);
        })
        .await;
}

/// Publishes something the broker may refuse, silently or by name, without ending anything.
#[when(regex = r#"^(\w+) tries to publish "([^"]*)" to "([^"]*)"(?:, (.+))?$"#)]
async fn tries_to_publish(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = words::message(&topic, &payload, "1", &list);
            room.peer(&name).publish(message);
            room.last_actor = Some(name);
        })
        .await;
}

#[when(regex = r#"^(\w+) dares to publish (\d+) bytes to "([^"]*)"$"#)]
async fn dares_to_publish_bytes(scene: &mut Scene, name: String, length: usize, topic: String) {
    scene
        .act(move |room| {
            let message = Publish::new(&topic, vec![b'x'; length]);
            room.client(&name).send_publish(&message);
            room.last_actor = Some(name);
        })
        .await;
}

#[when(regex = r#"^(\w+) publishes (\d+) bytes to "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
async fn publishes_bytes(
    scene: &mut Scene,
    name: String,
    length: usize,
    topic: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = words::message(&topic, &"x".repeat(length), &qos, &list);
            room.peer(&name).publish(message);
            room.last_actor = Some(name);
        })
        .await;
}

#[when(
    regex = r#"^(\w+) sends half of the exact-once exchange of "([^"]*)" to "([^"]*)" (\d+) times$"#
)]
async fn sends_half_an_exchange(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    times: usize,
) {
    scene
        .act(move |room| {
            let client = room.client(&name);
            for time in 0..times {
                let mut message = words::message(&topic, &payload, "2", "").packet_id(1);
                message.dup = time > 0;
                client.send_publish(&message);
                client.expect_ack(AckKind::PubRec, 1);
            }
            room.last_actor = Some(name);
        })
        .await;
}

#[when(regex = r"^(\w+) completes the exchange$")]
async fn completes_the_exchange(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            let client = room.client(&name);
            client.send_ack(AckKind::PubRel, 1);
            client.expect_ack(AckKind::PubComp, 1);
        })
        .await;
}

#[given(regex = r#"^(\w+) receives "([^"]*)" on "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
#[then(regex = r#"^(\w+) receives "([^"]*)" on "([^"]*)"(?: at QoS (\d))?(?:, (.+))?$"#)]
async fn receives(
    scene: &mut Scene,
    name: String,
    payload: String,
    topic: String,
    qos: String,
    list: String,
) {
    scene
        .act(move |room| {
            let message = room.peer(&name).receive();
            let (got_topic, got_payload) = (message.topic.as_str(), message.text());
            assert_eq!(
                (got_topic, got_payload.as_str()),
                (topic.as_str(), payload.as_str())
            );
            words::check(&message, &qos, &list);
            room.received.insert(name, message);
        })
        .await;
}

/// Looks at a message and does not acknowledge it.
#[given(regex = r#"^(\w+) sees "([^"]*)" on "([^"]*)" and does not acknowledge it$"#)]
#[when(regex = r#"^(\w+) sees "([^"]*)" on "([^"]*)" and does not acknowledge it$"#)]
async fn sees(scene: &mut Scene, name: String, payload: String, topic: String) {
    scene
        .act(move |room| {
            let message = room.client(&name).expect_message(&topic, &payload);
            room.received.insert(name, message);
        })
        .await;
}

#[when(regex = r"^(\w+) acknowledges it$")]
async fn acknowledges(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            let message = room
                .received
                .get(&name)
                .expect("it has seen a message")
                .clone();
            room.client(&name).complete(&message);
        })
        .await;
}

#[then(regex = r"^(\w+) receives nothing(?: else)?$")]
async fn receives_nothing(scene: &mut Scene, name: String) {
    scene
        .act(move |room| {
            let messages = room.everything_for(&name);
            assert!(messages.is_empty(), "{name} received {messages:?}");
        })
        .await;
}

#[then(regex = r#"^(\w+) receives in any order "([^"]*)" and "([^"]*)"$"#)]
async fn receives_in_any_order(scene: &mut Scene, name: String, one: String, other: String) {
    scene
        .act(move |room| {
            let got = HashSet::from([(); 2].map(|()| room.peer(&name).receive().text()));
            assert_eq!(got, HashSet::from([one, other]));
        })
        .await;
}

#[then(regex = r#"^(\w+) receives (\d+) bytes on "([^"]*)"$"#)]
async fn receives_bytes(scene: &mut Scene, name: String, length: usize, topic: String) {
    scene
        .act(move |room| {
            let message = room.peer(&name).receive();
            assert_eq!(
                (message.topic.as_str(), message.payload.len()),
                (topic.as_str(), length)
            );
        })
        .await;
}

#[then(regex = r#"^(\w+) receives the (\d+) messages on "([^"]*)" in order$"#)]
async fn receives_in_order(scene: &mut Scene, name: String, count: u32, topic: String) {
    scene
        .act(move |room| receive_in_order(room, &name, 1..=count, &topic, ""))
        .await;
}

#[when(regex = r#"^(\w+) receives messages (\d+) to (\d+) on "([^"]*)" in order(?:, (.+))?$"#)]
#[then(regex = r#"^(\w+) receives messages (\d+) to (\d+) on "([^"]*)" in order(?:, (.+))?$"#)]
async fn receives_from_to(
    scene: &mut Scene,
    name: String,
    first: u32,
    last: u32,
    topic: String,
    list: String,
) {
    scene
        .act(move |room| receive_in_order(room, &name, first..=last, &topic, &list))
        .await;
}

fn receive_in_order(
    room: &mut Room,
    name: &str,
    numbers: RangeInclusive<u32>,
    topic: &str,
    list: &str,
) {
    for number in numbers {
        let message = room.peer(name).receive();
        assert_eq!(
            (message.topic.as_str(), message.text()),
            (topic, number.to_string())
        );
        words::check(&message, "", list);
    }
}

/// Each member must have got something, and all of them together each message once.
#[then(regex = r"^(\w+(?:, \w+)* and \w+) share the (\d+) messages$")]
async fn share(scene: &mut Scene, names: String, count: usize) {
    scene
        .act(move |room| {
            let names = names.replace(" and ", ", ");
            let names: Vec<&str> = names.split(", ").collect();
            let mut all = HashSet::new();
            let mut shares = vec![0; names.len()];
            while shares.iter().sum::<usize>() < count {
                for (name, share) in names.iter().zip(&mut shares) {
                    let patience = Duration::from_millis(20);
                    let message = room.client(name).poll_message(patience);
                    *share += usize::from(message.is_some());
                    all.extend(message.map(|message| message.text()));
                }
            }
            assert_eq!(all.len(), count, "each message once");
            assert!(
                shares.iter().all(|&share| share > 0),
                "{names:?} got {shares:?}"
            );
        })
        .await;
}

#[then(regex = r"^(\w+) is answered on the topic it asked for when (\w+) replies$")]
async fn is_answered(scene: &mut Scene, name: String, other: String) {
    scene
        .act(move |room| {
            let request = room
                .received
                .get(&other)
                .expect("it has seen the request")
                .clone();
            let topic = request
                .properties
                .text(id::RESPONSE_TOPIC)
                .expect("a reply is asked for");
            let token = request
                .properties
                .binary(id::CORRELATION_DATA)
                .expect("a correlation");
            let reply = Publish::new(topic, "reply").property(id::CORRELATION_DATA, token);
            room.peer(&other).publish(reply);
            let got = room.peer(&name).receive();
            assert_eq!(got.text(), "reply");
            assert_eq!(got.properties.binary(id::CORRELATION_DATA), Some(token));
        })
        .await;
}

/// Reads until the wanted value shows, for values that the broker refreshes by itself.
#[then(regex = r#"^(\w+) sooner or later receives "([^"]*)" on "([^"]*)"$"#)]
async fn sooner_or_later(scene: &mut Scene, name: String, payload: String, topic: String) {
    receive_until(scene, name, topic, move |text| text == payload).await;
}

#[then(regex = r#"^(\w+) sooner or later receives something like "([^"]*)" on "([^"]*)"$"#)]
async fn sooner_or_later_like(scene: &mut Scene, name: String, part: String, topic: String) {
    receive_until(scene, name, topic, move |text| text.contains(&part)).await;
}

#[then(regex = r#"^(\w+) sooner or later receives a number above (\d+) on "([^"]*)"$"#)]
async fn sooner_or_later_above(scene: &mut Scene, name: String, least: u64, topic: String) {
    let is_above = move |text: &str| text.parse::<u64>().is_ok_and(|number| number > least);
    receive_until(scene, name, topic, is_above).await;
}

async fn receive_until(
    scene: &mut Scene,
    name: String,
    topic: String,
    is_it: impl Fn(&str) -> bool + Send + 'static,
) {
    scene
        .act(move |room| {
            loop {
                let message = room.peer(&name).receive();
                if message.topic == topic && is_it(&message.text()) {
                    return;
                }
            }
        })
        .await;
}

#[then(regex = r#"^(\w+) receives a number on "([^"]*)"$"#)]
async fn receives_a_number(scene: &mut Scene, name: String, topic: String) {
    scene
        .act(move |room| {
            loop {
                let message = room.peer(&name).receive();
                if message.topic == topic {
                    let text = message.text();
                    assert!(text.parse::<f64>().is_ok(), "{text:?} on {topic}");
                    return;
                }
            }
        })
        .await;
}

#[given(regex = r#"^(\w+) receives something like "([^"]*)" on "([^"]*)"$"#)]
#[then(regex = r#"^(\w+) receives something like "([^"]*)" on "([^"]*)"$"#)]
async fn receives_something_like(scene: &mut Scene, name: String, part: String, topic: String) {
    scene
        .act(move |room| {
            loop {
                let message = room.peer(&name).receive();
                if message.topic == topic {
                    let text = message.text();
                    assert!(text.contains(&part), "{text:?} on {topic}");
                    return;
                }
            }
        })
        .await;
}

/// How long anything may take that the broker finds by itself.
const PATIENCE: Duration = Duration::from_mins(1);
