//! Topics and filters that make matching dear: filters that share every prefix, so that each level
//! that may be `a` or `+` doubles the nodes that one publish visits; and filters for which many
//! retained messages are looked at in vain.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::Instant;

use unbroken_acceptance::raw::{Connect, Packet, Publish, Subscribe, Version, Will};

use crate::broker::Setup;
use crate::link::{Link, PATIENCE};
use crate::stage::{AttackError, Check, MEMORY_MIB, Outcome, Scale, Stage, unharmed};

/// One way to make matching dear.
struct Shape {
    name: &'static str,
    attack: fn(SocketAddr, Scale) -> Result<String, AttackError>,
}

const SHAPES: [Shape; 8] = [
    Shape {
        name: "one client, 8,192 filters of 200 levels",
        attack: one_client,
    },
    Shape {
        name: "8 clients, all deep levels there are",
        attack: |address, scale| all_levels(address, scale, 1, 0),
    },
    Shape {
        name: "the same, 32 publishers",
        attack: |address, scale| all_levels(address, scale, 32, 0),
    },
    Shape {
        name: "the same, and each gets its own but for No Local",
        attack: |address, scale| all_levels(address, scale, 32, NO_LOCAL),
    },
    Shape {
        name: "filters of 10 levels, 32 publishers",
        attack: few_levels,
    },
    Shape {
        name: "wills on deep topics, 200 at once",
        attack: wills,
    },
    Shape {
        name: "queries for retained messages, 32 clients",
        attack: queries,
    },
    Shape {
        name: "16 clients, filters of 200 levels that nothing shares",
        attack: own_levels,
    },
];

/// Levels that are `a` or `+`; two to this power is the number of filters.
const DOUBLING: u32 = 13;
const LEVELS: usize = 200;
const FILTERS_AT_ONCE: usize = 128;
/// Publishes that wait for an acknowledgement: 15 KB.
const AT_ONCE: u16 = 38;
/// Levels of which no doubling is counted, and clients that together fill the limit of the others.
const FREE: u32 = 10;
const CLIENTS: u32 = 8;
/// Levels of their filters: 32 are deep.
const DEEP: usize = 42;
/// The option bit of a subscription.
const NO_LOCAL: u8 = 0b100;
const WILLS: usize = 200;
const RETAINED: u32 = 8_000;

pub(super) fn run(scale: Scale) -> Result<Outcome, AttackError> {
    let each = Scale {
        seconds: (scale.seconds / 4).max(1),
    };
    let mut checks = Vec::new();
    for shape in &SHAPES {
        println!("  {}", shape.name);
        let stage = Stage::set(Setup::default())?;
        let told = (shape.attack)(stage.broker.address, each)?;
        println!("  {told}");
        let (broker, honest) = stage.finish();
        checks.extend(unharmed(&honest, scale));
        checks.push(Check::mib("memory", broker.usage().peak_mib(), MEMORY_MIB));
    }
    Ok(Outcome::Measured(checks))
}

fn one_client(address: SocketAddr, scale: Scale) -> Result<String, AttackError> {
    let mut attacker = Link::connect(address, &Connect::v5("attacker"))?;
    let filters = (0..1 << DOUBLING).map(|number| filter(number, DOUBLING, LEVELS, "z"));
    let taken = subscribe(&mut attacker, filters, 1)?;
    let published = publish(&mut attacker, scale, LEVELS, "q")?;
    Ok(format!(
        "{taken} subscriptions taken, {published} publishes answered"
    ))
}

/// Together the clients get as many deep levels as there are; then some publish what visits all.
fn all_levels(
    address: SocketAddr,
    scale: Scale,
    publishers: usize,
    options: u8,
) -> Result<String, AttackError> {
    let end = if options == 0 { "z" } else { "+" };
    let mut taken = 0;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let mut link = Link::connect(address, &Connect::v5(&format!("subscriber-{client}")))?;
        let filters = part(client).map(|number| filter(number, FREE, DEEP, end));
        taken += subscribe(&mut link, filters, options | 1)?;
        clients.push(link);
    }
    // Those that subscribed publish, so that No Local concerns them.
    for more in clients.len()..publishers {
        let name = format!("publisher-{more}");
        clients.push(Link::connect(address, &Connect::v5(&name))?);
    }
    clients.truncate(publishers.max(CLIENTS as usize));
    let published = publish_all(clients, publishers, scale, DEEP)?;
    Ok(format!(
        "{taken} subscriptions taken, {published} publishes answered"
    ))
}

/// The filters of one of the clients.
fn part(client: u32) -> Range<u32> {
    let each = (1 << FREE) / CLIENTS;
    client * each..(client + 1) * each
}

fn few_levels(address: SocketAddr, scale: Scale) -> Result<String, AttackError> {
    let mut attacker = Link::connect(address, &Connect::v5("attacker"))?;
    let levels = FREE as usize;
    let filters = (0..1 << FREE).map(|number| filter(number, FREE - 1, levels, "z"));
    let taken = subscribe(&mut attacker, filters, 1)?;
    let mut clients = vec![attacker];
    for client in 1..32 {
        let name = format!("publisher-{client}");
        clients.push(Link::connect(address, &Connect::v5(&name))?);
    }
    let published = publish_all(clients, 32, scale, levels)?;
    Ok(format!(
        "{taken} subscriptions taken, {published} publishes answered"
    ))
}

