//! Times as the API shows them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(text(1_000), "1970-01-01T00:00:01.000Z");
        assert_eq!(text(i64::MAX), text(0));
    }
}
