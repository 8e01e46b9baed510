//! Counts the words of one length: a hash table of the library, updated for each place of the
//! sequence.

use std::collections::HashMap;
use std::hash::Hash;

use rustc_hash::FxBuildHasher;

use super::code;

/// Bases of the longest word whose number fits 32 bits.
const SHORT_MAX: usize = 16;

/// Words of one length and how often each comes.
#[derive(Clone, Debug)]
pub struct Counter {
    length: usize,
    /// The number of the last bases, one fewer than a word's or as many as there were.
    last: u64,
    /// Bases that the first word still lacks, its last one not among them.
    lacking: usize,
    table: Table,
}

/// Numbers of words up to 16 bases take half the room.
#[derive(Clone, Debug)]
enum Table {
    Short(HashMap<u32, u32, FxBuildHasher>),
    Long(HashMap<u64, u32, FxBuildHasher>),
}

impl Counter {
    /// For words of so many bases, 1 to [`code::WORD_MAX`]; what is beyond is taken as that.
    pub fn new(length: usize) -> Self {
        let length = length.clamp(1, code::WORD_MAX);
        let table = if length <= SHORT_MAX {
            Table::Short(HashMap::default())
        } else {
            Table::Long(HashMap::default())
        };
        Self {
            length,
            last: 0,
            lacking: length - 1,
            table,
        }
    }

    /// Bases of a word.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Counts the words that end in the next bases, which are given as numbers.
    pub fn update(&mut self, bases: &[u8]) {
        let (first, bases) = bases.split_at(self.lacking.min(bases.len()));
        self.lacking -= first.len();
        for base in first {
            self.last = self.last << 2 | u64::from(*base);
        }
        let mask = u64::MAX >> (u64::BITS as usize - 2 * self.length);
        let last = &mut self.last;
        match &mut self.table {
            Table::Short(table) => {
                #[expect(clippy::cast_possible_truncation, reason = "masked to 32 bits")]
                update(table, bases, last, |code| (code & mask) as u32);
            }
            Table::Long(table) => update(table, bases, last, |code| code & mask),
        }
    }

    /// How often a word comes; 0 for one of another length.
    pub fn count(&self, word: &str) -> u32 {
        let code = code::encode(word).filter(|_| word.len() == self.length);
        let count = code.and_then(|code| match &self.table {
            Table::Short(table) => table.get(&u32::try_from(code).ok()?),
            Table::Long(table) => table.get(&code),
        });
        count.copied().unwrap_or(0)
    }

    /// All words and their counts, the most frequent first, equally frequent ones by their letters.
    pub fn by_frequency(&self) -> Vec<(String, u32)> {
        let word = |code: u64| code::decode(code, self.length);
        let mut words: Vec<_> = match &self.table {
            Table::Short(table) => {
                let words = table.iter();
                words
                    .map(|(code, count)| (word(u64::from(*code)), *count))
                    .collect()
            }
            Table::Long(table) => {
                let words = table.iter();
                words.map(|(code, count)| (word(*code), *count)).collect()
            }
        };
        words.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        words
    }
}

/// The procedure of the game's rules: one update of the table for each base.
fn update<K: Hash + Eq>(
    table: &mut HashMap<K, u32, FxBuildHasher>,
    bases: &[u8],
    last: &mut u64,
    key: impl Fn(u64) -> K,
) {
    let mut code = *last;
    for base in bases {
        code = code << 2 | u64::from(*base);
        *table.entry(key(code)).or_insert(0) += 1;
    }
    *last = code;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::nucleotide::code::{decode, encode};

    fn numbers(text: &str) -> Vec<u8> {
        let number = |letter: u8| code::NUMBERS[usize::from(letter)];
        text.bytes().map(number).collect()
    }

    /// Words of a text, cut out one by one.
    fn naive(text: &str, length: usize) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for start in 0..(text.len() + 1).saturating_sub(length) {
            *counts.entry(&text[start..start + length]).or_insert(0) += 1;
        }
        counts
    }

    proptest! {
        #[test]
        fn counts_are_those_of_words_cut_out(
            text in "[ACGT]{0,200}",
            length in prop::sample::select(vec![1, 2, 3, 16, 17, 18, 32]),
            block in 1..100_usize,
        ) {
            let mut counter = Counter::new(length);
            for block in numbers(&text).chunks(block) {
                counter.update(block);
            }
            let mut expect: Vec<_> = naive(&text, length)
                .into_iter()
                .map(|(word, count)| (word.to_owned(), count))
                .collect();
            expect.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (word, count) in &expect {
                prop_assert_eq!(counter.count(word), *count);
            }
            prop_assert_eq!(counter.by_frequency(), expect);
        }
    }

    #[test]
    fn a_word_that_does_not_come_or_is_of_another_length_counts_zero() {
        let mut counter = Counter::new(2);
        counter.update(&numbers("ACAC"));
        assert_eq!(counter.count("AC"), 2);
        for word in ["CC", "A", "ACA", "NN"] {
            assert_eq!(counter.count(word), 0);
        }
        assert_eq!(Counter::new(0).length(), 1);
        assert_eq!(Counter::new(99).length(), 32);
        assert_eq!(decode(encode("AC").unwrap(), 2), "AC");
    }
}
