//! Networks of IP addresses: `10.0.0.0/8`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// So many bits.
    prefix: u8,
}

impl Network {
    /// Whether it has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        // Of no bits all addresses are alike; a shift by all of them is none.
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The one address that it has; `None`: it has several.
    pub(crate) fn as_address(&self) -> Option<IpAddr> {
        (self.prefix == Self::bits(self.address)).then_some(self.address)
    }

    /// Its address, and how many of the leading bits count.
    pub(crate) const fn prefix(&self) -> (IpAddr, u8) {
        (self.address, self.prefix)
    }

    const fn bits(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let bits = Self::bits(address);
        let prefix: u8 = match prefix {
            Some(prefix) => prefix.parse().map_err(drop)?,
            None => bits,
        };
        // Addresses of IPv4 are known as such, so a network of them written in IPv6 is one of IPv4.
        let (address, bits, prefix) = match address.to_canonical() {
            canonical if canonical.is_ipv4() && bits == 128 => {
                (canonical, 32, prefix.checked_sub(96).ok_or(())?)
            }
            _ => (address, bits, prefix),
        };
        (prefix <= bits)
            .then_some(Self { address, prefix })
            .ok_or(())
    }
}

/// As it is written.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.prefix < Self::bits(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fdff::1", true),
            ("::/0", "2001:db8::1", true),
            ("::1", "::2", false),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.to_string(), network);
            assert_eq!(
                parsed.contains(address.parse().unwrap()),
                expected,
                "{network}"
            );
        }
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "a/8", "10.0.0.0/"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
