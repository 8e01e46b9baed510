//! Where a message is: in which log, and which number it has there.

use std::fmt;

/// One log: what one shard took in. Another number of shards leaves the logs of before as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u16);

/// The number of a message in its log, from 1 and without holes. 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// One message of all logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The log.
    pub log: LogId,
    /// The number in it.
    pub sequence: Sequence,
}

impl Sequence {
    /// Before every message.
    pub const BEFORE_ALL: Self = Self(0);
    /// The first message of a log.
    pub const FIRST: Self = Self(1);
    /// After every message: a range up to here has no end.
    pub const END: Self = Self(u64::MAX);

    /// The one after it; [`END`](Self::END) stays where it is.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.log, self.sequence)
    }
}
