//! Many clients at once.

use std::net::Ipv4Addr;

use crate::Client;
use crate::features::scene::Scene;
use crate::raw::{Connect, Packet, Publish};
use cucumber::{given, then, when};

#[given(regex = r#"^(\d+) clients each subscribe to "([^"]*)"$"#)]
async fn clients_each_subscribe(scene: &mut Scene, count: usize, filter: String) {
    scene
        .act(move |room| {
            for number in 0..count {
                let name = format!("client {number}");
                let mut client = room.server().connect(&name);
                client.subscribe_to(&filter, 1);
                room.crowd.push(client);
            }
        })
        .await;
}

/// They stay connected as long as the broker lets them. `somewhere else`: at another address.
#[when(regex = r#"^(\d+) clients( somewhere else)? guess the password of "([^"]*)"$"#)]
async fn clients_guess(scene: &mut Scene, count: usize, elsewhere: String, user: String) {
    let last = if elsewhere.is_empty() { 1 } else { 2 };
    let source = Ipv4Addr::new(127, 0, 0, last);
    scene
        .act(move |room| {
            for number in 0..count {
                let connect = Connect::new(room.version, &format!("guess {number}"));
                let connect = connect
                    .user_name(&user)
                    .password(&format!("guess {number}"));
                let client = room.server().attempt_from(source, &connect);
                room.crowd.push(client);
            }
        })
        .await;
}

/// Each client sends in a thread of its own and reads in it as well, as fast as it can.
#[when(regex = r#"^each of them publishes (\d+) messages to "([^"]*)" at QoS 1 at the same time$"#)]
async fn each_publishes(scene: &mut Scene, count: u16, topic: String) {
    scene
        .act(move |room| {
            let total = room.crowd.len() * usize::from(count);
            let topic = &topic;
            std::thread::scope(|scope| {
                for client in &mut room.crowd {
                    scope.spawn(move || flood(client, topic, count, total));
                }
            });
        })
        .await;
}

#[then(regex = r"^each of them receives all \d+ messages$")]
async fn each_received(scene: &mut Scene) {
    // The step before ends only when each has; none may get more.
    scene
        .act(|room| room.crowd.iter_mut().for_each(Client::expect_pong))
        .await;
}

/// Publishes with a few messages unacknowledged at a time, and receives what all of them send.
fn flood(client: &mut Client, topic: &str, count: u16, total: usize) {
    const WINDOW: u16 = 16;
    let (mut sent, mut acknowledged, mut received) = (0, 0, 0);
    while acknowledged < count || received < total {
        while sent < count && sent - acknowledged < WINDOW {
            sent += 1;
            client.send_publish(&Publish::new(topic, "x").qos(1).packet_id(sent));
        }
        match client.receive() {
            Packet::Publish(message) => {
                client.complete(&message);
                received += 1;
            }
            Packet::Ack(_) => acknowledged += 1,
            other => panic!("{other:?}"),
        }
    }
}
