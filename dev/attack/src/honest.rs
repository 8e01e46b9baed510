//! The honest client beside an attack: it sends itself a message every 20 ms.
//!
//! A message is due at its time, whether or not the one before it has come: a broker that stalls
//! for a second delays fifty messages, and all of them count. Those before an attack begins count
//! apart, where there is such a time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use unbroken_acceptance::raw::{AckKind, Connect, Packet, Publish, Subscribe, Version, ack};

use crate::link::{Link, LinkError};

const EVERY: Duration = Duration::from_millis(20);
const TOPIC: &str = "honest/own";

/// The client, while it runs.
#[derive(Debug)]
pub(crate) struct Honest {
    signals: Arc<Signals>,
    thread: JoinHandle<Record>,
}

/// What its thread is asked to do.
#[derive(Debug, Default)]
struct Signals {
    stop: AtomicBool,
    /// No attack has begun yet.
    is_calm: AtomicBool,
}

/// What became of its messages.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// From when a message was due to when it came, in order of size.
    delays: Vec<Duration>,
    /// The same before the attack.
    calm: Vec<Duration>,
    /// Refused messages, refused and lost connections.
    pub(crate) refusals: u32,
    /// Messages that had not come when their connection ended.
    pub(crate) lost: usize,
}

impl Honest {
    /// `is_calm`: the attack begins [later](Self::before_the_attack).
    pub(crate) fn start(address: SocketAddr, login: Option<(&str, &str)>, is_calm: bool) -> Self {
        let mut connect = Connect::v5("honest").keep_alive(60);
        if let Some((user, password)) = login {
            connect = connect.user_name(user).password(password);
        }
        let signals = Arc::<Signals>::default();
        signals.is_calm.store(is_calm, Ordering::Relaxed);
        let asked = Arc::clone(&signals);
        let thread = thread::spawn(move || {
            let mut record = Record::default();
            while !asked.stop.load(Ordering::Relaxed) {
                let mut due = BTreeMap::new();
                let outcome = exchange(address, &connect, &asked, &mut due, &mut record);
                if outcome.is_err() {
                    record.refusals += 1;
                    record.lost += due.len();
                    thread::park_timeout(EVERY);
                }
            }
            record.delays.sort_unstable();
            record.calm.sort_unstable();
            record
        });
        Self { signals, thread }
    }

    /// Lets it be for this time. It counts apart from what comes then, as does the time before.
    pub(crate) fn before_the_attack(&self, time: Duration) {
        thread::sleep(time);
        self.signals.is_calm.store(false, Ordering::Relaxed);
    }

    /// Ends it and gives its record.
    pub(crate) fn finish(self) -> Record {
        self.signals.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Goes on until it is stopped, or the connection ends.
fn exchange(
    address: SocketAddr,
    connect: &Connect,
    asked: &Signals,
    due: &mut BTreeMap<u64, Instant>,
    record: &mut Record,
) -> Result<(), LinkError> {
    let mut link = Link::connect(address, connect)?;
    link.send(&Subscribe::to(TOPIC, 1).encode(Version::V5, 1))?;
    let mut next = Instant::now();
    let mut number = 0u64;
    while !asked.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now >= next {
            // Up to 65,535 unanswered would be 20 minutes.
            let packet_id = u16::try_from(number % 60_000 + 2).unwrap_or(2);
            let message = Publish::new(TOPIC, number.to_be_bytes()).qos(1);
            link.send(&message.packet_id(packet_id).encode(Version::V5))?;
            due.insert(number, next);
            number += 1;
            next += EVERY;
            continue;
        }
        if let Some(packet) = link.poll(next - now)? {
            let is_calm = asked.is_calm.load(Ordering::Relaxed);
            take(&mut link, packet, due, (record, is_calm))?;
        }
    }
    let now = Instant::now();
    let late = std::mem::take(due).into_values().map(|due| now - due);
    record.delays.extend(late);
    Ok(())
}

fn take(
    link: &mut Link,
    packet: Packet,
    due: &mut BTreeMap<u64, Instant>,
    (record, is_calm): (&mut Record, bool),
) -> Result<(), LinkError> {
    match packet {
        Packet::Publish(message) => {
            let number = message.payload.try_into().map(u64::from_be_bytes);
            if let Some(begin) = number.ok().and_then(|number| due.remove(&number)) {
                let delays = if is_calm {
                    &mut record.calm
                } else {
                    &mut record.delays
                };
                delays.push(begin.elapsed());
            }
            link.send(&ack(AckKind::PubAck, message.packet_id))?;
        }
        Packet::Ack(ack) if ack.reason >= 0x80 => record.refusals += 1,
        Packet::Disconnect(reason) => return Err(LinkError::Refused(reason.code)),
        _ => {}
    }
    Ok(())
}

impl Record {
    pub(crate) fn count(&self) -> usize {
        self.delays.len()
    }

    /// The delay that this share of the messages did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.delays, percent)
    }

    /// The same before the attack; `None`: nothing was sent then.
    pub(crate) fn calm_percentile(&self, percent: usize) -> Option<Duration> {
        (!self.calm.is_empty()).then(|| percentile(&self.calm, percent))
    }

    pub(crate) fn worst(&self) -> Duration {
        self.delays.last().copied().unwrap_or_default()
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() * percent / 100).min(last);
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_delays() {
        let record = Record {
            delays: (1..=200).map(Duration::from_millis).collect(),
            ..Record::default()
        };
        assert_eq!(record.percentile(50), Duration::from_millis(101));
        assert_eq!(record.percentile(99), Duration::from_millis(199));
        assert_eq!(record.worst(), Duration::from_millis(200));
        assert_eq!(record.calm_percentile(99), None);
        assert_eq!(Record::default().percentile(50), Duration::ZERO);
    }
}
