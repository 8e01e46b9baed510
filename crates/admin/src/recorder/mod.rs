//! Reads the counters and the events once a second, for all who look at the page.
//!
//! ```text
//! once a second ─▶ counters ─▶ series, strip ─▶ one snapshot as text ─▶ every stream
//!               └▶ events ──▶ incidents ────────────────────────────▶ every stream
//! ```
//!
//! Invariants:
//! - One task reads; what it costs does not depend on how many look.
//! - What it keeps is bounded: rings (`rings.rs`), cells of the strip and incidents (`limits.rs`).
//! - If data is on disk, incidents and minutes of the series are too. An error of such a file is
//!   logged; while incidents may not be known, or are not stored, the state is not green.
//! - The task never waits for the disk: incidents are written on a thread of their own.
//! - While nothing changes and no one looks, it sleeps for [`IDLE_TICK`].

mod file;
mod idle;
mod live;
pub(crate) mod rings;
pub(crate) mod series;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use unbroken_broker::handle::{Events, Stats};

use self::file::Minutes;
use self::idle::Idle;
pub(crate) use self::live::Live;
use self::rings::{Part, Rings, Row};
use self::series::Reading;
use crate::broker::Broker;
use crate::delivery::flow::Flow;
use crate::delivery::incident::Severity;
use crate::delivery::incidents::Saved;
use crate::delivery::now::{self, Beside};
use crate::delivery::strip::{Cell, Strip};
use crate::delivery::{Delivery, Incident, Incidents, file as files};
use crate::denials::Denials;
use crate::limits::{
    IDLE_GAP_S_MAX, IDLE_TICK, INCIDENT_EVENTS_MAX, LIVE_WAITING_MAX, SAVE_INCIDENTS_EVERY,
};
use crate::process::Process;
use crate::time::Moment;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    broker: Broker,
    denials: Denials,
    kept: Arc<Mutex<Kept>>,
    live: broadcast::Sender<Live>,
    /// Somebody looks from now on.
    looked: Arc<Notify>,
    /// Held while incidents are written: the number of the newest ones on disk.
    written: Arc<Mutex<u64>>,
}

/// What is kept of the past.
#[derive(Debug)]
struct Kept {
    rings: Rings,
    strip: Strip,
    incidents: Incidents,
    /// `None` if the broker could not be asked for them; it is asked again.
    events: Option<Events>,
    /// Why incidents are not on disk.
    unsaved: Option<String>,
    /// The newest reading.
    last: Option<Reading>,
    /// When something last moved, or nothing was open.
    moved: Instant,
    /// Snapshots made.
    snapshots: u64,
    began: Moment,
    /// The worst incident that was named since the last reading.
    named: Option<(u64, Severity)>,
    directory: Option<PathBuf>,
    minutes: Option<Minutes>,
    saved: Option<Instant>,
    /// How often incidents were taken to be written, and whether that is under way.
    saves: u64,
    is_saving: bool,
}

/// Incidents on their way to the disk.
struct Save {
    directory: PathBuf,
    saved: Saved,
    number: u64,
}

impl Recorder {
    /// Reads what earlier runs have left, and asks for events from now on.
    pub(crate) fn start(broker: Broker, denials: Denials) -> Self {
        let began = broker.handle().began();
        let data = broker.handle().config().storage.place();
        let directory = data.map(|data| files::directory(&data)).transpose();
        let unsaved = directory.as_ref().err().map(unsaved);
        let directory = logged("make its directory", directory).flatten();
        let mut incidents = directory.as_deref().map(restore).unwrap_or_default();
        let mut rings = Rings::new();
        let minutes = directory.as_deref().and_then(|directory| {
            let opened = Minutes::open(directory, |minute, row| rings.restore(minute, row));
            logged("open its series", opened)
        });
        let mut strip = Strip::default();
        if began.after_crash {
            incidents.add(Incident::of_crash(began.at.into()));
            strip.unknown(began.at.into());
        }
        let mut kept = Kept {
            rings,
            strip,
            incidents,
            events: None,
            unsaved,
            last: None,
            moved: Instant::now(),
            snapshots: 0,
            began: began.at.into(),
            named: None,
            directory,
            minutes,
            saved: None,
            saves: 0,
            is_saving: false,
        };
        kept.watch(&broker);
        Self {
            broker,
            denials,
            kept: Arc::new(Mutex::new(kept)),
            live: broadcast::Sender::new(LIVE_WAITING_MAX),
            looked: Arc::default(),
            written: Arc::default(),
        }
    }

