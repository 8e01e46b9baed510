//! Millions of messages that wait for a session while the broker is killed: how soon it is there
//! again, and how soon a session that waits for one among them has it. Then all are read: that the
//! broker was there soon counts only if they were.

use std::{path::Path, time::Instant};

use super::row;
use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    grouped, peer,
};

pub(super) fn figures(unbroken: &Path, count: u32) -> Result<Vec<Figure>, BenchError> {
    let peer = peer::roomy(unbroken)?;
    let mut running = peer.start()?;
    let target = running.target;
    Client::subscribing(target, "late", "all")?.leave()?;
    Client::subscribing(target, "rare", "one")?.leave()?;
    let mut publisher = Client::publishing(target)?;
    publisher.publish("all", (0..count / 2).map(row::payload))?;
    publisher.publish("one", [row::payload(0)])?;
    publisher.publish("all", (count / 2..count).map(row::payload))?;

    let killed = Instant::now();
    peer.restart(&mut running)?;
    let late = Client::returning(target, "late")?;
    let reopened = killed.elapsed();
    drop(late);
    let asked = Instant::now();
    let mut rare = Client::returning(target, "rare")?.messages();
    let first = rare.next()?.1;
    let found = asked.elapsed();

    let mut first = Some(first);
    let mut late = Client::returning(target, "late")?.messages();
    let mut publisher = Client::publishing(target)?;
    publisher.publish("one", [row::END])?;
    publisher.publish("all", [row::END])?;
    row::is_whole("the only receiver", 1, || match first.take() {
        Some(message) => Ok(message),
        None => Ok(rare.next()?.1),
    })?;
    row::is_whole("the late receiver", count, || Ok(late.next()?.1))?;
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
