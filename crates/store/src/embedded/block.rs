//! Messages of one commit that follow each other in a log lie in one value, and the numbers of a
//! topic's messages in another.
//!
//! A block is a row of records, each with its length before it; its key is the number of the first.
//! So a commit of a hundred messages costs one entry of the engine, not a hundred.
//!
//! Postings are the distances between the numbers of a topic's messages, counted from the first
//! message of the generation.

use crate::codec::{Reader, RecordError, put_number, put_string};
use crate::position::Sequence;
use crate::record::MessageBytes;
use crate::store::Entry;

/// Bytes after which a block is full. A reader of one message reads the whole block.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024;

/// Lays messages into blocks; `put` gets each block and the number of its first message.
pub(crate) fn pack<'a>(
    first: Sequence,
    messages: impl IntoIterator<Item = &'a MessageBytes>,
    mut put: impl FnMut(Sequence, &[u8]),
) {
    let mut block = Vec::with_capacity(2 * BLOCK_BYTES);
    let (mut begins, mut next) = (first, first);
    for message in messages {
        put_string(&mut block, message.as_bytes());
        next = next.next();
        if block.len() >= BLOCK_BYTES {
            put(begins, &block);
            block.clear();
            begins = next;
        }
    }
    if !block.is_empty() {
        put(begins, &block);
    }
}

/// The messages of a block, checked one by one.
pub(crate) struct Block<'a> {
    next: Sequence,
    reader: Reader<'a>,
}

impl<'a> Block<'a> {
    pub(crate) fn new(first: Sequence, bytes: &'a [u8]) -> Self {
        Self {
            next: first,
            reader: Reader::plain(bytes),
        }
    }

    fn read(&mut self) -> Result<&'a [u8], RecordError> {
        let bytes = self.reader.string("length")?;
        self.next = self.next.next();
        Ok(bytes)
    }

    /// Leaves out the messages below a number.
    pub(crate) fn skip_to(&mut self, sequence: Sequence) -> Result<(), RecordError> {
        while self.next < sequence && self.reader.len() > 0 {
            self.read()?;
        }
        Ok(())
    }
}

impl Iterator for Block<'_> {
    type Item = Result<Entry, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.len() == 0 {
            return None;
        }
        let sequence = self.next;
        Some(self.read().and_then(|bytes| {
            let message = MessageBytes::parse(bytes.to_vec())?;
            Ok(Entry { sequence, message })
        }))
    }
}

/// Writes ascending numbers.
pub(crate) fn put_postings(offsets: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(offsets.len() + 4);
    let mut before = 0;
    for offset in offsets {
        put_number(&mut out, u64::from(*offset) - before);
        before = u64::from(*offset);
    }
    out
}

/// Reads what [`put_postings`] wrote.
pub(crate) fn postings(bytes: &[u8]) -> impl Iterator<Item = Result<u32, RecordError>> {
    let mut reader = Reader::plain(bytes);
    let mut before = 0u32;
    std::iter::from_fn(move || {
        if reader.len() == 0 {
            return None;
        }
        Some(reader.small::<u32>("distance").and_then(|distance| {
            before = before
                .checked_add(distance)
                .ok_or(RecordError::Number("distance"))?;
            Ok(before)
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MessageRecord;

    fn message(payload: &[u8]) -> MessageBytes {
        MessageRecord::plain("t", 1, payload).encode()
    }

    #[test]
    fn what_was_packed_is_found_from_any_number_on() {
        let messages: Vec<_> = (0..100).map(|n| message(&vec![n; 1_000])).collect();
        let mut blocks = Vec::new();
        pack(Sequence(50), &messages, |first, block| {
            blocks.push((first, block.to_vec()));
        });
        assert!(blocks.len() > 5 && blocks.len() < 9);
        let mut expected = (50..).map(Sequence).zip(messages);
        for (first, block) in &blocks {
            for entry in Block::new(*first, block) {
                let entry = entry.unwrap();
                assert_eq!(Some((entry.sequence, entry.message)), expected.next());
            }
        }
        assert_eq!(expected.next(), None);
        let (first, block) = &blocks[1];
        let mut rest = Block::new(*first, block);
        rest.skip_to(Sequence(first.0 + 3)).unwrap();
        assert_eq!(rest.next().unwrap().unwrap().sequence.0, first.0 + 3);
        rest.skip_to(Sequence::END).unwrap();
        assert!(rest.next().is_none());
    }

    #[test]
    fn a_message_larger_than_a_block_has_its_own() {
        let mut firsts = Vec::new();
        let large = message(&vec![0; 3 * BLOCK_BYTES]);
        let messages = [message(b"a"), large, message(b"b")];
        pack(Sequence(1), &messages, |first, _| firsts.push(first.0));
        assert_eq!(firsts, [1, 3]);
    }

    #[test]
    fn damage_in_a_block_is_an_error() {
        let mut bytes = Vec::new();
        pack(Sequence(1), &[message(b"a")], |_, block| {
            bytes = block.to_vec();
        });
        bytes[1] = 9;
        assert!(Block::new(Sequence(1), &bytes).next().unwrap().is_err());
        assert!(Block::new(Sequence(1), &[200, 1]).next().unwrap().is_err());
    }

    #[test]
    fn postings_read_as_they_were_written() {
        for offsets in [&[][..], &[0], &[0, 1, 2, 500, 501, u32::MAX], &[7]] {
            let bytes = put_postings(offsets);
            let read: Result<Vec<_>, _> = postings(&bytes).collect();
            assert_eq!(read.unwrap(), offsets);
        }
        let beyond = put_postings(&[u32::MAX]).repeat(2);
        assert!(postings(&beyond).last().unwrap().is_err());
    }
}
