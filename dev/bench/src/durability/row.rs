//! A row of numbered messages that a broker was given to keep, and whether a session gets exactly
//! that row.

use std::io;

use crate::error::BenchError;

const PAYLOAD_BYTES: usize = 100;

/// What comes last, so that one message too many is seen.
pub(super) const END: &[u8] = b"end";

/// The payload of a message: its number, then filled up.
pub(super) fn payload(number: u32) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [b'x'; PAYLOAD_BYTES];
    let digits = format!("{number:010}");
    for (to, digit) in payload.iter_mut().zip(digits.bytes()) {
        *to = digit;
    }
    payload
}

/// Whether these are messages 0 to `count - 1`, each once and in their order, and then [`END`].
///
/// # Errors
///
/// The first one that is not what it should be, with whose it is; or that of reading it.
pub(super) fn is_whole(
    whose: &str,
    count: u32,
    mut messages: impl FnMut() -> io::Result<Vec<u8>>,
) -> Result<(), BenchError> {
    let mut next = |expected: &[u8], what: &dyn Fn() -> String| {
        let problem = match messages() {
            Ok(payload) if payload == expected => return Ok(()),
            Ok(payload) => format!(
                "there came {:?}",
                payload[..payload.len().min(10)].escape_ascii().to_string()
            ),
            Err(error) => error.to_string(),
        };
        let what = format!("{whose} should get {}: {problem}", what());
        Err(BenchError::NotKept { what })
    };
    for number in 0..count {
        next(&payload(number), &|| format!("message {number} of {count}"))?;
    }
    next(END, &|| format!("nothing after {count} messages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(payloads: &[&[u8]]) -> Result<(), BenchError> {
        let mut payloads = payloads.iter();
        is_whole("phone", 3, || {
            let payload = payloads.next().ok_or(io::ErrorKind::UnexpectedEof)?;
            Ok(payload.to_vec())
        })
    }

    #[test]
    fn only_the_whole_row_in_its_order_and_nothing_else_is_whole() {
        let [zero, one, two, three] = [0, 1, 2, 3].map(payload);
        let [zero, one, two, three] = [&zero[..], &one, &two, &three];
        check(&[zero, one, two, END]).unwrap();
        let wrong: [&[&[u8]]; 7] = [
            &[one, two, END],
            &[zero, two, END],
            &[zero, one, END],
            &[zero, one, one, two, END],
            &[one, zero, two, END],
            &[zero, one, two, three, END],
            &[zero, one, two],
        ];
        for row in wrong {
            check(row).unwrap_err();
        }
        assert_eq!(
            check(&[zero, two, END]).unwrap_err().to_string(),
            "phone should get message 1 of 3: there came \"0000000002\""
        );
    }
}
