//! How often passwords may be tried: a few times at once, then after waits that double.
//!
//! Failures are counted for the caller's address and for the name that it gives, whether there is
//! such an account or not. An attempt counts as failed from its begin, so that several at once are
//! no way around it.
//!
//! Invariant: the table is bounded; the entry that was not used for the longest time makes room.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{
    ATTEMPTS_FREE, THROTTLE_ADDRESS_MAX, THROTTLE_FORGETS, THROTTLE_NAME_MAX, THROTTLED_MAX,
};

/// Attempts of late.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<Key, Failures>>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Address(IpAddr),
    Name(String),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// Begins an attempt. An error: it must wait so long.
    pub(crate) fn begin(
        &self,
        address: Option<IpAddr>,
        name: &str,
        now: Instant,
    ) -> Result<(), Duration> {
        let keys = keys(address, name);
        let mut table = self.lock();
        let waits = keys.iter().filter_map(|key| {
            let failures = table.get(key)?;
            let free_at = failures.last + key.wait(failures.count);
            let wait = free_at.saturating_duration_since(now);
            (!wait.is_zero()).then_some(wait)
        });
        if let Some(wait) = waits.max() {
            return Err(wait);
        }
        for key in keys {
            make_room(&mut table, &key, now);
            let failures = table.entry(key).or_insert(Failures {
                count: 0,
                last: now,
            });
            if now.duration_since(failures.last) >= THROTTLE_FORGETS {
                failures.count = 0;
            }
            failures.count = failures.count.saturating_add(1);
            failures.last = now;
        }
        Ok(())
    }

    /// The attempt was right: what is counted against it is forgotten.
    pub(crate) fn succeeded(&self, address: Option<IpAddr>, name: &str) {
        let mut table = self.lock();
        for key in keys(address, name) {
            table.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    /// After so many failures.
    fn wait(&self, count: u32) -> Duration {
        let Some(beyond) = count.checked_sub(ATTEMPTS_FREE) else {
            return Duration::ZERO;
        };
        let max = match self {
            Self::Address(_) => THROTTLE_ADDRESS_MAX,
            // Short: anyone can have an account wait by wrong passwords.
            Self::Name(_) => THROTTLE_NAME_MAX,
        };
        Duration::from_secs(1_u64 << beyond.min(30)).min(max)
    }
}

fn keys(address: Option<IpAddr>, name: &str) -> Vec<Key> {
    let address = address.map(|address| Key::Address(network(address)));
    address
        .into_iter()
        .chain([Key::Name(name.to_owned())])
        .collect()
}

/// One host of IPv6 has a whole network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn make_room(table: &mut HashMap<Key, Failures>, key: &Key, now: Instant) {
    if table.len() < THROTTLED_MAX || table.contains_key(key) {
        return;
    }
    table.retain(|_, failures| now.duration_since(failures.last) < THROTTLE_FORGETS);
    if table.len() >= THROTTLED_MAX {
        let oldest = table.iter().min_by_key(|(_, failures)| failures.last);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            table.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    #[test]
    fn waits_double_up_to_their_longest() {
        let (throttle, mut now) = (Throttle::default(), Instant::now());
        for _ in 0..ATTEMPTS_FREE {
            assert_eq!(throttle.begin(HERE, "ann", now), Ok(()));
        }
        for seconds in [1, 2, 4, 8] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(throttle.begin(HERE, "ann", now), Err(wait));
            // The attempt that was refused does not count.
            assert_eq!(throttle.begin(HERE, "ann", now), Err(wait));
            now += wait;
            assert_eq!(throttle.begin(HERE, "ann", now), Ok(()));
        }
        for _ in 0..20 {
            now += THROTTLE_ADDRESS_MAX;
            assert_eq!(throttle.begin(HERE, "ann", now), Ok(()));
        }
        assert_eq!(throttle.begin(None, "ann", now), Err(THROTTLE_NAME_MAX));
        assert_eq!(throttle.begin(HERE, "bob", now), Err(THROTTLE_ADDRESS_MAX));
        throttle.succeeded(HERE, "ann");
        assert_eq!(throttle.begin(HERE, "ann", now), Ok(()));
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller_and_names_count_from_everywhere() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..ATTEMPTS_FREE {
            let address = format!("2001:db8::{number}").parse().ok();
            throttle
                .begin(address, &format!("name{number}"), now)
                .unwrap();
        }
        let other = "2001:db8::ffff".parse().ok();
        assert!(throttle.begin(other, "new", now).is_err());
        let elsewhere = "2001:db8:0:1::1".parse().ok();
        assert!(throttle.begin(elsewhere, "new", now).is_ok());
        for number in 0..ATTEMPTS_FREE {
            let address = format!("10.0.0.{number}").parse().ok();
            throttle.begin(address, "root", now).unwrap();
        }
        assert!(
            throttle
                .begin("10.1.1.1".parse().ok(), "root", now)
                .is_err()
        );
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..=THROTTLED_MAX {
            throttle.begin(None, &format!("name{number}"), now).unwrap();
        }
        assert_eq!(throttle.lock().len(), THROTTLED_MAX);
        for _ in 0..ATTEMPTS_FREE {
            throttle.begin(None, "ann", now).unwrap();
        }
        let later = now + THROTTLE_FORGETS;
        for _ in 0..ATTEMPTS_FREE {
            throttle.begin(None, "ann", later).unwrap();
        }
    }
}
