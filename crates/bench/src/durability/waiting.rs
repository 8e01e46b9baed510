//! Millions of messages that wait for a session while the broker is killed: how soon it is there
//! again, and how soon a session that waits for one among them has it.

use std::{path::Path, time::Instant};

use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    grouped, peer,
};

const PAYLOAD: [u8; 100] = [b'x'; 100];

pub(super) fn figures(unbroken: &Path, count: u32) -> Result<Vec<Figure>, BenchError> {
    let peer = peer::roomy(unbroken)?;
    let mut running = peer.start()?;
    let target = running.target;
    Client::subscribing(target, "late", "all")?.leave()?;
    Client::subscribing(target, "rare", "one")?.leave()?;
    let mut publisher = Client::publishing(target)?;
    publisher.publish("all", &PAYLOAD, count / 2)?;
    publisher.publish("one", b"here", 1)?;
    publisher.publish("all", &PAYLOAD, count - count / 2)?;

    let killed = Instant::now();
    peer.restart(&mut running)?;
    let late = Client::returning(target, "late")?;
    let reopened = killed.elapsed();
    drop(late);
    let asked = Instant::now();
    let mut rare = Client::returning(target, "rare")?;
    let message = rare.next_message()?;
    let found = asked.elapsed();
    if !message.ends_with(b"here") {
        return Err(BenchError::Faulty {
            row: "waiting",
            peer: peer.name,
        });
    }
    let count = grouped(f64::from(count));
    let reopen = format!(
        "from the kill of a broker with {count} queued messages to the CONNACK of their receiver"
    );
    let rare = format!("from CONNECT to the only message for a session, among {count} others");
    Ok(vec![
        Figure::new("reopen", "", "s", Some(Bar::AtMost(5.0)))
            .titled(reopen)
            .with(reopened.as_secs_f64()),
        Figure::new("rare", "", "ms", Some(Bar::AtMost(50.0)))
            .titled(rare)
            .with(found.as_secs_f64() * 1e3),
    ])
}