/// All connections end at once, and each leaves a will that visits all deep levels.
fn wills(address: SocketAddr, scale: Scale) -> Result<String, AttackError> {
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let mut link = Link::connect(address, &Connect::v5(&format!("subscriber-{client}")))?;
        let filters = part(client).map(|number| filter(number, FREE, DEEP, "z"));
        subscribe(&mut link, filters, 1)?;
        clients.push(link);
    }
    let until = Instant::now() + scale.time();
    let mut published = 0;
    while Instant::now() < until {
        let mut leaving = Vec::new();
        for client in 0..WILLS {
            let topic = format!("{}q{client}", "a/".repeat(DEEP - 1));
            let connect = Connect::v5(&format!("will-{client}")).will(Will::new(&topic, "gone"));
            leaving.push(Link::connect(address, &connect)?);
        }
        published += leaving.len();
    }
    Ok(format!("{published} wills"))
}

/// Many retained messages, of which none matches, though only the last level says so.
fn queries(address: SocketAddr, scale: Scale) -> Result<String, AttackError> {
    let mut attacker = Link::connect(address, &Connect::v5("attacker"))?;
    let lead = "a/".repeat(LEVELS - 2);
    for number in 0..RETAINED {
        let message = Publish::new(&format!("{lead}{number}/b"), "x").retained();
        attacker.send(&message.encode(Version::V5))?;
    }
    let in_vain = format!("{}/z", vec!["+"; LEVELS - 1].join("/"));
    let query = |at: usize| -> Result<usize, AttackError> {
        let mut link = Link::connect(address, &Connect::v5(&format!("query-{at}")))?;
        let until = Instant::now() + scale.time();
        let mut asked = 0;
        while Instant::now() < until {
            asked += usize::try_from(subscribe(&mut link, [in_vain.clone()], 0)?).unwrap_or(0);
        }
        Ok(asked)
    };
    let asked = thread::scope(|scope| {
        let all: Vec<_> = (0..32).map(|at| scope.spawn(move || query(at))).collect();
        all.into_iter()
            .map(|one| one.join().unwrap_or(Ok(0)))
            .sum::<Result<usize, AttackError>>()
    })?;
    Ok(format!("{asked} queries"))
}

/// Each level is a text of its own, so that the tree is as large as it can be.
fn own_levels(address: SocketAddr, _: Scale) -> Result<String, AttackError> {
    let (mut clients, mut taken) = (Vec::new(), 0);
    for client in 0..16 {
        let mut link = Link::connect(address, &Connect::v5(&format!("subscriber-{client}")))?;
        let filter = |number: u32| {
            let level = |level| format!("{client}-{number}-{level}");
            (0..LEVELS).map(level).collect::<Vec<_>>().join("/")
        };
        taken += subscribe(&mut link, (0..1_000).map(filter), 1)?;
        clients.push(link);
    }
    Ok(format!(
        "{taken} subscriptions taken, {} levels",
        taken * LEVELS as u64
    ))
}

/// Returns how many of them the broker took.
fn subscribe(
    attacker: &mut Link,
    filters: impl IntoIterator<Item = String>,
    options: u8,
) -> Result<u64, AttackError> {
    let all: Vec<String> = filters.into_iter().collect();
    let mut taken = 0;
    for some in all.chunks(FILTERS_AT_ONCE) {
        let mut request = Subscribe::default();
        for filter in some {
            request = request.and(filter, options);
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

/// The first levels are `a` or `+`, by the bits of the number; those behind are `a`.
fn filter(number: u32, doubling: u32, levels: usize, end: &str) -> String {
    let level = |at: usize| {
        let is_free = at < doubling as usize && number >> at & 1 == 1;
        if is_free { "+" } else { "a" }
    };
    let levels: Vec<_> = (0..levels - 1).map(level).chain([end]).collect();
    levels.join("/")
}

/// The first so many of the clients publish at the same time.
fn publish_all(
    mut clients: Vec<Link>,
    publishers: usize,
    scale: Scale,
    levels: usize,
) -> Result<u64, AttackError> {
    thread::scope(|scope| {
        let some = clients.iter_mut().take(publishers).enumerate();
        let all: Vec<_> = some
            .map(|(at, link)| scope.spawn(move || publish(link, scale, levels, &format!("{at}-"))))
            .collect();
        all.into_iter().map(|one| one.join().unwrap_or(Ok(0))).sum()
    })
}

/// Each has a topic of its own, so that no cached route answers. Returns how many were answered.
fn publish(
    attacker: &mut Link,
    scale: Scale,
    levels: usize,
    end: &str,
) -> Result<u64, AttackError> {
    let until = Instant::now() + scale.time();
    let lead = "a/".repeat(levels - 1);
    let (mut sent, mut answered) = (0, 0);
    let mut free: Vec<u16> = (1..=AT_ONCE).collect();
    while Instant::now() < until {
        if let Some(packet_id) = free.pop() {
            let topic = format!("{lead}{end}{sent}");
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
        let filter = |number| filter(number, DOUBLING, LEVELS, "z");
        assert!(filter(0).starts_with("a/a/a/"));
        assert!(filter(5).starts_with("+/a/+/a/"));
        assert_eq!(filter(5).split('/').count(), LEVELS);
        assert!(filter(8_191).ends_with("a/z"));
    }
}
