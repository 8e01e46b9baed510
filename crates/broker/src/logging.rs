//! The log: standard error, as text or JSON, with a level that can change while the broker runs.
//!
//! A shard thread never waits for the reader of the log. The thread that logs formats the record
//! and queues it for a writing thread. When the queue is full, a record of the client with the most
//! of them is suppressed and counted ([`queue`]). The count is written as soon as there is room, as
//! a record like the others, so that every line of a JSON log is JSON.
//!
//! A record that comes alone is written at once. After each write the writing thread pauses for
//! [`LOG_PAUSE`] and then writes all queued records together; queueing during the pause wakes no
//! thread.
//!
//! Invariant: at the end of the program [`Logging`] is dropped, and queued records are written
//! first if standard error takes them.

mod queue;
mod recent;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};
use unbroken_mqtt_proto::Escaped;

pub(crate) use self::queue::about;
use self::queue::{Queue, Suppressed};
pub use self::recent::{LogEvent, RecentLogs, recent_logs};
use crate::bounds::{LOG_LINES, LOG_NAME_CHARACTERS, LOG_PAUSE, LOG_WRITE_BYTES};
use crate::config::{Log, LogFormat, LogLevel};

/// The log of this process, one per process; dropping it writes the queued records.
#[derive(Debug)]
pub(crate) struct Logging {
    filter: reload::Handle<EnvFilter, Registry>,
    queue: Arc<Queue>,
    /// Ends when everything is written.
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

impl Logging {
    /// Starts logging for the whole process. An existing subscriber (of a test) stays.
    pub(crate) fn start(config: &Log) -> Result<Self, LogError> {
        let (filter, handle) = reload::Layer::new(filter(config)?);
        let queue = Arc::new(Queue::new(LOG_LINES));
        let queued = Queued(Arc::clone(&queue));
        let waiting = Arc::clone(&queue);
        let (writing, written) = sync_channel(0);
        let format = config.format;
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write(&waiting, format, &mut io::stderr());
                drop(writing);
            })?;
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(layer(format, queued))
            .with(recent::Remember(recent_logs()))
            .try_init();
        Ok(Self {
            filter: handle,
            queue,
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
        self.queue.end();
        // If standard error takes no more, the broker ends without its last lines.
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
fn write(queue: &Queue, format: LogFormat, out: &mut dyn Write) {
    let mut text = Vec::new();
    let mut writes = 0;
    loop {
        let piece = queue.take(LOG_WRITE_BYTES);
        text.extend(piece.records.into_iter().flatten());
        // Under a load that does not end, not with each write.
        writes += 1;
        if piece.is_last || writes >= WRITES_PER_REPORT {
            writes = 0;
            report_suppressed(queue.take_suppressed(), format, &mut text);
        }
        // If standard error is gone, there is nowhere to report it.
        let _ = out.write_all(&text);
        if piece.has_ended {
            break;
        }
        text.clear();
        text.shrink_to(LOG_WRITE_BYTES);
        thread::sleep(LOG_PAUSE);
    }
    let _ = out.flush();
}

/// About a second of writes.
const WRITES_PER_REPORT: u32 = 200;

/// The records in place of the suppressed ones. They do not go through the queue, which is full.
fn report_suppressed(suppressed: Suppressed, format: LogFormat, text: &mut Vec<u8>) {
    let Suppressed {
        of_clients,
        of_others,
    } = suppressed;
    for (client, count) in of_clients {
        text.extend_from_slice(suppressed_record(client.as_deref(), count, format).as_bytes());
    }
    if of_others > 0 {
        text.extend_from_slice(suppressed_record(None, of_others, format).as_bytes());
    }
}

fn suppressed_record(client: Option<&str>, count: u64, format: LogFormat) -> String {
    let mut time = String::new();
    // A time that cannot be written is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let message = "log lines suppressed: the log could not be written fast enough";
    let client = client.map(|client| Escaped::at_most(client, LOG_NAME_CHARACTERS).to_string());
    match format {
        LogFormat::Human => {
            let client = client.map(|client| format!("client={client} "));
            let client = client.unwrap_or_default();
            format!("{time}  WARN {message} {client}count={count}\n")
        }
        LogFormat::Json => {
            let mut record = serde_json::json!({
                "timestamp": time,
                "level": "WARN",
                "message": message,
                "count": count,
                "target": module_path!(),
            });
            if let Some(client) = client {
                record["client"] = client.into();
            }
            format!("{record}\n")
        }
    }
}

/// Queues the records of a thread.
#[derive(Clone)]
struct Queued(Arc<Queue>);

impl<'a> MakeWriter<'a> for Queued {
    type Writer = Record;

    fn make_writer(&'a self) -> Record {
        Record {
            text: Vec::new(),
            to: Arc::clone(&self.0),
        }
    }
}

/// One record; it is queued when it is complete.
struct Record {
    text: Vec<u8>,
    to: Arc<Queue>,
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
        self.to
            .push(queue::client(), std::mem::take(&mut self.text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of `happens`, with room for this many records.
    fn written(log: &Log, room: usize, happens: impl FnOnce()) -> String {
        let queue = Arc::new(Queue::new(room));
        let queued = Queued(Arc::clone(&queue));
        let subscriber = tracing_subscriber::registry()
            .with(filter(log).unwrap())
            .with(layer(log.format, queued));
        tracing::subscriber::with_default(subscriber, happens);
        queue.end();
        let mut out = Vec::new();
        write(&queue, log.format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_of_a_json_log_is_json_even_where_records_were_lost() {
        let log = Log {
            format: LogFormat::Json,
            ..Log::default()
        };
        let client = Arc::from("a\"b\n\u{1b}");
        let text = written(&log, 2, || {
            for count in 0..5 {
                about(Some(&client), || {
                    tracing::info!(client = "a\"b\n\u{1b}", count, "connected");
                });
            }
        });
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 3, "two that fit, and the count: {text}");
        let lost = lines.iter().find(|line| line["level"] == "WARN").unwrap();
        assert_eq!(lost["count"], 3);
        assert_eq!(lost["client"], "a\"b\\n\\u{1b}");
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
        let queue = Queue::new(100);
        for _ in 0..15 {
            queue.push(None, line.clone());
        }
        queue.end();
        let mut out = Writes::default();
        write(&queue, LogFormat::Human, &mut out);
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
