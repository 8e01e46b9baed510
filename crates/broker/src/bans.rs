//! Who may not connect: bans that commands have made, and addresses whose logins failed too often.
//!
//! ```text
//! address    at accept, and behind a PROXY header with CONNECT
//! client id  with CONNECT
//! user       with CONNECT, and when a source has found the user
//! ```
//!
//! Invariants:
//! - A ban is in this table before the shards end the connections that it is about, so no client
//!   comes in between.
//! - Automatic bans are in memory only: a flood of guesses writes nothing to the disk.
//! - Locks are held for a look only, and none is taken while there is no ban.
//!
//! Deliberately absent: the store ([`crate::stored_access`]).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use unbroken_store::access::{Ban, Banned};

use crate::bounds::FAILED_LOGINS;
use crate::config::{AutomaticBans, Network};
use crate::source::Source;

/// The bans in force; one for all listeners and shards.
#[derive(Debug, Default)]
pub(crate) struct Bans {
    /// Whether a look is worth it.
    has_some: AtomicBool,
    table: RwLock<Table>,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<Box<str>, Until>,
    users: HashMap<Box<str>, Until>,
    addresses: HashMap<IpAddr, Until>,
    networks: Vec<(Network, Until)>,
    automatic: HashMap<Source, (IpAddr, Instant)>,
}

/// When a ban ends; `None`: when it is removed.
type Until = Option<SystemTime>;

/// Failed logins of addresses that may be banned for them.
#[derive(Debug, Default)]
struct Failures {
    rules: AutomaticBans,
    /// In the window that began then.
    counts: HashMap<Source, (Instant, u32)>,
    /// In the order in which the windows began.
    order: VecDeque<(Instant, Source)>,
}

/// An address whose logins failed too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutomaticBan {
    pub(crate) address: IpAddr,
    /// How long it lasts from now.
    pub(crate) left: Duration,
}

impl Bans {
    /// Adds a ban, in place of one of the same.
    pub(crate) fn set(&self, banned: &Banned, ban: &Ban) {
        let until = ban
            .until_ms
            .map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
        let mut table = self.write();
        match banned {
            Banned::Client(name) => drop(table.clients.insert(name.as_str().into(), until)),
            Banned::User(name) => drop(table.users.insert(name.as_str().into(), until)),
            Banned::Address(text) => {
                if let Ok(network) = text.parse::<Network>() {
                    table.remove_network(network);
                    match network.as_address() {
                        Some(address) => drop(table.addresses.insert(address, until)),
                        None => table.networks.push((network, until)),
                    }
                }
            }
        }
        self.has_some.store(true, Ordering::Release);
    }

    /// Removes a ban, if it is there.
    pub(crate) fn remove(&self, banned: &Banned) {
        let mut table = self.write();
        match banned {
            Banned::Client(name) => drop(table.clients.remove(name.as_str())),
            Banned::User(name) => drop(table.users.remove(name.as_str())),
            Banned::Address(text) => {
                if let Ok(network) = text.parse() {
                    table.remove_network(network);
                }
            }
        }
        self.has_some.store(!table.is_empty(), Ordering::Release);
    }

    /// Removes automatic bans of addresses of this network. Returns whether there were some.
    pub(crate) fn lift(&self, network: Network) -> bool {
        let mut table = self.write();
        let before = table.automatic.len();
        let is_other =
            |_: &Source, (address, _): &mut (IpAddr, Instant)| !network.contains(*address);
        table.automatic.retain(is_other);
        self.has_some.store(!table.is_empty(), Ordering::Release);
        table.automatic.len() < before
    }

