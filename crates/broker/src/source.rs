//! Client addresses as far as failed logins are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One client address as far as logins are counted: all of an IPv6 /64, because one machine has
/// that many addresses. Connections without an address (a local socket) count together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Source {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6([u16; 4]),
    Local,
}

impl Source {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        match address {
            None => Self::Local,
            Some(IpAddr::V4(address)) => Self::V4(address),
            Some(IpAddr::V6(address)) => Self::of_v6(address),
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        match (address.to_ipv4_mapped(), address.segments()) {
            (Some(address), _) => Self::V4(address),
            (None, [a, b, c, d, ..]) => Self::V6([a, b, c, d]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_ipv4_or_a_64th_of_ipv6() {
        let of = |text: &str| Source::of(Some(text.parse().unwrap()));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(Source::of(None), Source::Local);
    }
}
