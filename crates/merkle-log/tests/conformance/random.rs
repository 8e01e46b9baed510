//! Scripts made from seeds: what the ledger says of each is compared with what `verifier.py` says.
//!
//! A plain script loses, repeats, delays and alters messages of an honest producer. A hostile one
//! adds what anybody can forge in a lane without a key: messages, checkpoints, drop records.

use std::fmt::Write;

use unbroken_merkle_log::ledger::Join;

use super::scripts::Script;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = self.below(u64::try_from(choices.len()).unwrap());
        choices[usize::try_from(at).unwrap()]
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The script of a seed. Every second one is hostile.
pub(crate) fn script(seed: u64) -> Script {
    let mut author = Author {
        random: Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
        is_hostile: seed % 2 == 1,
        next: 0,
        words: Vec::new(),
    };
    let mut join = author
        .random
        .of(&[Join::Beginning, Join::Beginning, Join::Late]);
    if author.random.is_one_in(10) {
        join = Join::Member;
    }
    let all_lanes = author.random.is_one_in(4);
    author.write();
    Script {
        name: format!("seed {seed}: {}", author.words.join(" ")).into(),
        join,
        all_lanes,
        steps: author.words.join(" ").into(),
    }
}

struct Author {
    random: Random,
    is_hostile: bool,
    /// One more than the highest number so far.
    next: u64,
    words: Vec<String>,
}

impl Author {
    fn write(&mut self) {
        if self.random.is_one_in(8) {
            self.add("0-1019".to_owned());
            self.next = 1_020;
        }
        for _ in 0..3 + self.random.below(8) {
            self.word();
        }
        for word in self.random.of(&[
            &["c"][..],
            &["C", "+800"],
            &["+800"],
            &["c", "+800"],
            &["ask"],
        ]) {
            self.add((*word).to_owned());
        }
    }

    fn word(&mut self) {
        match self.random.below(100) {
            0..35 => self.run(),
            35..50 if self.next > 0 => self.message(),
            35..68 => self.checkpoint(),
            68..72 if self.next > 0 => {
                let detailed = self.random.of(&["F", "L"]);
                self.add(detailed.to_owned());
            }
            72..76 => {
                let size = self.next + self.random.of(&[0, 1, 3]);
                self.add(format!("i{size}"));
            }
            76..80 if self.random.is_one_in(5) => self.add("d-".to_owned()),
            76..80 => {
                let size = self.next + self.random.of(&[0, 0, 1, 3]);
                self.add(format!("d{size}"));
            }
            80..84 if self.next > 0 => self.drop_record(),
            84..88 => self.add("ask".to_owned()),
            88..90 => {
                let epoch = self.random.below(3);
                self.add(format!("e{epoch}"));
                self.next = 0;
            }
            _ => {
                let times = [1, 100, 400, 799, 800, 900, 1_000, 2_000, 10_000];
                let ms = self.random.of(&times);
                self.add(format!("+{ms}"));
            }
        }
    }

    /// Messages in order, behind what is lost.
    fn run(&mut self) {
        let first = self.next + self.random.of(&[0, 0, 0, 0, 1, 2, 3]);
        let last = first + self.random.of(&[0, 0, 1, 2, 5]);
        self.next = last + 1;
        self.add(if last > first {
            format!("{first}-{last}")
        } else {
            first.to_string()
        });
    }

    /// One of the messages so far or of the next ones, perhaps not as it was issued.
    fn message(&mut self) {
        let number = self.near(8, 3);
        let marks = if self.is_hostile {
            self.random
                .of(&["", "", "a", "f", "g", "r", "a", "f", "p12", "p22", "p13"])
        } else {
            self.random.of(&["", "", "a", "r", "p12", "p22"])
        };
        self.add(format!("{number}{marks}"));
        self.next = self.next.max(number + 1);
    }

    fn checkpoint(&mut self) {
        let mut word = self.random.of(&["c", "c", "c", "C", "X"]).to_owned();
        if self.is_hostile {
            if self.random.below(5) < 2 {
                let size = (self.next + self.random.of(&[3, 3, 0, 2, 4, 6])).saturating_sub(3);
                write!(word, "@{}", size.max(1)).unwrap();
            }
            if self.random.below(5) < 2 {
                write!(word, "#{}", self.random.below(6)).unwrap();
            }
            if self.random.is_one_in(7) {
                word += "~";
            }
        }
        self.add(word);
    }

    fn drop_record(&mut self) {
        let number = self.near(4, 3);
        let forged = if self.is_hostile && self.random.is_one_in(4) {
            "~"
        } else {
            ""
        };
        self.add(format!("D{number}{forged}"));
    }

    /// A number at most so far below the next, or above it.
    fn near(&mut self, below: u64, above: u64) -> u64 {
        let from = self.next.saturating_sub(below);
        from + self.random.below(self.next + above - from)
    }

    fn add(&mut self, word: String) {
        self.words.push(word);
    }
}
