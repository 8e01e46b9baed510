//! Reads of the logs that are under way in the background, and what they are for.

use std::ops::Range;

use crate::ids::LogId;
use crate::limits::{SCAN_BYTES_MAX, SCANS_MAX};

/// What a part of a log is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A session that is behind gets what it finds.
    CatchUp,
    /// What may not wait any longer is dropped: see [`super::Retention`].
    Retention,
    /// What waits from before the broker started is counted: see [`super::RecoveryScan`].
    RecoveryScan,
}

impl Purpose {
    /// About so much of a log is read at a time.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::CatchUp => CATCH_UP_BYTES_MAX,
            Self::Retention => RETENTION_BYTES_MAX,
            Self::RecoveryScan => SCAN_BYTES_MAX,
        }
    }

    /// So many sessions are read for at a time.
    const fn sessions_max(self) -> usize {
        match self {
            Self::CatchUp => usize::MAX,
            Self::Retention => RETENTION_MAX,
            Self::RecoveryScan => SCANS_MAX,
        }
    }
}

/// A part of a log: what is behind the first of these numbers, up to the last.
pub(crate) type LogPart = (LogId, Range<u64>);

/// The reads for which no client waits: few at a time.
#[derive(Debug, Default)]
pub(crate) struct Reads(Vec<(u64, Purpose)>);

impl Reads {
    pub(super) fn begin(&mut self, token: u64, purpose: Purpose) {
        if purpose != Purpose::CatchUp {
            self.0.push((token, purpose));
        }
    }

    /// Whether any is under way for this.
    pub(crate) fn any(&self, purpose: Purpose) -> bool {
        self.0.iter().any(|(_, other)| *other == purpose)
    }

    /// Whether another may begin for this.
    pub(crate) fn have_room(&self, purpose: Purpose) -> bool {
        let reads = self.0.iter().filter(|(_, other)| *other == purpose);
        reads.count() < purpose.sessions_max()
    }

    pub(crate) fn purpose(&self, token: u64) -> Purpose {
        let mut reads = self.0.iter();
        let found = reads.find(|(other, _)| *other == token);
        found.map_or(Purpose::CatchUp, |(_, purpose)| *purpose)
    }

    /// The answer has come, whether or not its session waits for it.
    pub(super) fn finish(&mut self, token: u64) -> Purpose {
        let at = self.0.iter().position(|(other, _)| *other == token);
        at.map_or(Purpose::CatchUp, |at| self.0.swap_remove(at).1)
    }
}

/// Bytes of a log for a client.
const CATCH_UP_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a log for an overdue session: most often its first message may stay.
const RETENTION_BYTES_MAX: usize = 64 * 1024;
/// Overdue sessions whose logs are read at the same time.
const RETENTION_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_for_one_thing_until_its_answer_comes() {
        let mut reads = Reads::default();
        for (token, purpose) in [
            (1, Purpose::CatchUp),
            (2, Purpose::Retention),
            (3, Purpose::RecoveryScan),
        ] {
            reads.begin(token, purpose);
            assert_eq!(reads.purpose(token), purpose);
        }
        assert_eq!(reads.finish(2), Purpose::Retention);
        assert!(!reads.any(Purpose::Retention));
        assert_eq!(reads.finish(2), Purpose::CatchUp, "it is over");
        assert!(reads.any(Purpose::RecoveryScan));
    }

    #[test]
    fn few_sessions_are_read_for_at_a_time() {
        let mut reads = Reads::default();
        for token in 0..SCANS_MAX as u64 {
            assert!(reads.have_room(Purpose::RecoveryScan));
            reads.begin(token, Purpose::RecoveryScan);
        }
        assert!(!reads.have_room(Purpose::RecoveryScan));
        assert!(reads.have_room(Purpose::Retention));
        reads.finish(0);
        assert!(reads.have_room(Purpose::RecoveryScan));
    }
}
