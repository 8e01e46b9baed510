//! Times as the API shows them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// RFC 3339 in UTC with milliseconds.
pub(crate) fn text(ms: i64) -> String {
    let timestamp = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{timestamp:.3}")
}

pub(crate) fn now_text() -> String {
    text(now_ms())
}

/// The same of a clock's time.
pub(crate) fn of_system(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    of_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The same of a moment in this process.
pub(crate) fn of_instant(at: Instant) -> String {
    let (clock, now) = (SystemTime::now(), Instant::now());
    let ahead: Duration = at.saturating_duration_since(now);
    of_system(clock - now.saturating_duration_since(at) + ahead)
}

/// The same of milliseconds since 1970 in a record.
pub(crate) fn of_ms(ms: u64) -> String {
    text(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Milliseconds since 1970 of a time in a request; an error says what is wrong.
pub(crate) fn to_ms(text: &str) -> Result<u64, String> {
    let parsed: Result<Timestamp, _> = text.parse();
    let at = parsed.map_err(|_| format!("{text:?} is no time as 2026-11-30T09:30:00Z"))?;
    u64::try_from(at.as_millisecond()).map_err(|_| format!("{text:?} is before 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(text(1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(text(i64::MAX), text(0));
    }

    #[test]
    fn times_of_requests_are_read() {
        assert_eq!(of_ms(1_796_031_000_123), "2026-11-30T09:30:00.123Z");
        assert_eq!(to_ms("2026-11-30T09:30:00.123Z"), Ok(1_796_031_000_123));
        assert_eq!(to_ms("2026-11-30T10:30:00+01:00"), Ok(1_796_031_000_000));
        for wrong in ["", "tomorrow", "2026-11-30", "1969-12-31T23:59:59Z"] {
            assert!(to_ms(wrong).is_err(), "{wrong}");
        }
    }
}
