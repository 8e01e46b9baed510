//! Bases as numbers of two bits, and words of bases as numbers.

/// Letters by their number. The numbers are bits 1 and 2 of the letters, upper or lower case.
const LETTERS: [u8; 4] = *b"ACTG";
/// In the place of a base's number for a byte that is no base.
pub const NO_BASE: u8 = u8::MAX;
/// Bases of the longest word that fits a number.
pub const WORD_MAX: usize = 32;

/// The number of each letter, upper or lower case; [`NO_BASE`] for other bytes.
pub const NUMBERS: [u8; 256] = numbers();

const fn numbers() -> [u8; 256] {
    let mut numbers = [NO_BASE; 256];
    let mut number = 0;
    while number < 4 {
        let letter = LETTERS[number as usize];
        numbers[letter as usize] = number;
        numbers[letter.to_ascii_lowercase() as usize] = number;
        number += 1;
    }
    numbers
}

/// The number of a word, two bits for each base, the first base highest. `None` if it has a letter
/// that is no base, or more than [`WORD_MAX`].
pub fn encode(word: &str) -> Option<u64> {
    if word.len() > WORD_MAX {
        return None;
    }
    word.bytes().try_fold(0, |code, letter| {
        let number = NUMBERS[usize::from(letter)];
        (number != NO_BASE).then_some(code << 2 | u64::from(number))
    })
}

/// The word of a number, in upper case.
pub fn decode(code: u64, length: usize) -> String {
    let letter = |place: usize| char::from(LETTERS[(code >> (2 * place) & 3) as usize]);
    (0..length.min(WORD_MAX)).rev().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_their_number() {
        for word in [
            "",
            "A",
            "GGT",
            "GGTATTTTAATTTATAGT",
            "ACGTACGTACGTACGTACGTACGTACGTACGT",
        ] {
            let code = encode(word).unwrap();
            assert_eq!(decode(code, word.len()), word);
            assert_eq!(encode(&word.to_lowercase()), Some(code));
        }
        assert_eq!(encode("ACN"), None);
        assert_eq!(encode(&"A".repeat(33)), None);
        assert_eq!(encode("ACTG"), Some(0b00_01_10_11));
    }
}
