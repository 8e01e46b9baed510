//! Topic filters as Mosquitto checks them: wildcards in their places, and two limits.

use crate::bounds::{TEXT_BYTES_MAX, TOPIC_SLASHES_MAX};

/// The offset of the first byte that is wrong, and what was expected there.
pub(crate) fn problem(filter: &[u8]) -> Option<(usize, String)> {
    let mut slashes = 0;
    for (at, byte) in filter.iter().enumerate() {
        let is_first = at == 0 || filter[at - 1] == b'/';
        let next = filter.get(at + 1);
        match byte {
            b'+' if !is_first || next.is_some_and(|next| *next != b'/') => {
                return Some((at, "`+` as a level of its own".to_owned()));
            }
            b'#' if !is_first || next.is_some() => {
                return Some((at, "`#` as the last level".to_owned()));
            }
            b'/' => slashes += 1,
            _ => {}
        }
        if slashes > TOPIC_SLASHES_MAX {
            return Some((at, format!("at most {TOPIC_SLASHES_MAX} slashes")));
        }
    }
    (filter.len() > TEXT_BYTES_MAX).then(|| (0, format!("at most {TEXT_BYTES_MAX} bytes")))
}
