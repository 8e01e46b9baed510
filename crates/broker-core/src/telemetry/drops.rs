//! What was dropped of one session since it was last reported.
//!
//! The first one of a session and reason is reported at once. Those behind it are reported
//! together, once a second, so that a flood of drops is not also a flood of log lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::message::Publication;
use crate::option_box::OptionBox;
use crate::reason::{DropPlace, DropReason};
use crate::telemetry::{Event, Numbers};

/// What was dropped for each reason since it was last reported. Of most sessions nothing ever was,
/// and that takes one word.
#[derive(Debug, Default)]
pub(crate) struct DropTallies(OptionBox<Vec<DropTally>>);

#[derive(Debug)]
struct DropTally {
    reason: DropReason,
    reported: Instant,
    unreported: u64,
    /// Of the newest one that is not reported. The text keeps its room: a flood does not allocate.
    client_id: Arc<str>,
    topic: String,
    /// The session that was full, of what was refused for one.
    full: Option<Arc<str>>,
    place: DropPlace,
    /// Of those that are not reported.
    numbers: Option<Numbers>,
}

/// One message that is not delivered.
#[derive(Debug)]
pub(crate) struct Dropped<'a> {
    /// Whose: the receiver at [`DropPlace::Receiver`], the publisher elsewhere.
    pub(crate) client_id: &'a Arc<str>,
    pub(crate) message: &'a Publication<'a>,
    pub(crate) publisher: Option<&'a Arc<str>>,
    pub(crate) place: DropPlace,
    pub(crate) reason: DropReason,
    /// The client of the session for which it was refused, if it was full.
    pub(crate) full: Option<&'a Arc<str>>,
}

impl DropTallies {
    /// Counts a drop. Answers what is to be reported now, if anything.
    pub(super) fn count(&mut self, now: Instant, drop: &Dropped<'_>) -> Option<Event> {
        let is_same = |tally: &&mut DropTally| {
            tally.reason == drop.reason
                && tally.full.is_some() == drop.full.is_some()
                && tally.place == drop.place
        };
        let tallies = self.0.get_or_insert_default();
        let Some(tally) = tallies.iter_mut().find(is_same) else {
            tallies.push(DropTally {
                reason: drop.reason,
                reported: now,
                unreported: 0,
                client_id: Arc::clone(drop.client_id),
                topic: String::new(),
                full: drop.full.cloned(),
                place: drop.place,
                numbers: None,
            });
            return Some(Event::Dropped {
                client_id: Arc::clone(drop.client_id),
                topic: drop.message.topic.into(),
                reason: drop.reason,
                count: 1,
                full: drop.full.cloned(),
                place: drop.place,
                numbers: Numbers::of(drop.message, drop.publisher, now).map(Box::new),
            });
        };
        tally.unreported += 1;
        // Names are shared by all shards: to count a reference costs more than to look.
        if !Arc::ptr_eq(&tally.client_id, drop.client_id) {
            tally.client_id = Arc::clone(drop.client_id);
        }
        if tally.full.as_ref().map(Arc::as_ptr) != drop.full.map(Arc::as_ptr) {
            tally.full = drop.full.cloned();
        }
        tally.topic.clear();
        tally.topic.push_str(drop.message.topic);
        Numbers::add(&mut tally.numbers, drop.message, drop.publisher, now);
        (now.saturating_duration_since(tally.reported) >= TELL_DROPS_EVERY)
            .then(|| tally.report(now))
    }

    pub(super) fn has_unreported(&self) -> bool {
        let mut tallies = self.0.get().into_iter().flatten();
        tallies.any(|tally| tally.unreported > 0)
    }

    /// What was counted and not yet reported.
    pub(super) fn take_unreported(&mut self, now: Instant) -> impl Iterator<Item = Event> + '_ {
        let tallies = self.0.get_mut().into_iter().flatten();
        tallies
            .filter(|tally| tally.unreported > 0)
            .map(move |tally| tally.report(now))
    }
}

impl DropTally {
    fn report(&mut self, now: Instant) -> Event {
        self.reported = now;
        Event::Dropped {
            client_id: Arc::clone(&self.client_id),
            topic: self.topic.as_str().into(),
            reason: self.reason,
            count: std::mem::take(&mut self.unreported),
            full: self.full.clone(),
            place: self.place,
            numbers: self.numbers.take().map(Box::new),
        }
    }
}

/// At most one event a second for a session and reason.
pub(super) const TELL_DROPS_EVERY: Duration = Duration::from_secs(1);
