//! Subscribers that do not read: what waits for them is in the broker's memory.

use std::time::Instant;

use unbroken_acceptance::raw::{Connect, Packet, Publish, Subscribe, Version};

use crate::broker::Setup;
use crate::link::{Link, PATIENCE};
use crate::stage::{
    AttackError, Check, MEMORY_MIB, Outcome, Scale, Stage, afterwards_mib, settled_mib, unharmed,
};

const READERS: u64 = 40;
/// More than may wait for one of them.
const MESSAGES: u16 = 80;
const MESSAGE_BYTES: usize = 1024 * 1024;

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(Setup {
        config: scale.budgets(),
        ..Setup::default()
    })?;
    let address = stage.broker.address;
    let mut readers = Vec::new();
    for number in 0..scale.of(READERS) {
        let mut reader = Link::connect(address, &Connect::v5(&format!("reader-{number}")))?;
        let own = Subscribe::to(&format!("t/{number}"), 1);
        reader.send(&own.encode(Version::V5, 1))?;
        reader.receive(PATIENCE)?;
        readers.push(reader);
    }
    let mut publisher = Link::connect(address, &Connect::v5("publisher"))?;
    let payload = vec![b'x'; MESSAGE_BYTES];
    let until = Instant::now() + 6 * scale.time();
    let mut refused = 0;
    for packet_id in 1..=MESSAGES {
        for number in 0..readers.len() {
            let message = Publish::new(&format!("t/{number}"), &payload).qos(1);
            publisher.send(&message.packet_id(packet_id).encode(Version::V5))?;
            match publisher.receive(PATIENCE)? {
                Packet::Ack(ack) if ack.reason >= 0x80 => refused += 1,
                _ => {}
            }
        }
        if Instant::now() > until {
            break;
        }
    }
    println!(
        "  {} subscribers, {refused} messages refused",
        readers.len()
    );
    drop(readers);
    let limit = scale.of(MEMORY_MIB);
    let left = settled_mib(&stage, afterwards_mib(limit));
    let (broker, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.push(Check::mib("memory", broker.usage().peak_mib(), limit));
    checks.push(Check::mib("memory afterwards", left, afterwards_mib(limit)));
    Ok(Outcome::Measured(checks))
}
