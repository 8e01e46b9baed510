//! Places for connections: so many in all, and a share of them for each address.
//!
//! The share is a dynamic threshold (Choudhury and Hahne, 1998): an address has at most
//! [`ADDRESS_SHARE`] times what is free, so one address never takes all places. All of an IPv6 /64
//! is one address, because one machine has that many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{ADDRESS_SHARE, PEERS_MAX};

/// How many connections each address has; none without any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// The place of one connection, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    address: IpAddr,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Full {
    #[error("refused: {PEERS_MAX} peers are connected")]
    All,
    #[error("refused: {0} peers of its address are connected, and others need places too")]
    Address(usize),
}

impl Places {
    /// A place for a connection from this address.
    pub(crate) fn take(&self, address: IpAddr) -> Result<Place, Full> {
        let address = network(address);
        let mut held = self.lock();
        let free = PEERS_MAX.saturating_sub(held.values().sum());
        let own = held.get(&address).copied().unwrap_or(0);
        if free == 0 {
            return Err(Full::All);
        }
        if own + 1 > free * ADDRESS_SHARE {
            return Err(Full::Address(own));
        }
        held.insert(address, own + 1);
        drop(held);
        let places = self.clone();
        Ok(Place { places, address })
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        if let Some(count) = held.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.address);
            }
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::iter::{from_fn, repeat_n};

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// All that this address gets.
    fn all(places: &Places, text: &str) -> Vec<Place> {
        from_fn(|| places.take(address(text)).ok()).collect()
    }

    #[test]
    fn one_address_leaves_places_and_all_together_take_them() {
        let places = Places::default();
        let first = all(&places, "10.0.0.1");
        assert_eq!(first.len(), 231);
        let refused = places.take(address("10.0.0.1")).unwrap_err();
        assert_eq!(refused, Full::Address(231));
        // Each that has none gets one, to the last.
        let others = (2..=26).map(|last| format!("10.0.0.{last}"));
        let others: Vec<_> = others
            .map(|text| places.take(address(&text)).unwrap())
            .collect();
        let refused = places.take(address("10.0.0.99")).unwrap_err();
        assert_eq!(refused, Full::All);
        drop((first, others));
        assert!(places.lock().is_empty());
        assert_eq!(all(&places, "10.0.0.99").len(), 231);
    }

    #[test]
    fn addresses_that_one_machine_has_count_together() {
        let same = [
            ["2001:db8::1", "2001:db8::2"],
            ["::ffff:10.0.0.7", "10.0.0.7"],
        ];
        for [one, other] in same {
            assert_eq!(network(address(one)), network(address(other)));
        }
        let differ = ["2001:db8::1", "2001:db8:0:1::1", "10.0.0.7", "10.0.0.8"];
        let places = Places::default();
        let taken: Vec<_> = differ
            .map(|text| places.take(address(text)).unwrap())
            .into();
        let counts: Vec<_> = places.lock().values().copied().collect();
        assert_eq!(counts, repeat_n(1, taken.len()).collect::<Vec<_>>());
    }
}
