//! The little JSON that verdicts are written in: one object to a message, keys in a fixed order.

use std::fmt::{Display, Write as _};

/// An object under construction.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        quote(&mut self.0, value);
        self
    }

    /// The member is left out where there is no value.
    pub(crate) fn text_if(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    pub(crate) fn number(self, key: &str, value: impl Into<u64>) -> Self {
        self.raw(key, value.into())
    }

    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        self.raw(key, value)
    }

    /// A value that is JSON already.
    pub(crate) fn raw(mut self, key: &str, value: impl Display) -> Self {
        self.key(key);
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{value}");
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(&mut self.0, key);
        self.0.push(':');
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

/// Microseconds since 1970 as RFC 3339, in UTC, to the millisecond.
pub(crate) fn rfc3339(us: u64) -> String {
    let (days, of_day) = (us / DAY_US, us % DAY_US);
    // Days from the first of March of the year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let (month, later) = match march_month {
        0..=9 => (march_month + 3, 0),
        _ => (march_month - 9, 1),
    };
    let year = era * 400 + year_of_era + later;
    let ms = of_day / 1_000;
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

const DAY_US: u64 = 86_400_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_a_client_chose_stays_in_its_quotes() {
        let object = Object::new()
            .text("client", "a\"b\\c\nd")
            .number("n", 7_u64);
        assert_eq!(object.end(), r#"{"client":"a\"b\\c\u000ad","n":7}"#);
    }

    #[test]
    fn days_become_dates() {
        let check = |seconds: u64, date: &str| assert_eq!(rfc3339(seconds * 1_000_000), date);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400, "2000-02-29T00:00:00.000Z");
        check(1_795_291_445, "2026-11-21T20:04:05.000Z");
        check(4_102_444_799, "2099-12-31T23:59:59.000Z");
    }
}
