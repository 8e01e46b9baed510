//! A time in answers: RFC 3339 in UTC, with milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
        let at = i64::try_from(self.0).ok();
        let at = at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        at.map_or_else(|| "?".to_owned(), |at| format!("{at:.3}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_from_its_text() {
        let moment = Moment(1_795_291_445_123);
        assert_eq!(moment.text(), "2026-11-21T20:04:05.123Z");
        assert_eq!(Moment::parse(&moment.text()), Some(moment));
        assert_eq!(Moment(0).text(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Moment::parse("yesterday"), None);
    }
}
