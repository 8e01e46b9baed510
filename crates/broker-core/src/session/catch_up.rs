//! What a session reads of the logs, and for what.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use super::{Backlog, Session};
use crate::durability::{CommitGate, LogPart, Purpose, ReadRequest, RecoveryScan};
use crate::ids::{LogId, Numbers, SessionId};
use crate::position::Position;

impl Session {
    /// What waits for it on disk, if it is behind.
    pub(crate) fn backlog_mut(&mut self) -> Option<&mut Backlog> {
        self.kept.as_deref_mut()?.backlog.as_deref_mut()
    }

    fn backlog(&self) -> Option<&Backlog> {
        self.kept.as_deref()?.backlog.as_deref()
    }

    /// What is to be read next: of each log up to where publishers moved to others, and then what
    /// is beyond. None: it has read all that it has to.
    pub(crate) fn next_read(&self, gate: &CommitGate) -> Option<LogPart> {
        let backlog = self.backlog()?;
        let advance = backlog.advance.as_ref();
        let settled = |log| advance.is_some_and(|advance| advance.settled.contains(&log));
        let mut ends = gate.log_ends().behind(&backlog.read);
        ends.find_map(|within| {
            within.iter().find_map(|(log, last)| {
                let after = backlog.read.of(log);
                (after < last && !settled(log)).then_some((log, after..last))
            })
        })
    }

    /// Asks for what it may have to get of this part of a log.
    pub(crate) fn read(
        &mut self,
        id: SessionId,
        (log, numbers): (LogId, Range<u64>),
        gate: &mut CommitGate,
        tokens: &mut Numbers,
        purpose: Purpose,
    ) {
        let Some(kept) = self.kept.as_deref_mut() else {
            return;
        };
        let Some(backlog) = kept.backlog.as_deref_mut() else {
            return;
        };
        let filters = backlog.filters.get_or_insert_with(|| {
            let plain = kept.subscriptions.iter();
            let plain = plain.filter(|held| held.plain().is_some());
            plain.map(|held| held.filter.clone()).collect()
        });
        let filters = Arc::clone(filters);
        let token = tokens.issue();
        backlog.reading = NonZeroU64::new(token);
        let request = ReadRequest {
            session: id,
            token,
            log,
            after: numbers.start,
            last: numbers.end,
            filters,
            bytes_max: purpose.bytes_max(),
            in_background: purpose == Purpose::RecoveryScan,
        };
        gate.read(request, purpose);
    }

    /// The answer to this read has come. Answers whether the session waits for it.
    pub(crate) fn end_read(&mut self, token: u64) -> bool {
        let reading = self.backlog_mut().map(|backlog| &mut backlog.reading);
        reading.is_some_and(|it| it.take_if(|it| it.get() == token).is_some())
    }

    /// Its client is here, and does not wait until the driver has time for the scan, whose answer
    /// is then left unused.
    pub(crate) fn leave_scan(&mut self, gate: &CommitGate) {
        if let Some(backlog) = self.backlog_mut() {
            let is_scan = |token: u64| gate.reads().purpose(token) == Purpose::RecoveryScan;
            backlog.reading.take_if(|token| is_scan(token.get()));
        }
    }

    /// Something may wait for it from before the broker started, and nothing reads it.
    pub(crate) fn list_for_scan(&mut self, id: SessionId, scan: &mut RecoveryScan) {
        let backlog = self.backlog_mut();
        if let Some(uncounted) = backlog.and_then(|backlog| backlog.uncounted.as_deref_mut())
            && !std::mem::replace(&mut uncounted.is_listed, true)
        {
            scan.list(id);
        }
    }

    /// It is not listed for the scan any more. Answers whether it can be scanned now; what reads
    /// for it otherwise lists it again, if something is left.
    pub(crate) fn begin_scan_of_log(&mut self) -> bool {
        let is_away = self.connection.is_none();
        let Some(backlog) = self.backlog_mut() else {
            return false;
        };
        let is_idle = backlog.is_idle();
        let Some(uncounted) = backlog.uncounted.as_deref_mut() else {
            return false;
        };
        uncounted.is_listed = false;
        is_away && is_idle
    }

    /// A part of a log that is not counted.
    pub(crate) fn next_to_scan(&self, scan: &RecoveryScan) -> Option<LogPart> {
        let backlog = self.backlog()?;
        let counted = &backlog.uncounted.as_deref()?.through;
        let mut ends = scan.ends().iter();
        ends.find_map(|(log, last)| {
            let after = counted.of(log).max(backlog.read.of(log));
            (after < last).then_some((log, after..last))
        })
    }

    /// All up to here is counted.
    pub(crate) fn scanned(&mut self, log: LogId, number: u64) {
        let backlog = self.backlog_mut();
        if let Some(uncounted) = backlog.and_then(|backlog| backlog.uncounted.as_deref_mut()) {
            uncounted.through.raise(Position { log, number });
        }
    }
}
