//! A publisher that is faster than a small disk is large.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use unbroken_acceptance::raw::{Connect, Packet, Publish, Subscribe, Version};

use crate::broker::{Broker, Setup};
use crate::link::{Link, LinkError, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale, Stage};

const MESSAGE_BYTES: usize = 64 * 1024;
const AT_ONCE: u16 = 64;

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    if !Uid::effective().is_root() {
        return Ok(Outcome::Skipped("only root mounts a small disk".to_owned()));
    }
    let place = tempfile::tempdir()?;
    let Some(_disk) = Mounted::at(place.path())? else {
        return Ok(Outcome::Skipped("no small disk can be mounted".to_owned()));
    };
    let setup = Setup {
        is_durable: true,
        ..Setup::default()
    };
    let mut stage = Stage::around(Broker::start_at(setup, place.path())?);
    let mut away = Link::connect(stage.broker.address, &Connect::v5("away").persistent())?;
    away.send(&Subscribe::to("flood", 1).encode(Version::V5, 1))?;
    away.receive(PATIENCE)?;
    drop(away);
    // 400 MiB at what a disk in memory takes; three times as long is enough to fill it.
    let (taken, refused) = publish(&stage, scale);
    println!("  {} MiB acknowledged, {refused} refused", taken / 16);
    let ended = stage.broker.ends_within(Duration::from_secs(2))?;
    let (broker, _) = stage.finish();
    let again = broker.start_again();
    let mut checks = vec![Check::must(
        "it goes on",
        ended.map_or("yes".to_owned(), |status| status.to_string()),
        ended.is_none(),
    )];
    let starts = again.as_ref().map_or_else(
        |error| error.to_string().lines().last().unwrap_or("").to_owned(),
        |_| "yes".to_owned(),
    );
    checks.push(Check::must("it starts again", starts, again.is_ok()));
    drop(again);
    Ok(Outcome::Measured(checks))
}

/// Until the time is over or the broker is gone. Returns how many were acknowledged and refused.
fn publish(stage: &Stage, scale: Scale) -> (u64, u64) {
    let (mut taken, mut refused) = (0, 0);
    let mut run = || -> Result<(), LinkError> {
        let mut publisher = Link::connect(stage.broker.address, &Connect::v5("publisher"))?;
        let payload: Vec<u8> = (0..MESSAGE_BYTES as u64).map(noise).collect();
        let until = Instant::now() + 2 * scale.time();
        let mut free: Vec<u16> = (1..=AT_ONCE).collect();
        while Instant::now() < until {
            if let Some(packet_id) = free.pop() {
                let message = Publish::new("flood", &payload).qos(1);
                publisher.send(&message.packet_id(packet_id).encode(Version::V5))?;
                continue;
            }
            match publisher.receive(PATIENCE)? {
                Packet::Ack(ack) => {
                    free.push(ack.packet_id);
                    let count = if ack.reason < 0x80 {
                        &mut taken
                    } else {
                        &mut refused
                    };
                    *count += 1;
                }
                Packet::Disconnect(reason) => return Err(LinkError::Refused(reason.code)),
                _ => {}
            }
        }
        Ok(())
    };
    // How it ended shows in the broker.
    let _ = run();
    (taken, refused)
}

/// A byte that no compression takes out.
fn noise(at: u64) -> u8 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .to_be_bytes()[0]
}

/// A disk in memory of a fixed size.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn at(place: &'a Path) -> std::io::Result<Option<Self>> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=400m", "attack"])
            .arg(place)
            .stderr(Stdio::null())
            .status()?;
        Ok(status.success().then_some(Self(place)))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Also while something there is still open.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
