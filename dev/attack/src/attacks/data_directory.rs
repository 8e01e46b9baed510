//! The data directory goes away under the running broker: what it acknowledges afterwards is lost.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{Connect, Packet, Publish, Subscribe, Version};

use crate::broker::{Broker, Setup};
use crate::link::{Link, LinkError, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale};

/// The broker may take so long to notice, and acknowledges nothing afterwards.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);
/// The exit code of a broker whose store has failed.
const STORE_FAILED: i32 = 74;

pub(super) fn deleted(scale: Scale) -> Result<Outcome, AttackError> {
    attack(scale, |data| {
        // The broker may make a file meanwhile.
        while data.exists() {
            let _ = fs::remove_dir_all(data);
        }
        Ok(())
    })
}

pub(super) fn replaced(scale: Scale) -> Result<Outcome, AttackError> {
    attack(scale, |data| {
        fs::rename(data, data.with_extension("old"))?;
        fs::create_dir(data)
    })
}

fn attack(
    scale: Scale,
    harm: impl Fn(&Path) -> std::io::Result<()>,
) -> Result<Outcome, AttackError> {
    let mut broker = Broker::start(Setup {
        is_durable: true,
        ..Setup::default()
    })?;
    let mut away = Link::connect(broker.address, &Connect::v5("away").persistent())?;
    away.send(&Subscribe::to("t", 1).encode(Version::V5, 1))?;
    away.receive(PATIENCE)?;
    drop(away);
    let mut publisher = Link::connect(broker.address, &Connect::v5("publisher"))?;
    publish(&mut publisher)?;
    harm(&broker.data())?;
    let begin = Instant::now();
    let mut last = Duration::ZERO;
    let mut acknowledged = 0;
    let until = begin + NOTICED_WITHIN + scale.time();
    while Instant::now() < until && publish(&mut publisher).is_ok() {
        acknowledged += 1;
        last = begin.elapsed();
    }
    let ended = broker.ends_within(NOTICED_WITHIN)?;
    println!("  {acknowledged} messages acknowledged after it");
    let words = ended.map_or("it goes on".to_owned(), |status| status.to_string());
    let has_failed = ended.and_then(|status| status.code()) == Some(STORE_FAILED);
    Ok(Outcome::Measured(vec![
        Check::time("last acknowledgement", last, NOTICED_WITHIN),
        Check::must("the broker ends as with a failed store", words, has_failed),
    ]))
}

fn publish(publisher: &mut Link) -> Result<(), LinkError> {
    let message = Publish::new("t", "x").qos(1).packet_id(1);
    publisher.send(&message.encode(Version::V5))?;
    match publisher.receive(PATIENCE)? {
        Packet::Ack(ack) if ack.reason < 0x80 => Ok(()),
        Packet::Ack(ack) => Err(LinkError::Refused(ack.reason)),
        _ => Err(LinkError::Closed),
    }
}