    /// Reads for ever.
    pub(crate) async fn run(self) {
        let mut idle = Idle::default();
        loop {
            let is_watched = self.live.receiver_count() > 0;
            let reading = match idle.take() {
                _ if is_watched => self.read().await.ok(),
                reading => reading,
            };
            let is_quiet = self.tick(reading);
            if !is_watched {
                idle.ask(&self.broker, is_quiet);
            }
            let is_resting = idle.is_resting() && !is_watched;
            let pause = if is_resting { IDLE_TICK } else { TICK };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.looked.notified(), if !is_watched => {}
            }
        }
    }

    /// The delivery at this moment.
    pub(crate) async fn delivery(&self) -> Result<Delivery, String> {
        let stats = self.broker.counters().await?;
        Ok(self.kept().delivery(&self.broker, &stats))
    }

    /// What is sent to streams from now on, and the newest snapshot.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Live> {
        let stream = self.live.subscribe();
        self.looked.notify_one();
        stream
    }

    pub(crate) fn cells(&self, count: usize) -> Vec<Cell> {
        self.kept().strip.newest(count)
    }

    pub(crate) fn series(&self, series: &[usize], range: (u64, u64), points: u64) -> Part {
        let kept = self.kept();
        let now = Moment::now().seconds();
        kept.rings
            .read(series, range, points, (now, kept.began.seconds()))
    }

    /// Does something with the incidents, as they are at this moment.
    pub(crate) fn with_incidents<T>(&self, work: impl FnOnce(&mut Incidents) -> T) -> T {
        let mut kept = self.kept();
        kept.take_events();
        work(&mut kept.incidents)
    }

    /// Writes down what is not on disk, and waits until it is.
    pub(crate) fn save(&self) {
        let mut kept = self.kept();
        kept.take_events();
        let save = kept.due(Instant::now(), true);
        drop(kept);
        if let Some(save) = save {
            self.write(save);
        }
    }

    /// It waits for the disk.
    fn write(&self, save: Save) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_newest = save.number > *written;
        let result = if is_newest {
            files::save_incidents(&save.directory, &save.saved)
        } else {
            Ok(())
        };
        if is_newest && result.is_ok() {
            *written = save.number;
        }
        drop(written);
        let mut kept = self.kept();
        kept.is_saving = false;
        kept.unsaved = result.as_ref().err().map(unsaved);
        kept.incidents.is_changed |= result.is_err(); // it is tried again
        drop(kept);
        logged("write incidents", result);
    }

    async fn read(&self) -> Result<Reading, String> {
        let stats = self.broker.counters().await?;
        Ok(Reading {
            stats,
            connections: self.broker.handle().connections(),
            process: Process::load(),
            at: Instant::now(),
        })
    }

    /// Answers whether nothing has changed, as far as that is known.
    fn tick(&self, reading: Option<Reading>) -> bool {
        self.denials.take();
        let mut is_quiet = true;
        let mut kept = self.kept();
        kept.watch(&self.broker);
        kept.take_events();
        let changed = kept.incidents.take_changed();
        let mut named = kept.named.take();
        for (id, is_named) in changed {
            let Some(incident) = kept.incidents.get(id) else {
                continue;
            };
            self.send(Live::incident(incident));
            if is_named {
                let this = (id, incident.severity);
                named = match named {
                    Some(worse) if worse.1 > this.1 => Some(worse),
                    _ => Some(this),
                };
            }
        }
        kept.named = named;
        if let Some(reading) = reading {
            let named = kept.named.take();
            is_quiet = kept.add(reading, named);
            if self.live.receiver_count() > 0 {
                kept.snapshots += 1;
                let delivery = kept.last.as_ref();
                let delivery = delivery.map(|last| kept.delivery_of(&self.broker, &last.stats));
                if let Some((delivery, last)) = delivery.zip(kept.last.as_ref()) {
                    let id = kept.snapshots;
                    let rates = kept.rings.newest(delivery.as_of.seconds());
                    self.send(Live::snapshot(id, &delivery, last, &rates, &self.broker));
                }
            }
        }
        let save = kept.due(Instant::now(), false);
        drop(kept);
        if let Some(save) = save {
            let recorder = self.clone();
            spawn_blocking(move || recorder.write(save));
        }
        is_quiet
    }

    fn send(&self, live: Live) {
        let _ = self.live.send(live); // without a stream it is for no one
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn delivery(&mut self, broker: &Broker, stats: &Stats) -> Delivery {
        self.take_events();
        self.delivery_of(broker, stats)
    }

    fn delivery_of(&self, broker: &Broker, stats: &Stats) -> Delivery {
        let mut blind: Vec<String> = self.unsaved.iter().cloned().collect();
        if self.events.is_none() {
            blind.push("the broker does not tell of incidents: they may not be named".to_owned());
        }
        let beside = Beside {
            incidents: self.incidents.counts(),
            blind,
            stuck_s: self.moved.elapsed().as_secs(),
        };
        let began = (self.began, broker.handle().began().after_crash);
        Delivery::of(stats, began, &beside, Moment::now())
    }

    /// Asks for events, if that did not succeed yet.
    fn watch(&mut self, broker: &Broker) {
        if self.events.is_none() {
            let events = broker.handle().incidents(INCIDENT_EVENTS_MAX);
            self.events = logged("watch events", events);
        }
    }

    /// Takes all events that have come.
    fn take_events(&mut self) {
        let now = Moment::now();
        let Some(events) = &self.events else {
            return;
        };
        for _ in 0..INCIDENT_EVENTS_MAX {
            let Ok(event) = events.next(Duration::ZERO) else {
                break;
            };
            self.incidents.take(&event, now);
        }
        self.incidents.miss(events.take_missed());
    }

    /// Answers whether it is like the last one.
    fn add(&mut self, reading: Reading, named: Option<(u64, Severity)>) -> bool {
        let (at, now) = (Moment::now().before(reading.at.elapsed()), reading.at);
        let Some(before) = self.last.take() else {
            self.last = Some(reading);
            return false;
        };
        let is_quiet = reading.is_like(&before);
        let sample = reading.since(&before);
        let passed = now.saturating_duration_since(before.at).as_secs();
        // The seconds in which nothing was read are like this one.
        for ago in (0..passed.clamp(1, IDLE_GAP_S_MAX)).rev() {
            let over = self.rings.add(at.seconds().saturating_sub(ago), &sample);
            self.write(over);
        }
        if passed > IDLE_GAP_S_MAX {
            self.strip.unknown(at); // it did not answer
        }
        let flows = (&Flow::of(&before.stats), &Flow::of(&reading.stats));
        let windows = (now::windows(&before.stats), now::windows(&reading.stats));
        self.strip.add(at, flows, windows, named);
        let (before, after) = flows;
        if after.open == 0 || before.ended() != after.ended() {
            self.moved = now;
        }
        self.last = Some(reading);
        is_quiet
    }

    /// A minute that is over goes to the disk.
    fn write(&mut self, over: Option<(u64, Row)>) {
        if let Some((minute, row)) = over
            && let Some(minutes) = &mut self.minutes
            && logged("write its series", minutes.add(minute, &row)).is_none()
        {
            self.minutes = None;
        }
    }

    /// What is to be written: at once if it is the first change for a while, so that a crash behind
    /// it finds it on disk.
    fn due(&mut self, now: Instant, is_last: bool) -> Option<Save> {
        let is_due = self
            .saved
            .is_none_or(|saved| now - saved >= SAVE_INCIDENTS_EVERY);
        let is_free = is_last || is_due && !self.is_saving;
        let is_wanted = self.incidents.is_changed || is_last && self.is_saving;
        if !(is_free && is_wanted) {
            return None;
        }
        let directory = self.directory.clone()?;
        self.incidents.is_changed = false;
        self.saved = Some(now);
        self.saves += 1;
        self.is_saving = true;
        Some(Save {
            directory,
            saved: self.incidents.saved(),
            number: self.saves,
        })
    }
}

/// The incidents of earlier runs. A file that cannot be read is kept, and is an incident.
fn restore(directory: &Path) -> Incidents {
    let error = match files::load_incidents(directory) {
        Ok(saved) => return Incidents::restore(saved),
        Err(error) => error,
    };
    tracing::warn!(%error, "the admin server cannot read incidents; it keeps the file aside");
    let kept = match files::set_aside(directory) {
        Ok(aside) => format!("their file is now {}", aside.display()),
        Err(error) => format!("their file cannot be renamed ({error})"),
    };
    let words = format!("Incidents of earlier runs are not known ({error}): {kept}");
    let mut incidents = Incidents::default();
    incidents.add(Incident::of_gap("unreadable", words, Moment::now()));
    incidents
}

fn unsaved(error: &io::Error) -> String {
    format!("incidents are not on disk and end with this run: {error}")
}

const TICK: Duration = Duration::from_secs(1);

/// The result, or a line in the log.
fn logged<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| {
            tracing::warn!(%error, "the admin server cannot {what}; it continues without");
        })
        .ok()
}
