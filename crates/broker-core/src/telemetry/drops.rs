//! What was dropped of one session since it was last reported.
//!
//! The first one of a session and reason is reported at once. Those behind it are reported
//! together, once a second, so that a flood of drops is not also a flood of log lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::option_box::OptionBox;
use crate::reason::DropReason;
use crate::telemetry::Event;

/// What was dropped for each reason since it was last told. Of most sessions nothing ever was, and
/// that takes one word.
#[derive(Debug, Default)]
pub(crate) struct DropTallies(OptionBox<Vec<DropTally>>);

#[derive(Debug)]
struct DropTally {
    reason: DropReason,
    told: Instant,
    untold: u64,
    /// Of the newest one that is not told. The text keeps its room: a flood does not allocate.
    client_id: Arc<str>,
    topic: String,
    /// The session that was full, of what was refused for one.
    full: Option<Arc<str>>,
}

impl DropTallies {
    /// Counts a drop. Answers what is to be told now, if anything.
    pub(crate) fn count(
        &mut self,
        now: Instant,
        client_id: &Arc<str>,
        topic: &str,
        reason: DropReason,
        full: Option<&Arc<str>>,
    ) -> Option<Event> {
        let is_same = |tally: &&mut DropTally| {
            tally.reason == reason && tally.full.is_some() == full.is_some()
        };
        let tallies = self.0.get_or_insert_default();
        let Some(tally) = tallies.iter_mut().find(is_same) else {
            tallies.push(DropTally {
                reason,
                told: now,
                untold: 0,
                client_id: Arc::clone(client_id),
                topic: String::new(),
                full: full.cloned(),
            });
            return Some(Event::Dropped {
                client_id: Arc::clone(client_id),
                topic: topic.into(),
                reason,
                count: 1,
                full: full.cloned(),
            });
        };
        tally.untold += 1;
        tally.client_id = Arc::clone(client_id);
        tally.full = full.cloned();
        tally.topic.clear();
        tally.topic.push_str(topic);
        (now.saturating_duration_since(tally.told) >= TELL_DROPS_EVERY).then(|| tally.tell(now))
    }

    pub(crate) fn has_untold(&self) -> bool {
        let mut tallies = self.0.get().into_iter().flatten();
        tallies.any(|tally| tally.untold > 0)
    }

    /// What was counted and not yet told.
    pub(crate) fn take_untold(&mut self, now: Instant) -> impl Iterator<Item = Event> + '_ {
        let tallies = self.0.get_mut().into_iter().flatten();
        tallies
            .filter(|tally| tally.untold > 0)
            .map(move |tally| tally.tell(now))
    }
}

impl DropTally {
    fn tell(&mut self, now: Instant) -> Event {
        self.told = now;
        Event::Dropped {
            client_id: Arc::clone(&self.client_id),
            topic: self.topic.as_str().into(),
            reason: self.reason,
            count: std::mem::take(&mut self.untold),
            full: self.full.clone(),
        }
    }
}

/// At most one event a second for a session and reason.
pub(crate) const TELL_DROPS_EVERY: Duration = Duration::from_secs(1);
