//! Pending group deliveries: messages of QoS 2 that are recognized when they are sent again, and
//! that shared groups on other shards still have to give to a member.
//!
//! ```text
//! key   "owed" | log | number             value   nothing: groups may still owe this one
//!       "owed" | log | number | group             nothing: this group has given it to somebody
//! ```
//!
//! Invariant: the second key is written in the batch that gives the message to a member, so a
//! restart knows of each group whether it has, whatever happened to the message since. All keys of
//! a message are removed when all groups have given it.

use crate::codec::{Reader, RecordError, VERSION};
use crate::position::{LogId, Position, Sequence};
use crate::session::put_name;

/// The prefix of the keys, in [`Space::Control`](crate::Space::Control). They belong to one run.
pub const PREFIX: &[u8] = b"owed";

/// The contents of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView<'a> {
    /// The message.
    pub position: Position,
    /// The group that has given it, as [`group_name`] writes it; `None`: groups may still have to.
    pub group: Option<&'a [u8]>,
}

/// The key of a message that groups may still have to give; the prefix of all keys about it.
pub fn key(position: Position) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    out.extend_from_slice(&position.log.0.to_be_bytes());
    out.extend_from_slice(&position.sequence.0.to_be_bytes());
    out
}

/// The key of a group, `$share/…`, that has given it to a member.
pub fn given_key(position: Position, group: &str) -> Vec<u8> {
    let mut out = key(position);
    put_name(&mut out, group);
    out
}

/// A group as the end of a key names it.
pub fn group_name(group: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_name(&mut out, group);
    out
}

/// The value of each.
pub fn value() -> Vec<u8> {
    vec![VERSION]
}

/// Reads a key.
pub fn parse_key(bytes: &[u8]) -> Result<KeyView<'_>, RecordError> {
    let mut reader = Reader::plain(bytes.strip_prefix(PREFIX).unwrap_or_default());
    let log = LogId(u16::from_be_bytes(reader.array("log")?));
    let sequence = Sequence(u64::from_be_bytes(reader.array("number")?));
    let group = reader.rest();
    Ok(KeyView {
        position: Position { log, sequence },
        group: (!group.is_empty()).then_some(group),
    })
}

/// Reads a value.
pub fn check(value: &[u8]) -> Result<(), RecordError> {
    Reader::versioned(value)?.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_which_message_and_which_group() {
        let position = Position {
            log: LogId(3),
            sequence: Sequence(300),
        };
        let parsed =
            |key: &[u8]| parse_key(key).map(|view| (view.position, view.group.map(<[u8]>::to_vec)));
        assert_eq!(parsed(&key(position)), Ok((position, None)));
        for group in ["$share/g/t", &format!("$share/g/{}", "t".repeat(60_000))] {
            let given = given_key(position, group);
            assert!(given.starts_with(&key(position)) && given.len() < 300);
            let named = Some(group_name(group));
            assert_eq!(parsed(&given), Ok((position, named)));
        }
        parse_key(b"owed\x00\x03\x00").unwrap_err();
        check(&value()).unwrap();
        check(&[VERSION, 1]).unwrap_err();
    }
}
