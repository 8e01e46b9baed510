//! A trace through the control socket: a line for each step, until the trace or the connection
//! ends.
//!
//! Invariants:
//! - Steps that are missing are said, those just before the end too.
//! - A trace is not one of the commands whose number the socket limits: traces have a limit of
//!   their own, and no snapshot is held for one.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::SockRef;

use super::Shared;
use super::protocol::{Answer, Request};
use crate::bounds::TRACE_PAYLOAD_MAX;
use crate::trace::{Trace, TraceEnd, TraceFilter, TraceLine};

impl Shared {
    /// Answers on this connection with a line for each step.
    pub(super) fn trace(
        &self,
        number: u64,
        request: Request,
        stream: &UnixStream,
    ) -> io::Result<()> {
        let Request::Trace {
            client,
            user,
            topic,
            payload_bytes,
            ms,
        } = request
        else {
            return Ok(());
        };
        let filter = TraceFilter {
            client_id: client.map(Into::into),
            user: user.map(Into::into),
            topic: topic.map(Into::into),
            payload_bytes: payload_bytes.min(TRACE_PAYLOAD_MAX),
        };
        let trace = match self.operator.trace(&filter, Duration::from_millis(ms)) {
            Ok(trace) => trace,
            Err(why) => return Answer::Failed(why).write(&mut &*stream),
        };
        self.note_trace(number, true);
        let followed = follow(&trace, stream);
        self.note_trace(number, false);
        followed
    }

    fn note_trace(&self, number: u64, is_trace: bool) {
        if let Some(open) = self.connections().get_mut(&number) {
            open.is_trace = is_trace;
        }
    }
}

/// `Done` says that it has begun, and at the end that it is over.
fn follow(trace: &Trace, stream: &UnixStream) -> io::Result<()> {
    Answer::Done.write(&mut &*stream)?;
    let write = |line| Answer::Traced(Box::new(line)).write(&mut &*stream);
    loop {
        let next = trace.next(TRACE_LOOK);
        if let Ok(record) = &next {
            write(TraceLine::from(record))?;
        }
        let missed = trace.take_missed();
        if missed > 0 {
            write(TraceLine::missed(missed))?;
        }
        match next {
            Err(TraceEnd::Over) => return Answer::Done.write(&mut &*stream),
            Err(TraceEnd::NotYet) if has_gone(stream) => return Ok(()),
            _ => {}
        }
    }
}

/// Whether the other end has closed the connection.
fn has_gone(stream: &UnixStream) -> bool {
    let mut bytes = [MaybeUninit::uninit()];
    let socket = SockRef::from(stream);
    socket.set_nonblocking(true).is_ok_and(|()| {
        let peeked = socket.peek(&mut bytes);
        let is_set = socket.set_nonblocking(false).is_ok();
        !is_set || matches!(peeked, Ok(0))
    })
}

/// How often a trace without steps looks for its reader.
const TRACE_LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::*;

    #[test]
    fn steps_that_are_missing_at_the_end_are_said() {
        let (trace, watch) = Trace::new(1, Instant::now(), Box::new(|| {}));
        watch.missed.fetch_add(3, Ordering::Relaxed);
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        follow(&trace, &ours).expect("it is read");
        drop(ours);
        let mut text = String::new();
        theirs.read_to_string(&mut text).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "begin, missed steps, end: {text}");
        assert!(
            lines[1].contains("missed") && lines[1].contains('3'),
            "{text}"
        );
    }
}
