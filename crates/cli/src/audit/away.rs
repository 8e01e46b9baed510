//! The times in which this listener did not hear everything: it was not connected, or it fell
//! behind and its client dropped messages of QoS 0.
//!
//! Which losses a disconnection explains the audited subscriber knows. A loss is put down to a time
//! in which messages were dropped if the last message before it came before the time was over, and
//! the first one behind it after the time began. What was read is judged a little later, so a time
//! counts for [`Away::GRACE`] longer.

use std::ops::Range;
use std::time::Duration;

use super::wall::Wall;

/// Times that are remembered; about 50 bytes each. Of more the last one is extended.
const TIMES_MAX: usize = 1_024;

/// All these times, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Away(Vec<Time>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Time {
    from: Duration,
    /// `None`: until now.
    to: Option<Duration>,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Disconnected,
    Behind,
}

impl Away {
    const GRACE: Duration = Duration::from_secs(1);

    /// The connection ended. Returns the sentence, if it was there before.
    pub(crate) fn disconnected(&mut self, now: Duration, wall: Wall) -> Option<String> {
        if self.is_open() {
            return None;
        }
        let time = Time {
            from: now,
            to: None,
            why: Why::Disconnected,
        };
        let sentence = time.sentence(wall);
        self.add(time);
        Some(sentence)
    }

    /// It is there again. Returns the sentence, if it had ended.
    pub(crate) fn connected(&mut self, now: Duration, wall: Wall) -> Option<String> {
        let time = self.0.last_mut().filter(|time| time.to.is_none())?;
        time.to = Some(now);
        Some(time.sentence(wall))
    }

    /// The listener fell behind. Returns the sentence, if it had not just before.
    pub(crate) fn behind(&mut self, now: Duration, wall: Wall) -> Option<String> {
        if let Some(last) = self.0.last_mut()
            && let (Why::Behind, Some(to)) = (last.why, last.to)
            && now <= to + Self::GRACE
        {
            last.to = Some(now);
            return None;
        }
        if self.is_open() {
            return None;
        }
        let time = Time {
            from: now,
            to: Some(now),
            why: Why::Behind,
        };
        let sentence = time.sentence(wall);
        self.add(time);
        Some(sentence)
    }

    /// A sentence for each time.
    pub(crate) fn sentences(&self, wall: Wall) -> impl Iterator<Item = String> {
        self.0.iter().map(move |time| time.sentence(wall))
    }

    /// Why something may not have been heard that went between these two moments, though this
    /// listener was connected.
    pub(crate) fn why(&self, between: &Range<Duration>, wall: Wall) -> Option<String> {
        let mut behind = self.0.iter().filter(|time| time.why == Why::Behind);
        let time = behind.find(|time| {
            let is_over = time.to.is_some_and(|to| to + Self::GRACE < between.start);
            time.from <= between.end && !is_over
        });
        time.map(|time| time.sentence(wall))
    }

    fn is_open(&self) -> bool {
        self.0.last().is_some_and(|time| time.to.is_none())
    }

    fn add(&mut self, time: Time) {
        let is_full = self.0.len() >= TIMES_MAX;
        match self.0.last_mut().filter(|_| is_full) {
            Some(last) => last.to = time.to,
            None => self.0.push(time),
        }
    }
}

impl Time {
    fn sentence(&self, wall: Wall) -> String {
        let from = wall.at(self.from);
        match (self.why, self.to) {
            (Why::Disconnected, Some(to)) => {
                let to = wall.at(to);
                format!("this listener was not connected from {from} to {to}")
            }
            (Why::Disconnected, None) => {
                format!("this listener was not connected from {from} on")
            }
            (Why::Behind, _) => {
                format!("this listener was too slow at {from} and dropped messages of QoS 0 itself")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_remembered_and_a_loss_is_put_down_to_one_that_it_spans() {
        let at = Duration::from_secs;
        let wall = Wall::default();
        let mut away = Away::default();
        assert_eq!(away.connected(at(1), wall), None);
        assert!(away.disconnected(at(10), wall).is_some());
        assert!(away.disconnected(at(11), wall).is_none());
        let whole =
            "this listener was not connected from 1970-01-01T00:00:10Z to 1970-01-01T00:00:20Z";
        assert_eq!(away.connected(at(20), wall).unwrap(), whole);
        assert_eq!(away.why(&(at(9)..at(21)), wall), None);
        assert!(away.behind(at(30), wall).is_some());
        assert_eq!(away.behind(at(31), wall), None, "the same time goes on");
        for (between, is_spanned) in [
            (at(1)..at(29), false),
            (at(29)..at(30), true),
            (at(32)..at(33), true),
            (at(33)..at(34), false),
        ] {
            let why = away.why(&between, wall);
            assert_eq!(why.is_some(), is_spanned, "{between:?}");
        }
        assert!(away.behind(at(40), wall).is_some());
        assert_eq!(away.sentences(wall).count(), 3);
    }
}
