//! A publisher that is faster than a small disk is large, and another program that fills the disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use unbroken_acceptance::raw::{AckKind, Connect, Packet, Publish, Subscribe, Version, ack};

use crate::broker::{Broker, Setup};
use crate::link::{Link, LinkError, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale, Stage, WHOLE_SECONDS};

const MESSAGE_BYTES: usize = 64 * 1024;
const AT_ONCE: u16 = 64;
/// Of the disks, in MiB.
const SIZES: [u32; 4] = [64, 128, 256, 400];
const SIZES_IN_SHORT: [u32; 1] = [64];
/// So long a flood takes at least, to fill a disk.
const ENOUGH: Duration = Duration::from_secs(2);
/// Within this time publishers are accepted again where there is space.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(20);
/// The longest pause in what a client receives before that is all.
const PAUSE: Duration = Duration::from_secs(3);
/// Quota exceeded.
const QUOTA: u8 = 0x97;

/// Disks in memory: a publisher at full speed, whose messages wait for a client that is away.
pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let is_whole = scale.seconds >= WHOLE_SECONDS;
    let sizes = if is_whole {
        &SIZES[..]
    } else {
        &SIZES_IN_SHORT
    };
    on_disks(sizes, |_, stage, _| {
        flood(stage, (scale.time() / 2).max(ENOUGH))
    })
}

/// The same, and another program takes the rest of the disk to the last byte.
pub(super) fn filled(scale: Scale) -> Result<Outcome, AttackError> {
    on_disks(&[256], |place, stage, filler| {
        let before = flood(stage, (scale.time() / 2).max(ENOUGH));
        fill(&place.join(filler));
        let after = flood(stage, ENOUGH);
        Sent {
            taken: before.taken + after.taken,
            refused: before.refused + after.refused,
            otherwise: before.otherwise + after.otherwise,
        }
    })
}

/// What became of the messages of an attack.
#[derive(Debug, Default)]
struct Sent {
    taken: u64,
    /// With [`QUOTA`].
    refused: u64,
    otherwise: u64,
}

/// On each disk: attacks, kills the broker and starts it again, fetches what waits.
fn on_disks(
    sizes: &[u32],
    attack: impl Fn(&Path, &mut Stage, &str) -> Sent,
) -> Result<Outcome, AttackError> {
    const FILLER: &str = "filler";
    if !Uid::effective().is_root() {
        return Ok(Outcome::Skipped("only root mounts a small disk".to_owned()));
    }
    let mut checks = Vec::new();
    for &mib in sizes {
        let place = tempfile::tempdir()?;
        let Some(_disk) = Mounted::at(place.path(), mib)? else {
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
        let sent = attack(place.path(), &mut stage, FILLER);
        println!(
            "  {mib} MiB: {} MiB acknowledged, {} messages refused",
            sent.taken * MESSAGE_BYTES as u64 / (1 << 20),
            sent.refused,
        );
        let mut check = |what, figure: &str, holds| {
            checks.push(Check::must(what, format!("{mib} MiB: {figure}"), holds));
        };
        let is_filled = place.path().join(FILLER).exists();
        let ended = stage.broker.ends_within(Duration::from_secs(2))?;
        if is_filled {
            // It may end, if what others left was not enough for what it had taken in.
            println!("  the broker: {ended:?}");
        } else {
            let figure = ended.map_or("yes".to_owned(), |status| status.to_string());
            check("it goes on", &figure, ended.is_none());
        }
        check(
            "some are refused",
            &sent.refused.to_string(),
            sent.refused > 0,
        );
        check(
            "with 0x97 only",
            &sent.otherwise.to_string(),
            sent.otherwise == 0,
        );
        let has_line = stage.broker.log().text().contains("the disk lacks space");
        check(
            "the log says so",
            if has_line { "yes" } else { "no" },
            has_line,
        );
        let (broker, _) = stage.finish();
        let broker = match broker.start_again() {
            Ok(broker) => broker,
            Err(error) => {
                let error = error.to_string();
                check("it starts again", error.lines().last().unwrap_or(""), false);
                continue;
            }
        };
        check("it starts again", "yes", true);
        // Without space the filler is in the way.
        let _ = fs::remove_file(place.path().join(FILLER));
        let fetched = fetch(&broker)?;
        check("messages are fetched", &fetched.to_string(), fetched > 0);
        let accepted = accepts_within(&broker)?;
        let figure = accepted.map_or("no".to_owned(), |time| {
            format!("{:.1} s", time.as_secs_f64())
        });
        check("it accepts again", &figure, accepted.is_some());
    }
    Ok(Outcome::Measured(checks))
}

/// Until the time is over or the broker is gone.
fn flood(stage: &Stage, time: Duration) -> Sent {
    let mut sent = Sent::default();
    let mut run = || -> Result<(), LinkError> {
        let mut publisher = Link::connect(stage.broker.address, &Connect::v5("publisher"))?;
        let payload: Vec<u8> = (0..MESSAGE_BYTES as u64).map(noise).collect();
        let until = Instant::now() + time;
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
                    let count = match ack.reason {
                        QUOTA => &mut sent.refused,
                        0..0x80 => &mut sent.taken,
                        _ => &mut sent.otherwise,
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
    sent
}

/// Takes what waits for the client that was away; how many messages that is.
fn fetch(broker: &Broker) -> Result<u64, LinkError> {
    let mut away = Link::connect(broker.address, &Connect::v5("away").persistent())?;
    let (mut count, mut last) = (0, Instant::now());
    while last.elapsed() < PAUSE {
        if let Some(Packet::Publish(message)) = away.poll(PAUSE)? {
            away.send(&ack(AckKind::PubAck, message.packet_id))?;
            (count, last) = (count + 1, Instant::now());
        }
    }
    Ok(count)
}

/// When a message that has to be stored is accepted, if it is.
fn accepts_within(broker: &Broker) -> Result<Option<Duration>, LinkError> {
    let mut publisher = Link::connect(broker.address, &Connect::v5("publisher"))?;
    let begin = Instant::now();
    while begin.elapsed() < ACCEPTED_WITHIN {
        let message = Publish::new("flood", b"x").qos(1).packet_id(1);
        publisher.send(&message.encode(Version::V5))?;
        if let Packet::Ack(ack) = publisher.receive(PATIENCE)?
            && ack.reason < 0x80
        {
            return Ok(Some(begin.elapsed()));
        }
        // Not in a loop without a pause.
        publisher.poll(Duration::from_millis(100))?;
    }
    Ok(None)
}

/// Takes the rest of a disk, as another program might.
fn fill(path: &Path) {
    let Ok(mut file) = File::create(path) else {
        return;
    };
    let mut piece = vec![7; 1 << 20];
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
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
    fn at(place: &'a Path, mib: u32) -> std::io::Result<Option<Self>> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "attack"])
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
