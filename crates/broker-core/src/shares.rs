//! How much of a table that all clients fill one of them may have, and how much each has.
//!
//! The rule is the dynamic threshold of Choudhury and Hahne (Dynamic Queue Length Thresholds for
//! Shared-Memory Packet Switches, 1998): a holder may have at most a multiple of what is still
//! free. With one holder that is a fixed part of the table; with more of them each has less, and a
//! reserve remains for those that have nothing yet.
//!
//! Invariants:
//! - What is taken never passes the limit by what is granted here.
//! - A holder of nothing gets one while anything is free.
//! - What makes nothing larger is always granted.
//!
//! Each shard counts the holders of its own part, and takes the others to be like it: what a
//! holder has here times the number of shards. Client ids and topics are spread by a hash. A client
//! that chooses them to meet on one shard only has less.
//!
//! Deliberately absent: what has no address, which is held by no address: what an earlier run left
//! until its client comes again, and clients of a local socket.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::limits::{ADDRESS_SHARE, CLIENT_SHARE};

/// A limit of the broker, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) limit: u64,
    pub(crate) taken: u64,
}

/// What a client and its address have of a table; `None` is in no share.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Held {
    pub(crate) client: Option<u64>,
    pub(crate) address: Option<u64>,
}

/// Why there is no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// The table has too little that is free.
    Table,
    /// The client has its share.
    Client,
    /// All clients of the address together have its share.
    Address,
}

impl Table {
    /// Whether a holder of so much may take `more`.
    pub(crate) fn judge(self, more: u64, held: Held) -> Result<(), Full> {
        let free = self.limit.saturating_sub(self.taken);
        // What is counted on one shard stands for all, and may say too much.
        let is_within = |held: Option<u64>, share: u64| {
            let held = held.map(|held| held.min(self.taken).saturating_add(more));
            held.is_none_or(|held| held <= free.saturating_mul(share))
        };
        if more == 0 {
            Ok(())
        } else if more > free {
            Err(Full::Table)
        } else if !is_within(held.client, CLIENT_SHARE) {
            Err(Full::Client)
        } else if !is_within(held.address, ADDRESS_SHARE) {
            Err(Full::Address)
        } else {
            Ok(())
        }
    }

    /// Whether every holder may take it, even one that has all that is taken.
    pub(crate) fn judge_for_any(self, more: u64) -> Result<(), Full> {
        let all = Some(self.taken);
        let (client, address) = (all, all);
        self.judge(more, Held { client, address })
    }
}

impl Full {
    /// Whose share it is, as it is logged.
    pub(crate) fn share(self, address: Option<Network>) -> Option<Arc<str>> {
        match (self, address) {
            (Self::Table, _) => None,
            (Self::Address, Some(address)) => Some(format!("share of address {address}").into()),
            (Self::Client | Self::Address, _) => Some("share of the client".into()),
        }
    }
}

/// Room for a retained message that is promised to it, and is counted as taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reserved {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// An address as far as shares go: all of an IPv6 /64, because one machine has that many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Network(NonZeroU64);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(address) => Self::of_v4(address),
                None => Self::of_v6(address),
            },
        })
    }

    /// That of a peer, if it has an address.
    pub(crate) fn of_peer(address: Option<SocketAddr>) -> Option<Self> {
        Some(Self::of(address?.ip()))
    }

    fn of_v4(address: Ipv4Addr) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(u64::from(address.to_bits()))
    }

    /// The block at `::/8` has no machine but this one.
    fn of_v6(address: Ipv6Addr) -> NonZeroU64 {
        let prefix = (address.to_bits() >> 64) as u64;
        let is_global = prefix >= FIRST_V6;
        NonZeroU64::new(prefix)
            .filter(|_| is_global)
            .unwrap_or(LOCAL_V6)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        match u32::try_from(bits - 1) {
            Ok(v4) => Ipv4Addr::from_bits(v4).fmt(f),
            Err(_) if self.0 == LOCAL_V6 => Ipv6Addr::LOCALHOST.fmt(f),
            Err(_) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(bits) << 64)),
        }
    }
}

