//! The rows of the table: which program, how large, by the name under which it is compared from
//! version to version.

use crate::error::ChannelBenchError;
use serde::Serialize;

/// A program that a peer may be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    TaskPingPong,
    TaskRing,
    TokenRing,
    TaskGather,
    TaskStream,
    Whispers,
    ThreadPingPong,
    ThreadRing,
    ThreadGather,
    ThreadStream,
    IdlePipe,
}

/// How much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Size {
    /// Tasks, threads, senders or pipes; 1 where the row has two ends only.
    pub(crate) parties: u64,
    /// Messages of each party; round trips of a ping-pong.
    pub(crate) rounds: u64,
    /// Threads of the runtime; 1 means that the runtime has no thread of its own.
    pub(crate) workers: usize,
}

/// What the figure of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    NanosecondsPerMessage,
    NanosecondsPerRoundTrip,
    BytesPerPipe,
}

/// One program of one size with a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) work: Work,
    pub(crate) unit: Unit,
    pub(crate) size: Size,
}

const fn row(
    name: &'static str,
    title: &'static str,
    work: Work,
    workers: usize,
    parties: u64,
    rounds: u64,
) -> Row {
    let unit = match work {
        Work::TaskPingPong | Work::ThreadPingPong => Unit::NanosecondsPerRoundTrip,
        Work::IdlePipe => Unit::BytesPerPipe,
        _ => Unit::NanosecondsPerMessage,
    };
    let size = Size {
        parties,
        rounds,
        workers,
    };
    Row {
        name,
        title,
        work,
        unit,
        size,
    }
}

/// All rows, in the order of the table.
pub(crate) const ROWS: [Row; 15] = [
    row(
        "ping-pong-1",
        "two tasks, one worker, a message there and back",
        Work::TaskPingPong,
        1,
        1,
        500_000,
    ),
    row(
        "ping-pong-2",
        "two tasks, two workers, a message there and back",
        Work::TaskPingPong,
        2,
        1,
        500_000,
    ),
    row(
        "ring-1",
        "ring of 100 tasks, one worker: each sends, then receives, 10,000 times; capacity 16",
        Work::TaskRing,
        1,
        100,
        10_000,
    ),
    row(
        "ring-2",
        "the same, two workers",
        Work::TaskRing,
        2,
        100,
        10_000,
    ),
    row(
        "token-ring",
        "one token through 503 tasks, two workers",
        Work::TokenRing,
        2,
        503,
        2_000,
    ),
    row(
        "msgsend-tasks",
        "8 tasks send numbers to one that adds them up, two workers; capacity 1,024",
        Work::TaskGather,
        2,
        8,
        125_000,
    ),
    row(
        "msgsend-threads",
        "8 threads send numbers to one that adds them up; capacity 1,024",
        Work::ThreadGather,
        1,
        8,
        125_000,
    ),
    row(
        "msgsend-10000",
        "10,000 tasks send numbers to one that adds them up, two workers; capacity 1,024",
        Work::TaskGather,
        2,
        10_000,
        100,
    ),
    row(
        "stream-tasks",
        "one task to another, two workers; capacity 1,024",
        Work::TaskStream,
        2,
        1,
        2_000_000,
    ),
    row(
        "stream-threads",
        "one thread to another; capacity 1,024",
        Work::ThreadStream,
        1,
        1,
        4_000_000,
    ),
    row(
        "ping-pong-threads",
        "two threads, a message there and back",
        Work::ThreadPingPong,
        1,
        1,
        100_000,
    ),
    row(
        "ring-threads",
        "ring of 100 threads: each sends, then receives, 2,000 times; capacity 16",
        Work::ThreadRing,
        1,
        100,
        2_000,
    ),
    row(
        "whispers-1",
        "a chain of 100,001 channels, one worker, building it included",
        Work::Whispers,
        1,
        100_001,
        5,
    ),
    row(
        "whispers-2",
        "the same, two workers",
        Work::Whispers,
        2,
        100_001,
        5,
    ),
    row(
        "idle-pipe",
        "heap of a pipe for one `u64` that waits for its next message",
        Work::IdlePipe,
        1,
        1_000,
        1,
    ),
];

/// The rows of these names, or all.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Row>, ChannelBenchError> {
    if names.is_empty() {
        return Ok(ROWS.to_vec());
    }
    let find = |name: &String| {
        ROWS.into_iter()
            .find(|row| row.name == name)
            .ok_or_else(|| ChannelBenchError::Unknown {
                what: "row",
                name: name.clone(),
                known: ROWS.map(|row| row.name).join(", "),
            })
    };
    names.iter().map(find).collect()
}

impl Row {
    /// A tenth of the messages.
    pub(crate) fn quick(mut self) -> Self {
        self.size = self.size.tenth();
        self
    }

    /// A few messages of a few parties, to see that it runs at all.
    pub(crate) fn smoke(mut self) -> Self {
        self.size.parties = self.size.parties.min(12);
        self.size.rounds = self.size.rounds.min(30);
        self
    }
}

impl Size {
    /// What a complete run receives.
    pub(crate) fn messages(self) -> u64 {
        self.parties * self.rounds
    }

    pub(crate) fn tenth(self) -> Self {
        Self {
            rounds: self.rounds.div_ceil(10),
            ..self
        }
    }
}

impl Unit {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NanosecondsPerMessage => "ns a message",
            Self::NanosecondsPerRoundTrip => "ns a round trip",
            Self::BytesPerPipe => "bytes a pipe",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_differ_and_can_be_chosen() {
        for row in ROWS {
            let found = choose(&[row.name.to_owned()]).unwrap();
            assert_eq!(found[0].title, row.title);
        }
        let problem = choose(&["nonsense".to_owned()]).unwrap_err();
        assert!(problem.to_string().contains("token-ring"), "{problem}");
    }
}
