//! The log: standard error, as text or JSON, with a level that can change while the broker runs.
//!
//! A shard thread never waits for the reader of the log. The thread that logs formats the record
//! and queues it for a writing thread. When the queue is full, the record is lost and counted. The
//! count is written as soon as there is room, as a record like the others, so that every line of a
//! JSON log is JSON.
//!
//! A record that comes alone is written at once. After each write the writing thread pauses for
//! [`LOG_PAUSE`] and then writes all queued records together; queueing during the pause wakes no
//! thread.
//!
//! Invariant: at the end of the program [`Logging`] is dropped, and queued records are written
//! first if standard error takes them.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::bounds::{LOG_LINES, LOG_PAUSE, LOG_WRITE_BYTES};
use crate::config::{Log, LogFormat, LogLevel};

/// The log of this process, one per process; dropping it writes the queued records.
#[derive(Debug)]
pub(crate) struct Logging {
    filter: reload::Handle<EnvFilter, Registry>,
    lines: SyncSender<Line>,
    /// Ends when everything up to [`Line::End`] is written.
    written: Receiver<()>,
}

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be parsed.
    #[error("log.filter {text:?}: {source}")]
    Filter {
        /// As it was written.
        text: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The thread that writes could not be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(#[from] io::Error),
    /// The filter could not be replaced.
    #[error("cannot change the log filter: {0}")]
    Reload(#[from] reload::Error),
}

enum Line {
    Text(Vec<u8>),
    End,
}

impl Logging {
    /// Starts logging for the whole process. An existing subscriber (of a test) stays.
    pub(crate) fn start(config: &Log) -> Result<Self, LogError> {
        let (filter, handle) = reload::Layer::new(filter(config)?);
        let (lines, queue) = sync_channel(LOG_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let queued = Queued {
            lines: lines.clone(),
            lost: Arc::clone(&lost),
        };
        let (writing, written) = sync_channel(0);
        let format = config.format;
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write(&queue, &lost, format, &mut io::stderr());
                drop(writing);
            })?;
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(layer(format, queued))
            .try_init();
        Ok(Self {
            filter: handle,
            lines,
            written,
        })
    }

    /// Checks a filter before anything is changed.
    pub(crate) fn check(config: &Log) -> Result<(), LogError> {
        filter(config).map(drop)
    }

    /// Changes the filter from now on.
    pub(crate) fn change(&self, config: &Log) -> Result<(), LogError> {
        Ok(self.filter.reload(filter(config)?)?)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // If standard error takes no more, the broker ends without its last lines.
        let until = Instant::now() + FLUSH_TIMEOUT;
        while self.lines.try_send(Line::End).is_err() {
            if Instant::now() >= until {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.written.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// How long the end of the program waits for its log to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

fn filter(config: &Log) -> Result<EnvFilter, LogError> {
    let mut text = config.level.as_str().to_owned();
    if !matches!(config.level, LogLevel::Error | LogLevel::Warn) {
        // Only the broker's own modules: not each poll of the library underneath, or each file that
        // the store's engine opens.
        text = format!("{},unbroken={text}", LogLevel::Warn.as_str());
    }
    // A failed write or sync is reported by the broker, with its cause and the next step.
    for module in REPORTED_BY_US {
        text = format!("{text},{module}=off");
    }
    if let Some(directives) = &config.filter {
        text = format!("{text},{directives}");
    }
    EnvFilter::try_new(&text).map_err(|source| LogError::Filter { text, source })
}

/// Modules of the store's engine that log only what they also return as an error.
const REPORTED_BY_US: [&str; 2] = ["fjall::batch", "fjall::db"];

fn layer<S>(format: LogFormat, queued: Queued) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(queued);
    match format {
        LogFormat::Human => layer.with_ansi(false).with_target(false).boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .boxed(),
    }
}

/// The writing thread.
fn write(queue: &Receiver<Line>, lost: &AtomicU64, format: LogFormat, out: &mut dyn Write) {
    let mut text = Vec::new();
    while let Ok(Line::Text(first)) = queue.recv() {
        text.extend_from_slice(&first);
        let ended = gather(queue, &mut text);
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            text.extend_from_slice(lost_record(count, format).as_bytes());
        }
        // If standard error is gone, there is nowhere to report it.
        let _ = out.write_all(&text);
        text.clear();
        text.shrink_to(LOG_WRITE_BYTES);
        if ended {
            break;
        }
        thread::sleep(LOG_PAUSE);
    }
    let _ = out.flush();
}

/// Takes queued records, up to the size of one write. Returns whether the log ends with them.
fn gather(queue: &Receiver<Line>, text: &mut Vec<u8>) -> bool {
    while text.len() < LOG_WRITE_BYTES {
        match queue.try_recv() {
            Ok(Line::Text(next)) => text.extend_from_slice(&next),
            Ok(Line::End) | Err(TryRecvError::Disconnected) => return true,
            Err(TryRecvError::Empty) => return false,
        }
    }
    false
}

/// The record in place of the lost ones. It does not go through the queue, which is full.
fn lost_record(count: u64, format: LogFormat) -> String {
    let mut time = String::new();
    // A time that cannot be written is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let message = "log records were lost here: the log could not be written fast enough";
    let mut line = String::new();
    // Writing to a String cannot fail.
    let _ = match format {
        LogFormat::Human => writeln!(line, "{time}  WARN {message} count={count}"),
        LogFormat::Json => writeln!(
            line,
            "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"{message}\",\
             \"count\":{count},\"target\":\"{}\"}}",
            module_path!()
        ),
    };
    line
}

/// Queues the records of a thread.
#[derive(Clone)]
struct Queued {
    lines: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

impl<'a> MakeWriter<'a> for Queued {
    type Writer = Record;

    fn make_writer(&'a self) -> Record {
        Record {
            text: Vec::new(),
            to: self.clone(),
        }
    }
}

/// One record; it is queued when it is complete.
struct Record {
    text: Vec<u8>,
    to: Queued,
}

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        if let Err(TrySendError::Full(_)) = self.to.lines.try_send(Line::Text(text)) {
            self.to.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of `happens`, with room for this many records.
    fn written(log: &Log, room: usize, happens: impl FnOnce()) -> String {
        let (lines, queue) = sync_channel(room);
        let lost = Arc::new(AtomicU64::new(0));
        let queued = Queued {
            lines,
            lost: Arc::clone(&lost),
        };
        let subscriber = tracing_subscriber::registry()
            .with(filter(log).unwrap())
            .with(layer(log.format, queued));
        tracing::subscriber::with_default(subscriber, happens);
        let mut out = Vec::new();
        write(&queue, &lost, log.format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_of_a_json_log_is_json_even_where_records_were_lost() {
        let log = Log {
            format: LogFormat::Json,
            ..Log::default()
        };
        let text = written(&log, 2, || {
            for count in 0..5 {
                tracing::info!(client = "a\"b\n\u{1b}", count, "connected");
            }
        });
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 3, "two that fit, and the count: {text}");
        let lost = lines.iter().find(|line| line["level"] == "WARN").unwrap();
        assert_eq!(lost["count"], 3);
        let keys = |line: &serde_json::Value| {
            let keys = line.as_object().unwrap().keys();
            keys.filter(|key| *key != "client")
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(lost), keys(&lines[0]), "a record like the others");
    }

    /// Standard error as a list of separate writes.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn records_that_wait_are_written_together() {
        let line = vec![b'x'; LOG_WRITE_BYTES / 10];
        let (lines, queue) = sync_channel(100);
        for _ in 0..15 {
            lines.send(Line::Text(line.clone())).unwrap();
        }
        lines.send(Line::End).unwrap();
        let mut out = Writes::default();
        write(&queue, &AtomicU64::new(0), LogFormat::Human, &mut out);
        let lengths: Vec<_> = out.0.iter().map(|bytes| bytes.len() / line.len()).collect();
        assert_eq!(
            lengths,
            [11, 4],
            "what is more than is written at once comes behind it"
        );
    }

    #[test]
    fn more_detail_is_of_the_broker_and_not_of_the_libraries_in_it() {
        let happens = || {
            tracing::trace!(target: "unbroken_broker::server", "ours");
            tracing::trace!(target: "unbroken::client", "ours");
            tracing::trace!(target: "mio::poll", "theirs");
            tracing::warn!(target: "mio::poll", "serious");
            tracing::error!(target: "fjall::batch", "theirs");
        };
        let log = |filter: Option<&str>| Log {
            level: LogLevel::Trace,
            filter: filter.map(str::to_owned),
            ..Log::default()
        };
        let count = |text: &str, word| text.lines().filter(|line| line.contains(word)).count();
        let text = written(&log(None), 10, happens);
        assert_eq!(
            ["ours", "theirs", "serious"].map(|word| count(&text, word)),
            [2, 0, 1]
        );
        let text = written(&log(Some("mio=trace,fjall::batch=error")), 10, happens);
        assert_eq!(count(&text, "theirs"), 2, "who asks for it by name has it");
    }
}
