//! Limits that all clients share: one client takes everything.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use unbroken_acceptance::raw::{Connect, DISCONNECT, Packet, Publish, Subscribe, Version};

use crate::broker::Setup;
use crate::link::{Link, LinkError, PATIENCE};
use crate::stage::{AttackError, Check, Outcome, Scale, Stage, unharmed};

/// Small limits: what matters is who may fill them.
const CONFIG: &str =
    "[limits]\nretained_messages_max = 20000\nsessions_max = 2000\nconnections_max = 1000\n";
const RETAINED: u64 = 25_000;
const SESSIONS: u64 = 2_500;
const CONNECTIONS: u64 = 1_100;
const AT_ONCE: u16 = 500;
/// Another address of this machine.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn setup() -> Setup {
    Setup {
        config: CONFIG.to_owned(),
        ..Setup::default()
    }
}

pub(super) fn retained(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(setup())?;
    let begin = Instant::now();
    let (taken, refused) = fill_retained(stage.broker.address)?;
    println!(
        "  {taken} retained messages acknowledged, {refused} refused, in {:.1} s of at most {} s",
        begin.elapsed().as_secs_f64(),
        scale.seconds
    );
    let (answer, is_kept) = retain_one(stage.broker.address)?;
    let (_, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    checks.push(Check::must(
        "another client's retained message is acknowledged and kept",
        format!("{answer:#04x}, kept: {is_kept}"),
        answer < 0x80 && is_kept,
    ));
    checks.push(Check::must(
        "none is acknowledged with success and not kept",
        format!("{taken} acknowledged"),
        taken <= 20_000 && (answer >= 0x80 || is_kept),
    ));
    Ok(Outcome::Measured(checks))
}

/// How many were acknowledged, and how many refused.
fn fill_retained(address: SocketAddr) -> Result<(u64, u64), AttackError> {
    let mut attacker = Link::connect(address, &Connect::v5("attacker"))?;
    let (mut taken, mut refused) = (0, 0);
    let mut sent = 0;
    let mut free: VecDeque<u16> = (1..=AT_ONCE).collect();
    while taken + refused < RETAINED {
        if sent < RETAINED
            && let Some(packet_id) = free.pop_front()
        {
            let message = Publish::new(&format!("r/{sent}"), "x").retained().qos(1);
            attacker.send(&message.packet_id(packet_id).encode(Version::V5))?;
            sent += 1;
            continue;
        }
        match attacker.receive(PATIENCE)? {
            Packet::Ack(ack) => {
                free.push_back(ack.packet_id);
                let count = if ack.reason < 0x80 {
                    &mut taken
                } else {
                    &mut refused
                };
                *count += 1;
            }
            Packet::Disconnect(reason) => return Err(LinkError::Refused(reason.code).into()),
            _ => {}
        }
    }
    Ok((taken, refused))
}

/// The answer to an honest retained message, and whether a subscriber gets it.
fn retain_one(address: SocketAddr) -> Result<(u8, bool), AttackError> {
    let mut other = Link::open_from(ELSEWHERE, address)?;
    other.log_in(&Connect::v5("other"))?;
    let message = Publish::new("other/state", "on").retained().qos(1);
    other.send(&message.packet_id(1).encode(Version::V5))?;
    let answer = loop {
        if let Packet::Ack(ack) = other.receive(PATIENCE)? {
            break ack.reason;
        }
    };
    other.send(&Subscribe::to("other/state", 0).encode(Version::V5, 2))?;
    other.send(&unbroken_acceptance::raw::PINGREQ)?;
    // The retained message comes before the answer to what was sent behind the subscription.
    let mut is_kept = false;
    loop {
        match other.receive(PATIENCE)? {
            Packet::Publish(_) => is_kept = true,
            Packet::PingResp => return Ok((answer, is_kept)),
            _ => {}
        }
    }
}

pub(super) fn sessions(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(setup())?;
    let address = stage.broker.address;
    let (mut taken, mut refused) = (0u64, 0u64);
    for number in 0..SESSIONS {
        let connect = Connect::v5(&format!("attacker-{number}")).persistent();
        match Link::connect(address, &connect) {
            Ok(mut link) => {
                taken += 1;
                link.send(&DISCONNECT)?;
            }
            Err(LinkError::Refused(_) | LinkError::Closed) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!("  {taken} sessions, {refused} refused");
    let connect = Connect::v5("other").persistent();
    comes_from_elsewhere(
        stage,
        scale,
        &connect,
        "a client from another address gets a session",
    )
}

pub(super) fn connections(scale: Scale) -> Result<Outcome, AttackError> {
    let stage = Stage::set(setup())?;
    let mut open = Vec::new();
    let mut refused = 0u64;
    for number in 0..CONNECTIONS {
        match Link::connect(
            stage.broker.address,
            &Connect::v5(&format!("attacker-{number}")),
        ) {
            Ok(link) => open.push(link),
            Err(LinkError::Refused(_) | LinkError::Closed) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!("  {} connections, {refused} refused", open.len());
    comes_from_elsewhere(
        stage,
        scale,
        &Connect::v5("other"),
        "a client from another address connects",
    )
}

/// Checks that a client from another address is let in, and that the honest one was unharmed.
fn comes_from_elsewhere(
    stage: Stage,
    scale: Scale,
    connect: &Connect,
    what: &'static str,
) -> Result<Outcome, AttackError> {
    let mut other = Link::open_from(ELSEWHERE, stage.broker.address)?;
    let answer = other.log_in(connect);
    let (_, honest) = stage.finish();
    let mut checks = unharmed(&honest, scale);
    let figure = answer
        .as_ref()
        .map_or_else(ToString::to_string, |()| "yes".to_owned());
    checks.push(Check::must(what, figure, answer.is_ok()));
    Ok(Outcome::Measured(checks))
}
