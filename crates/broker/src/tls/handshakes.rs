//! Unfinished handshakes of a listener: how many there are, and of which addresses.
//!
//! An address may have nine times as many as are still free, as with all that clients share
//! (`docs/adr/0059`): silent connections of one address leave a tenth to the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Those of one listener.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: AtomicU32,
    taken: AtomicU32,
    by_address: Mutex<HashMap<IpAddr, u32>>,
}

impl Handshakes {
    pub(super) fn new(max: u32) -> Self {
        Self {
            max: AtomicU32::new(max),
            taken: AtomicU32::new(0),
            by_address: Mutex::default(),
        }
    }

    pub(super) fn set_max(&self, max: u32) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How many more there may be.
    pub(super) fn free(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.max.load(Ordering::Relaxed).saturating_sub(taken)
    }

    /// Whether this address may have one more.
    pub(super) fn has_share(&self, address: IpAddr) -> bool {
        let held = self.by_address.lock();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        let has = held.get(&network(address)).copied().unwrap_or(0);
        has < self.free().saturating_mul(ADDRESS_SHARE)
    }

    /// One begins, of this address, or of none that is known.
    pub(super) fn begin(&self, address: Option<IpAddr>) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(address) = address {
            self.attribute(address);
        }
    }

    /// One that has begun is of this address.
    pub(super) fn attribute(&self, address: IpAddr) {
        let held = self.by_address.lock();
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        *held.entry(network(address)).or_default() += 1;
    }

    /// It has ended.
    pub(super) fn end(&self, address: Option<IpAddr>) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = address {
            let address = network(address);
            let mut held = self
                .by_address
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(has) = held.get_mut(&address) {
                *has -= 1;
                if *has == 0 {
                    held.remove(&address);
                }
            }
        }
    }
}

/// An address of IPv4, or the /64 of IPv6, which one machine has whole.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Times what is free.
const ADDRESS_SHARE: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leaves_a_tenth_to_others_and_gets_back_what_ends() {
        let handshakes = Handshakes::new(1_000);
        let attacker = |n: u128| IpAddr::from(Ipv6Addr::from_bits((0xfd00 << 112) | n));
        let mut begun = 0;
        while handshakes.has_share(attacker(begun)) {
            handshakes.begin(Some(attacker(begun)));
            begun += 1;
        }
        assert_eq!(begun, 900);
        let other = IpAddr::from([10, 0, 0, 1]);
        assert!(handshakes.has_share(other));
        handshakes.begin(Some(other));
        handshakes.begin(None);
        assert_eq!(handshakes.free(), 98);
        (0..begun).for_each(|n| handshakes.end(Some(attacker(n))));
        handshakes.end(Some(other));
        handshakes.end(None);
        assert_eq!(handshakes.free(), 1_000);
        assert!(handshakes.by_address.lock().unwrap().is_empty());
    }
}