    /// Why a client with this address may not connect.
    pub(crate) fn of_address(&self, address: IpAddr, now: Instant) -> Option<&'static str> {
        if !self.has_some() {
            return None;
        }
        let address = address.to_canonical();
        let table = self.read();
        let holds = |until: &Until| holds(*until);
        let networks = || {
            let mut networks = table.networks.iter();
            networks.any(|(network, until)| network.contains(address) && holds(until))
        };
        if table.addresses.get(&address).is_some_and(holds) || networks() {
            return Some("its address is banned");
        }
        let automatic = table.automatic.get(&Source::of(Some(address)));
        let is_banned = automatic.is_some_and(|(_, until)| now < *until);
        is_banned.then_some("its address is banned: too many logins from it have failed")
    }

    /// Why a client with this id may not connect.
    pub(crate) fn of_client(&self, client_id: &str) -> Option<&'static str> {
        let is_banned = self.has_some() && {
            let table = self.read();
            table.clients.get(client_id).is_some_and(|it| holds(*it))
        };
        is_banned.then_some("its client id is banned")
    }

    /// Why a client of this user may not connect.
    pub(crate) fn of_user(&self, user: &str) -> Option<&'static str> {
        let is_banned = self.has_some() && {
            let table = self.read();
            table.users.get(user).is_some_and(|it| holds(*it))
        };
        is_banned.then_some("its user is banned")
    }

    /// When failed logins ban their address from now on. Bans that are there stay.
    pub(crate) fn set_rules(&self, rules: AutomaticBans) {
        let mut failures = self.failures();
        if failures.rules != rules {
            failures.counts.clear();
            failures.order.clear();
            failures.rules = rules;
        }
    }

    /// A login from this address has failed. Returns the ban that it caused.
    pub(crate) fn note_failure(&self, address: IpAddr, now: Instant) -> Option<AutomaticBan> {
        let left = self.failures().note(Source::of(Some(address)), now)?;
        let address = address.to_canonical();
        let mut table = self.write();
        if table.automatic.len() >= FAILED_LOGINS {
            table.automatic.retain(|_, (_, until)| now < *until);
        }
        if table.automatic.len() >= FAILED_LOGINS {
            return None; // its failures are slowed all the same
        }
        let source = Source::of(Some(address));
        table.automatic.insert(source, (address, now + left));
        self.has_some.store(true, Ordering::Release);
        Some(AutomaticBan { address, left })
    }

    /// The automatic bans, by their addresses.
    pub(crate) fn automatic(&self, now: Instant) -> Vec<AutomaticBan> {
        let table = self.read();
        let bans = table.automatic.values().filter(|(_, until)| now < *until);
        let mut bans: Vec<_> = bans
            .map(|(address, until)| AutomaticBan {
                address: *address,
                left: *until - now,
            })
            .collect();
        bans.sort_unstable_by_key(|ban| ban.address);
        bans
    }

    fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn is_empty(&self) -> bool {
        self.clients.is_empty()
            && self.users.is_empty()
            && self.addresses.is_empty()
            && self.networks.is_empty()
            && self.automatic.is_empty()
    }

    fn remove_network(&mut self, network: Network) {
        match network.as_address() {
            Some(address) => drop(self.addresses.remove(&address)),
            None => self.networks.retain(|(other, _)| *other != network),
        }
    }
}

impl Failures {
    /// Counts a failure; returns for how long its address is banned, if it is.
    fn note(&mut self, source: Source, now: Instant) -> Option<Duration> {
        let most = self.rules.failed_logins?;
        let window = self.rules.window;
        while let Some((began, oldest)) = self.order.front()
            && (*began + window <= now || self.order.len() > FAILED_LOGINS)
        {
            if self.counts.get(oldest).is_some_and(|(of, _)| of == began) {
                self.counts.remove(oldest);
            }
            self.order.pop_front();
        }
        let (_, count) = self.counts.entry(source).or_insert_with(|| {
            self.order.push_back((now, source));
            (now, 0)
        });
        *count += 1;
        if *count < most {
            return None;
        }
        // Its place in the order is that of a window that is over.
        self.counts.remove(&source);
        Some(self.rules.duration)
    }
}

