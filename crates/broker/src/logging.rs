//! Where log records go: standard error, for people or for machines, at a level that can be changed
//! while the broker runs.
//!
//! A shard thread must not wait for whoever reads our output. So a record is formatted by the
//! thread it happens on and handed to a writing thread through a bounded queue; when that is full
//! the record is lost, counted, and the count is written as soon as there is room.
//!
//! Invariant: at the end of the program [`Logging`] is dropped, and everything queued is written
//! first if anybody reads it.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::bounds::LOG_LINES;
use crate::config::{Log, LogFormat};

/// The log of this process. One for each process; dropping it writes what is left.
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
    /// The filter is not one.
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
    /// Starts logging for the whole process. Where something else has done so before (a test), it
    /// stays.
    pub(crate) fn start(config: &Log) -> Result<Self, LogError> {
        let (filter, handle) = reload::Layer::new(filter(config)?);
        let (lines, queue) = sync_channel(LOG_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let queued = Queued {
            lines: lines.clone(),
            lost: Arc::clone(&lost),
        };
        let (writing, written) = sync_channel(0);
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                write(&queue, &lost);
                drop(writing);
            })?;
        let layer = tracing_subscriber::fmt::layer().with_writer(queued);
        let layer = match config.format {
            LogFormat::Human => layer.with_ansi(false).with_target(false).boxed(),
            LogFormat::Json => layer
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .boxed(),
        };
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(layer)
            .try_init();
        Ok(Self {
            filter: handle,
            lines,
            written,
        })
    }

    /// Checks that a filter is one, before anything is changed.
    pub(crate) fn check(config: &Log) -> Result<(), LogError> {
        filter(config).map(drop)
    }

    /// Changes what is written from now on.
    pub(crate) fn change(&self, config: &Log) -> Result<(), LogError> {
        Ok(self.filter.reload(filter(config)?)?)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // Whoever reads our output may have stopped; then the broker ends without its last lines.
        let until = Instant::now() + LAST_LINES;
        while self.lines.try_send(Line::End).is_err() {
            if Instant::now() >= until {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.written.recv_timeout(LAST_LINES);
    }
}

/// How long the end of the program waits for its log to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

fn filter(config: &Log) -> Result<EnvFilter, LogError> {
    let text = match &config.filter {
        Some(directives) => format!("{},{directives}", config.level.as_str()),
        None => config.level.as_str().to_owned(),
    };
    EnvFilter::try_new(&text).map_err(|source| LogError::Filter { text, source })
}

/// The writing thread.
fn write(queue: &Receiver<Line>, lost: &AtomicU64) {
    let mut out = io::stderr();
    while let Ok(Line::Text(text)) = queue.recv() {
        // Nobody is left to tell if standard error is gone.
        let _ = out.write_all(&text);
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let _ = writeln!(
                out,
                "{count} log records were lost here: they came faster than they could be written"
            );
        }
    }
    let _ = out.flush();
}

/// Where a thread writes its records.
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
