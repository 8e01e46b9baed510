//! The first item of each batch, which identifies batches of this store.
//!
//! A journal contains clients' data, and nothing else in a batch is secret: a publisher could send
//! bytes that look like a batch. So each store has a secret, and a batch without it is not the
//! store's. Each batch also has a number, one more than the one before it, so that a missing batch
//! is noticed.
//!
//! Deliberately absent: protection against readers of the disk.

use std::io;

/// What only this store knows. It is made with it, and stays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Secret([u8; SECRET_BYTES]);

/// The value of a batch's first item, in the tree of the store's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) secret: Secret,
    /// The batch before has the number before.
    pub(super) number: u64,
    /// When it was written, all before it was safe on the disk.
    pub(super) behind_safe: bool,
}

impl Secret {
    /// That of no store.
    pub(super) const ZERO: Self = Self([0; SECRET_BYTES]);

    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    pub(super) const fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// In 32 hexadecimal digits.
    pub(super) fn digits(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// None if these are not the digits of one.
    pub(super) fn parse(digits: &str) -> Option<Self> {
        let number = u128::from_str_radix(digits, 16).ok()?;
        let this = Self(number.to_be_bytes());
        (this.digits() == digits).then_some(this)
    }
}

impl Link {
    /// Secret, number (8, high first), 1 if it is behind what is safe.
    pub(super) const BYTES: usize = SECRET_BYTES + 9;

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [u8::from(self.behind_safe); Self::BYTES];
        let (secret, rest) = bytes.split_at_mut(SECRET_BYTES);
        let (number, _) = rest.split_at_mut(8);
        secret.copy_from_slice(&self.secret.0);
        number.copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// None if there is something else, as in stores that were written before there were links.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (secret, rest) = bytes.split_first_chunk()?;
        let (number, safe) = rest.split_first_chunk()?;
        Some(Self {
            secret: Secret(*secret),
            number: u64::from_be_bytes(*number),
            behind_safe: *safe == [1],
        })
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

const SECRET_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_secrets_are_read_as_they_were_written() {
        let secret = Secret::new().unwrap();
        assert_eq!(Secret::parse(&secret.digits()), Some(secret));
        assert_eq!(Secret::parse("7"), None);
        assert!(!format!("{secret:?}").contains(&secret.digits()));
        let link = Link {
            secret,
            number: 1 << 40,
            behind_safe: true,
        };
        assert_eq!(Link::decode(&link.encode()), Some(link));
        assert_eq!(Link::decode(&link.encode()[1..]), None);
    }
}
