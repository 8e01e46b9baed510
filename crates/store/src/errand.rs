//! What one shard asks another to do for a client, and how far the other is with it.
//!
//! ```text
//! key   "errands" | from 1 | to 1      value   the number of the last one that is done
//! ```
//!
//! Invariant: the value is written in the batch that does the errand, so a restart knows of each
//! whether it is done, whatever else was written there since.

use crate::codec::{Reader, RecordError, VERSION, put_number};

/// A message of QoS 2 that one shard took in, and another is to retain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errand {
    /// The shard that took it in.
    pub from: u8,
    /// The shard that keeps its topic.
    pub to: u8,
    /// Grows with each that `from` sends, and begins anew with each run of the broker.
    pub number: u64,
}

/// What the keys begin with, in [`Space::Control`](crate::Space::Control). They are of one run.
pub const PREFIX: &[u8] = b"errands";

impl Errand {
    /// Where is noted how far `to` is with what `from` sends.
    pub fn key(&self) -> Vec<u8> {
        [PREFIX, &[self.from, self.to]].concat()
    }

    /// The value that says that this one is done, and all before it.
    pub fn done(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.number);
        out
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend([self.from, self.to]);
        put_number(out, self.number);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        Ok(Self {
            from: reader.byte("from")?,
            to: reader.byte("to")?,
            number: reader.number("number")?,
        })
    }
}

/// The number of the last errand that is done, and with it all before it, as this value says.
pub fn last_done(value: &[u8]) -> Result<u64, RecordError> {
    let mut reader = Reader::versioned(value)?;
    let last = reader.number("number")?;
    reader.end()?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_which_errand_was_the_last() {
        let errand = Errand {
            from: 1,
            to: 2,
            number: 300,
        };
        assert_eq!(last_done(&errand.done()).unwrap(), 300);
        last_done(&[VERSION]).unwrap_err();
        last_done(&[VERSION, 1, 1]).unwrap_err();
    }
}