/// The first prefix behind `::/8`, which leaves the numbers below to addresses of IPv4.
const FIRST_V6: u64 = 1 << 56;
const LOCAL_V6: NonZeroU64 = NonZeroU64::new(FIRST_V6 - 1).expect("it is not zero");

/// Who takes something of a table, as far as it is known.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Taker<'a> {
    pub(crate) client: Option<&'a Arc<str>>,
    pub(crate) address: Option<Network>,
}

impl Taker<'static> {
    /// All clients of an address together.
    pub(crate) const fn at(address: Option<Network>) -> Self {
        let client = None;
        Self { client, address }
    }
}

/// How much each client and address has of one table on one shard.
#[derive(Debug)]
pub(crate) struct Shares {
    clients: HashMap<Arc<str>, u64, FixedState>,
    addresses: HashMap<Network, u64, FixedState>,
    shards: u64,
}

impl Shares {
    /// The seed keeps clients from choosing ids that meet in the table.
    pub(crate) fn new(seed: u64, shards: u8) -> Self {
        Self {
            clients: HashMap::with_hasher(FixedState::with_seed(seed)),
            addresses: HashMap::with_hasher(FixedState::with_seed(seed)),
            shards: shards.into(),
        }
    }

    /// What they have on all shards, about.
    pub(crate) fn held(&self, taker: Taker<'_>) -> Held {
        let everywhere = |here: Option<&u64>| here.map_or(0, |here| here * self.shards);
        let client = |client: &Arc<str>| everywhere(self.clients.get(client));
        let address = |address: Network| everywhere(self.addresses.get(&address));
        Held {
            client: taker.client.map(client),
            address: taker.address.map(address),
        }
    }

    pub(crate) fn add(&mut self, taker: Taker<'_>, amount: u64) {
        if amount == 0 {
            return;
        }
        if let Some(client) = taker.client {
            match self.clients.get_mut(client) {
                Some(held) => *held += amount,
                None => drop(self.clients.insert(Arc::clone(client), amount)),
            }
        }
        if let Some(address) = taker.address {
            *self.addresses.entry(address).or_default() += amount;
        }
    }

    pub(crate) fn subtract(&mut self, taker: Taker<'_>, amount: u64) {
        if let Some(client) = taker.client {
            subtract(&mut self.clients, client, amount);
        }
        if let Some(address) = taker.address {
            subtract(&mut self.addresses, &address, amount);
        }
    }
}

