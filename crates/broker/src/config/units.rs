//! Durations and sizes with their units, parsed and formatted.

use std::time::Duration;

const TIME_UNITS: [(&str, u64); 6] = [
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Largest first within each system, so that the first one that divides a value shows it shortest.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// `30s`, `1h 30m`, `250ms`.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let mut rest = text;
    let mut total_ms = 0_u64;
    while !rest.is_empty() {
        let (number, unit, after) = number_and_word(rest)?;
        let factor = match unit {
            "min" => 60_000,
            unit => {
                TIME_UNITS
                    .iter()
                    .find(|(name, _)| *name == unit)
                    .ok_or("has an unknown unit")?
                    .1
            }
        };
        let part = number.checked_mul(factor).ok_or("is too long")?;
        total_ms = total_ms.checked_add(part).ok_or("is too long")?;
        rest = after.trim_start();
    }
    if text.is_empty() {
        return Err("is empty");
    }
    Ok(Duration::from_millis(total_ms))
}

/// `64 KiB`, `10MB`, `512 B`.
pub(super) fn parse_size(text: &str) -> Result<u64, &'static str> {
    let (number, unit, rest) = number_and_word(text)?;
    if !rest.is_empty() {
        return Err("has something behind the unit");
    }
    let factor = match unit {
        "KB" => 1_000,
        unit => {
            SIZE_UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or("has an unknown unit")?
                .1
        }
    };
    number.checked_mul(factor).ok_or("is too large")
}

/// The number and the unit at the front of `text`, and what follows.
fn number_and_word(text: &str) -> Result<(u64, &str, &str), &'static str> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let number = number
        .replace('_', "")
        .parse()
        .map_err(|_| "does not begin with a whole number")?;
    let rest = rest.trim_start();
    let letters = rest
        .find(|c: char| !c.is_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    if unit.is_empty() {
        return Err("has no unit");
    }
    Ok((number, unit, rest))
}

/// The inverse of [`parse_duration`], in the fewest parts.
pub(super) fn show_duration(time: Duration) -> String {
    let mut rest = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (unit, factor) in TIME_UNITS {
        if rest >= factor {
            parts.push(format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts.join(" ")
    }
}

/// The inverse of [`parse_size`], exact.
pub(super) fn show_size(bytes: u64) -> String {
    let exact = SIZE_UNITS
        .iter()
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match exact {
        Some((unit, factor)) => format!("{} {unit}", bytes / factor),
        None => format!("{bytes} B"),
    }
}
