//! Times as the API shows them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Self {
        SystemTime::now().into()
    }

    pub(crate) fn seconds(self) -> u64 {
        self.0 / 1_000
    }

    pub(crate) fn before(self, duration: Duration) -> Self {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(ms))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let ms = text.parse::<Timestamp>().ok()?.as_millisecond();
        u64::try_from(ms).ok().map(Self)
    }

    pub(crate) fn text(self) -> String {
        of_ms(self.0)
    }
}

impl From<SystemTime> for Moment {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("no time"))
    }
}

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
    Moment::from(at).text()
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

    #[test]
    fn a_moment_is_the_same_from_its_text() {
        let moment = Moment(1_795_291_445_123);
        assert_eq!(moment.text(), "2026-11-21T20:04:05.123Z");
        assert_eq!(Moment::parse(&moment.text()), Some(moment));
        assert_eq!(Moment(0).text(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Moment::parse("yesterday"), None);
    }
}