fn subtract<K: Eq + Hash>(held: &mut HashMap<K, u64, FixedState>, key: &K, amount: u64) {
    if let Some(has) = held.get_mut(key) {
        debug_assert!(*has >= amount, "more was given back than was taken");
        *has = has.saturating_sub(amount);
        if *has == 0 {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn table(limit: u64, taken: u64) -> Table {
        Table { limit, taken }
    }

    fn held(client: u64, address: u64) -> Held {
        Held {
            client: Some(client),
            address: Some(address),
        }
    }

    /// What each of so many clients, all with addresses of their own or all with one, has when none
    /// of them gets any more.
    fn when_all_take(limit: u64, clients: usize, one_address: bool) -> Vec<u64> {
        let mut has = vec![0; clients];
        loop {
            let before: u64 = has.iter().sum();
            for client in 0..clients {
                let taken: u64 = has.iter().sum();
                let address = if one_address { taken } else { has[client] };
                let is_granted = table(limit, taken).judge(1, held(has[client], address));
                has[client] += u64::from(is_granted.is_ok());
            }
            if has.iter().sum::<u64>() == before {
                return has;
            }
        }
    }

    #[test]
    fn a_client_alone_has_half_and_an_address_nine_tenths() {
        assert_eq!(when_all_take(1_000, 1, true), [500]);
        let many: u64 = when_all_take(1_000, 60, true).iter().sum();
        assert_eq!(many, 900);
        assert_eq!(when_all_take(1_000, 3, false), [250; 3]);
    }

    #[test]
    fn the_share_that_is_used_up_is_named() {
        assert_eq!(table(10, 10).judge(1, held(0, 0)), Err(Full::Table));
        assert_eq!(table(10, 6).judge(1, held(6, 6)), Err(Full::Client));
        assert_eq!(table(20, 18).judge(1, held(1, 18)), Err(Full::Address));
        assert_eq!(table(10, 12).judge(0, held(12, 12)), Ok(()));
    }

    proptest! {
        #[test]
        fn a_holder_of_nothing_gets_one_while_any_is_free(limit in 1..1u64 << 40, part in 0..=100u64) {
            let taken = (limit - 1) * part / 100;
            prop_assert_eq!(table(limit, taken).judge(1, held(0, 0)), Ok(()));
        }

        #[test]
        fn nothing_is_granted_beyond_the_limit(
            limit in any::<u64>(),
            taken in any::<u64>(),
            more in 1..u64::MAX,
            client in proptest::option::of(any::<u64>()),
            address in proptest::option::of(any::<u64>()),
        ) {
            let granted = table(limit, taken).judge(more, Held { client, address });
            prop_assert!(granted.is_err() || taken.checked_add(more).is_some_and(|sum| sum <= limit));
        }

        #[test]
        fn a_reserve_remains_and_all_have_the_same(limit in 1..400u64, clients in 1..12usize) {
            let has = when_all_take(limit, clients, false);
            let free = limit - has.iter().sum::<u64>();
            prop_assert!(free >= limit / (clients as u64 + 1), "{has:?} of {limit}");
            prop_assert!(has.iter().max().unwrap() - has.iter().min().unwrap() <= 1, "{has:?}");
        }

        #[test]
        fn who_has_less_is_granted_what_who_has_more_is(
            limit in 1..1_000u64,
            taken in 0..1_000u64,
            more in 1..50u64,
            larger in 0..1_000u64,
            less in 0..1_000u64,
        ) {
            let smaller = larger.saturating_sub(less);
            let table = table(limit, taken);
            if table.judge(more, held(larger, larger)).is_ok() {
                prop_assert_eq!(table.judge(more, held(smaller, smaller)), Ok(()));
            }
        }

        #[test]
        fn what_every_holder_may_take_is_never_refused(
            limit in 1..1_000u64,
            taken in 0..1_000u64,
            more in 1..50u64,
            has in any::<u64>(),
        ) {
            let table = table(limit, taken);
            if table.judge_for_any(more).is_ok() {
                prop_assert_eq!(table.judge(more, held(has, has)), Ok(()));
            }
        }

        #[test]
        fn what_is_given_back_is_forgotten(amounts in vec(0..100u64, 0..20)) {
            let mut shares = Shares::new(7, 4);
            let client = Arc::from("a");
            let address = Some(Network::of(Ipv4Addr::LOCALHOST.into()));
            let taker = Taker { client: Some(&client), address };
            for amount in &amounts {
                shares.add(taker, *amount);
            }
            let sum: u64 = amounts.iter().sum();
            prop_assert_eq!(shares.held(taker).client, Some(4 * sum));
            for amount in amounts {
                shares.subtract(taker, amount);
            }
            prop_assert!(shares.clients.is_empty() && shares.addresses.is_empty());
        }
    }

    #[test]
    fn addresses_that_one_machine_has_count_together() {
        let of = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.7"), of("10.0.0.7"));
        assert_ne!(of("0.0.0.0"), of("255.255.255.255"));
        assert_eq!(of("10.0.0.7").to_string(), "10.0.0.7");
        assert_eq!(of("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(of("::1").to_string(), "::1");
    }
}
