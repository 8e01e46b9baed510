//! `fasta`: writes three DNA sequences of given lengths, the same ones for everyone.
//!
//! One repeats a piece, two are drawn at random by given chances, from a linear congruential
//! generator whose numbers all programs of the game share.

use std::io::{self, Write};
use std::iter;

/// Bases in a line.
const LINE: usize = 60;
/// The generator: next = (last * FACTOR + ADDEND) mod MODULUS.
const MODULUS: u32 = 139_968;
const FACTOR: u32 = 3_877;
const ADDEND: u32 = 29_573;
const SEED: u32 = 42;

/// The repeated piece, a sequence of the human genome.
const ALU: &[u8] = b"GGCCGGGCGCGGTGGCTCACGCCTGTAATCCCAGCACTTTGGGAGGCCGAGGCGGGCGGATCACCTGAGGTCAGGAGTTCGAGACC\
    AGCCTGGCCAACATGGTGAAACCCCGTCTCTACTAAAAATACAAAAATTAGCCGGGCGTGGTGGCGCGCGCCTGTAATCCCAGCTACTCGGGAGGCTGAGG\
    CAGGAGAATCGCTTGAACCCGGGAGGCGGAGGTTGCAGTGAGCCGAGATCGCGCCACTGCACTCCAGCCTGGGCGACAGAGCGAGACTCCGTCTCAAAAA";

/// Letters of the second sequence and their chances.
const IUB: [(u8, f64); 15] = [
    (b'a', 0.27),
    (b'c', 0.12),
    (b'g', 0.12),
    (b't', 0.27),
    (b'B', 0.02),
    (b'D', 0.02),
    (b'H', 0.02),
    (b'K', 0.02),
    (b'M', 0.02),
    (b'N', 0.02),
    (b'R', 0.02),
    (b'S', 0.02),
    (b'V', 0.02),
    (b'W', 0.02),
    (b'Y', 0.02),
];

/// Letters of the third sequence and their chances.
const HUMAN: [(u8, f64); 4] = [
    (b'a', 0.302_954_942_668_0),
    (b'c', 0.197_988_300_491_1),
    (b'g', 0.197_547_306_639_1),
    (b't', 0.301_509_450_200_8),
];

/// Writes the sequences: of 2, 3 and 5 times `count` bases.
pub fn write(count: u64, mut to: impl Write) -> io::Result<()> {
    let alu = ALU.iter().copied().cycle();
    sequence(&mut to, ">ONE Homo sapiens alu", alu, count * 2)?;
    let mut last = SEED;
    let mut random = iter::repeat_with(|| {
        last = (last * FACTOR + ADDEND) % MODULUS;
        last
    });
    for (title, chances, bases) in [
        (">TWO IUB ambiguity codes", &IUB[..], count * 3),
        (">THREE Homo sapiens frequency", &HUMAN, count * 5),
    ] {
        let letters = letters(chances);
        let drawn = random.by_ref().map(|number| letters[number as usize]);
        sequence(&mut to, title, drawn, bases)?;
    }
    to.flush()
}

/// The letter for each number of the generator.
fn letters(chances: &[(u8, f64)]) -> Vec<u8> {
    let mut below = 0.0;
    let limits = chances.iter().map(|(letter, chance)| {
        below += chance * f64::from(MODULUS);
        (*letter, below)
    });
    let limits: Vec<_> = limits.collect();
    let last = chances.last().map_or(b'a', |(letter, _)| *letter);
    let letter = |number: u32| {
        let found = limits.iter().find(|(_, limit)| f64::from(number) < *limit);
        found.map_or(last, |(letter, _)| *letter)
    };
    (0..MODULUS).map(letter).collect()
}

fn sequence(
    to: &mut impl Write,
    title: &str,
    mut letters: impl Iterator<Item = u8>,
    bases: u64,
) -> io::Result<()> {
    writeln!(to, "{title}")?;
    let mut line = [b'\n'; LINE + 1];
    let mut left = bases;
    while left > 0 {
        let length = usize::try_from(left).map_or(LINE, |left| left.min(LINE));
        for (place, letter) in line[..length].iter_mut().zip(&mut letters) {
            *place = letter;
        }
        line[length] = b'\n';
        to.write_all(&line[..=length])?;
        left -= length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: u64) -> String {
        let mut text = Vec::new();
        write(count, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn the_sequences_have_their_lengths_in_lines_of_sixty() {
        for count in [0, 1, 6, 12, 100, 1_000] {
            let text = written(count);
            let mut parts = text.split('>').skip(1);
            for (title, times) in [("ONE Homo", 2), ("TWO IUB", 3), ("THREE Homo", 5)] {
                let part = parts.next().unwrap();
                assert!(part.starts_with(title), "{part}");
                let lines: Vec<_> = part.lines().skip(1).collect();
                let bases: usize = lines.iter().map(|line| line.len()).sum();
                assert_eq!(bases as u64, count * times);
                let (_, whole) = lines.split_last().unwrap_or((&"", &[]));
                assert!(whole.iter().all(|line| line.len() == 60));
            }
        }
    }

    #[test]
    fn the_first_lines_are_those_of_the_game() {
        let text = written(1_000);
        let line = |title: &str| {
            text.lines()
                .skip_while(|line| !line.starts_with(title))
                .nth(1)
        };
        let alu = "GGCCGGGCGCGGTGGCTCACGCCTGTAATCCCAGCACTTTGGGAGGCCGAGGCGGGCGGA";
        assert_eq!(line(">ONE"), Some(alu));
        let iub = "cttBtatcatatgctaKggNcataaaSatgtaaaDcDRtBggDtctttataattcBgtcg";
        assert_eq!(line(">TWO"), Some(iub));
        assert_eq!(text.len(), 10_245);
    }
}