/// Whether a ban has not ended.
fn holds(until: Until) -> bool {
    until.is_none_or(|until| SystemTime::now() < until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(until_ms: Option<u64>) -> Ban {
        Ban {
            since_ms: 0,
            until_ms,
            reason: String::new(),
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_ban_holds_until_it_is_removed_or_over() {
        let bans = Bans::default();
        let now = Instant::now();
        let client = Banned::Client("pump".into());
        let user = Banned::User("eve".into());
        let one = Banned::Address("10.0.0.1".into());
        let network = Banned::Address("192.168.0.0/16".into());
        for banned in [&client, &user, &one, &network] {
            bans.set(banned, &ban(None));
            bans.set(banned, &ban(Some(u64::from(u32::MAX) * 1_000)));
        }
        let banned = |bans: &Bans| {
            [
                bans.of_client("pump").is_some(),
                bans.of_user("eve").is_some(),
                bans.of_address(address("::ffff:10.0.0.1"), now).is_some(),
                bans.of_address(address("192.168.9.9"), now).is_some(),
            ]
        };
        assert_eq!(banned(&bans), [true; 4]);
        assert_eq!(bans.of_client("eve").or(bans.of_user("pump")), None);
        assert_eq!(bans.of_address(address("10.0.0.2"), now), None);
        bans.set(&client, &ban(Some(1)));
        assert_eq!(banned(&bans), [false, true, true, true], "it is over");
        for banned in [&client, &user, &one, &network] {
            bans.remove(banned);
        }
        assert_eq!(banned(&bans), [false; 4]);
        assert!(!bans.has_some());
    }

    #[test]
    fn an_address_is_banned_for_a_while_when_its_logins_fail_too_often() {
        let bans = Bans::default();
        let mut now = Instant::now();
        let (guesser, other) = (address("10.0.0.1"), address("10.0.0.2"));
        assert_eq!(bans.note_failure(guesser, now), None, "it is off");
        bans.set_rules(AutomaticBans {
            failed_logins: Some(3),
            window: Duration::from_mins(1),
            duration: Duration::from_mins(10),
        });
        for _ in 0..2 {
            assert_eq!(bans.note_failure(guesser, now), None);
            assert_eq!(bans.note_failure(other, now), None);
        }
        now += Duration::from_mins(1);
        assert_eq!(bans.note_failure(other, now), None, "a new window");
        for _ in 0..2 {
            assert_eq!(bans.note_failure(guesser, now), None);
        }
        let banned = bans.note_failure(guesser, now).unwrap();
        assert_eq!(banned.left, Duration::from_mins(10));
        assert_eq!(bans.automatic(now), [banned]);
        assert!(bans.of_address(guesser, now).is_some());
        assert_eq!(bans.of_address(other, now), None);
        now += Duration::from_mins(10);
        assert_eq!(bans.of_address(guesser, now), None);
        assert_eq!(bans.note_failure(guesser, now), None, "counted anew");
    }

    #[test]
    fn an_operator_lifts_an_automatic_ban() {
        let bans = Bans::default();
        let now = Instant::now();
        bans.set_rules(AutomaticBans {
            failed_logins: Some(1),
            ..AutomaticBans::default()
        });
        let guesser = address("10.0.0.1");
        assert!(bans.note_failure(guesser, now).is_some());
        assert!(!bans.lift("10.0.0.2".parse().unwrap()));
        assert!(bans.lift("10.0.0.0/8".parse().unwrap()));
        assert_eq!(bans.of_address(guesser, now), None);
    }

    #[test]
    fn failures_of_very_many_addresses_are_bounded() {
        let mut failures = Failures {
            rules: AutomaticBans {
                failed_logins: Some(2),
                ..AutomaticBans::default()
            },
            ..Failures::default()
        };
        let now = Instant::now();
        for number in 0..u32::try_from(FAILED_LOGINS).unwrap() + 1_000 {
            let source = Source::of(Some(std::net::Ipv4Addr::from_bits(number).into()));
            assert_eq!(failures.note(source, now), None);
        }
        assert!(failures.counts.len() <= FAILED_LOGINS + 1);
        assert!(failures.order.len() <= FAILED_LOGINS + 1);
    }
}
