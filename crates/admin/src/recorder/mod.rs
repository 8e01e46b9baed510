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
//! - If data is on disk, incidents and minutes of the series are too; an error of such a file is
//!   logged, and changes nothing else.

mod file;
mod idle;
mod live;
pub(crate) mod rings;
pub(crate) mod series;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio::time::{MissedTickBehavior, interval};
use unbroken_broker::handle::{Events, Stats};

use self::file::Minutes;
use self::idle::Idle;
pub(crate) use self::live::Live;
use self::rings::{Part, Rings, Row};
use self::series::Reading;
use crate::broker::Broker;
use crate::delivery::flow::Flow;
use crate::delivery::incident::Severity;
use crate::delivery::now::{self, Beside};
use crate::delivery::strip::{Cell, Strip};
use crate::delivery::{Delivery, Incident, Incidents, file as files};
use crate::limits::{IDLE_TICKS_MAX, INCIDENT_EVENTS_MAX, LIVE_WAITING_MAX, SAVE_INCIDENTS_EVERY};
use crate::process::Process;
use crate::time::Moment;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    broker: Broker,
    kept: Arc<Mutex<Kept>>,
    live: broadcast::Sender<Live>,
}

/// What is kept of the past.
#[derive(Debug)]
struct Kept {
    rings: Rings,
    strip: Strip,
    incidents: Incidents,
    events: Option<Events>,
    /// The newest reading.
    last: Option<Reading>,
    /// When something last moved, or nothing was open.
    moved: Instant,
    /// Snapshots made.
    snapshots: u64,
    began: Moment,
    directory: Option<PathBuf>,
    minutes: Option<Minutes>,
    saved: Option<Instant>,
}

impl Recorder {
    /// Reads what earlier runs have left, and asks for events from now on.
    pub(crate) fn start(broker: Broker) -> Self {
        let began = broker.handle().began();
        let data = broker.handle().config().storage.place();
        let directory = data.and_then(|data| logged("make its directory", files::directory(&data)));
        let mut incidents = directory
            .as_deref()
            .map_or_else(Incidents::default, |directory| {
                let loaded = logged("read incidents", files::load_incidents(directory));
                loaded.map_or_else(Incidents::default, Incidents::restore)
            });
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
        let events = logged(
            "watch events",
            broker.handle().incidents(INCIDENT_EVENTS_MAX),
        );
        let kept = Kept {
            rings,
            strip,
            incidents,
            events,
            last: None,
            moved: Instant::now(),
            snapshots: 0,
            began: began.at.into(),
            directory,
            minutes,
            saved: None,
        };
        Self {
            broker,
            kept: Arc::new(Mutex::new(kept)),
            live: broadcast::Sender::new(LIVE_WAITING_MAX),
        }
    }

    /// Reads for ever.
    pub(crate) async fn run(self) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut idle = Idle::default();
        loop {
            ticks.tick().await;
            let is_watched = self.live.receiver_count() > 0;
            let reading = match idle.take() {
                _ if is_watched => self.read().await.ok(),
                reading => reading,
            };
            let is_quiet = self.tick(reading);
            if !is_watched {
                idle.ask(&self.broker, is_quiet);
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
        self.live.subscribe()
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

    /// Tells streams what has become of an incident.
    pub(crate) fn announce(&self, incident: &Incident) {
        self.send(Live::incident(incident));
    }

    /// Writes down what is not on disk.
    pub(crate) fn save(&self) {
        self.kept().save(Instant::now(), true);
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
        let mut is_quiet = true;
        let mut kept = self.kept();
        let now = Instant::now();
        let changed = kept.take_events();
        for incident in changed.iter().filter_map(|id| kept.incidents.get(*id)) {
            self.send(Live::incident(incident));
        }
        if let Some(reading) = reading {
            let red = changed.iter().rev().find(|id| {
                let incident = kept.incidents.get(**id);
                incident.is_some_and(|incident| incident.severity == Severity::Red)
            });
            let named = red.or(changed.last()).copied();
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
        kept.save(now, false);
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
        let beside = Beside {
            incidents: self.incidents.counts(),
            stuck_s: self.moved.elapsed().as_secs(),
        };
        Delivery::of(stats, broker.handle().began(), beside, Moment::now())
    }

    /// Takes all events that have come. Answers the incidents that are new or have grown.
    fn take_events(&mut self) -> Vec<u64> {
        let (mut changed, now) = (Vec::new(), Moment::now());
        let Some(events) = &self.events else {
            return changed;
        };
        for _ in 0..INCIDENT_EVENTS_MAX {
            let Ok(event) = events.next(Duration::ZERO) else {
                break;
            };
            if let Some(id) = self.incidents.take(&event, now)
                && !changed.contains(&id)
            {
                changed.push(id);
            }
        }
        self.incidents.miss(events.take_missed());
        changed
    }

    /// Answers whether it is like the last one.
    fn add(&mut self, reading: Reading, named: Option<u64>) -> bool {
        let (at, now) = (Moment::now().before(reading.at.elapsed()), reading.at);
        let Some(before) = self.last.take() else {
            self.last = Some(reading);
            return false;
        };
        let is_quiet = before.stats == reading.stats;
        let sample = reading.since(&before);
        let passed = now.saturating_duration_since(before.at).as_secs();
        // The seconds in which nothing was read are like this one.
        for ago in (0..passed.clamp(1, u64::from(IDLE_TICKS_MAX) + 1)).rev() {
            let over = self.rings.add(at.seconds().saturating_sub(ago), &sample);
            self.write(over);
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

    /// At once if it is the first change for a while, so that a crash behind it finds it on disk.
    fn save(&mut self, now: Instant, is_last: bool) {
        let is_due = self
            .saved
            .is_none_or(|saved| now - saved >= SAVE_INCIDENTS_EVERY);
        if !self.incidents.is_changed || !(is_due || is_last) {
            return;
        }
        if let Some(directory) = &self.directory {
            logged(
                "write incidents",
                files::save_incidents(directory, &self.incidents.saved()),
            );
        }
        self.incidents.is_changed = false;
        self.saved = Some(now);
    }
}

/// The result, or a line in the log.
fn logged<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| {
            tracing::warn!(%error, "the admin server cannot {what}; it continues without");
        })
        .ok()
}
