//! The position up to which logs may be trimmed, from the reports of the shards.
//!
//! ```text
//! round:     1              2              3
//! shards: 0 1 0 2 | 1 2 2 0 | 2 0 1 --->  up to the lowest of all these
//! ```
//!
//! A round is over when each shard has reported. The reports are not of one moment, and a group
//! message may go from an ending session to one of another shard that has reported already. So one
//! round is not enough: the first shard needs the message until it knows that the other has it, and
//! its report holds for the next rounds too. By then the other shard has reported the message.
//!
//! Deliberately absent: the time of the reports, and that earlier requests are stored by then.

use unbroken_broker_core::Frontier;

/// The reports of this round and of the earlier rounds that count.
#[derive(Debug)]
pub struct Needs {
    /// By shard: its lowest report of this round, if any.
    said: Vec<Option<Frontier>>,
    /// The lowest of each earlier round, the last one first.
    before: [Option<Frontier>; ROUNDS_BEFORE],
}

impl Needs {
    /// For so many shards, without reports.
    pub fn new(shards: usize) -> Self {
        Self {
            said: vec![None; shards],
            before: Default::default(),
        }
    }

    /// A shard needs nothing within `needed`.
    ///
    /// # Panics
    ///
    /// If there is no such shard.
    pub fn report(&mut self, shard: usize, needed: Frontier) {
        let said = &mut self.said[shard];
        *said = Some(match said.take() {
            Some(before) => lower(&before, &needed),
            None => needed,
        });
    }

    /// Ends the round, if all shards have reported; returns the messages that no shard needs, once
    /// there were enough rounds.
    pub fn end_round(&mut self) -> Option<Frontier> {
        if self.said.iter().any(Option::is_none) {
            return None;
        }
        let said = self.said.iter_mut().filter_map(Option::take);
        let round = said.reduce(|one, other| lower(&one, &other))?;
        let needed = self
            .before
            .iter()
            .try_fold(round.clone(), |needed, before| {
                before.as_ref().map(|before| lower(&needed, before))
            });
        self.before.rotate_right(1);
        self.before[0] = Some(round);
        needed
    }
}

/// The messages within both.
fn lower(one: &Frontier, other: &Frontier) -> Frontier {
    one.iter()
        .map(|(log, number)| (log, number.min(other.of(log))))
        .collect()
}

/// How many rounds count beside the last one. Two, because a report may be as old as another
/// shard's report in the round before.
const ROUNDS_BEFORE: usize = 2;

#[cfg(test)]
mod tests {
    use unbroken_broker_core::LogId;

    use super::*;

    const LOG: LogId = LogId(0);
    /// All that is in the log.
    const TAIL: u64 = 9;
    /// A message that a group has given.
    const GIVEN: u64 = 5;

    fn through(number: u64) -> Frontier {
        [(LOG, number)].into_iter().collect()
    }

    /// Two reports, one after the other, and the position up to which the log may be trimmed then.
    fn round(needs: &mut Needs, said: [(usize, u64); 2]) -> Option<u64> {
        let [first, second] = said;
        needs.report(first.0, through(first.1));
        assert_eq!(needs.end_round(), None);
        needs.report(second.0, through(second.1));
        needs.end_round().map(|needed| needed.of(LOG))
    }

    #[test]
    fn a_message_stays_that_goes_to_a_shard_that_has_spoken_from_one_that_has_not() {
        let mut needs = Needs::new(2);
        for _ in 0..=ROUNDS_BEFORE {
            round(&mut needs, [(1, TAIL), (0, GIVEN - 1)]);
        }
        // Between the two it is handed over: neither reports it.
        let trimmed = round(&mut needs, [(1, TAIL), (0, TAIL)]);
        assert_eq!(trimmed, Some(GIVEN - 1));
        let trimmed = round(&mut needs, [(1, GIVEN - 1), (0, TAIL)]);
        assert_eq!(trimmed, Some(GIVEN - 1));
    }

    #[test]
    fn what_no_session_needed_for_some_rounds_is_discarded() {
        let mut needs = Needs::new(2);
        for _ in 0..ROUNDS_BEFORE {
            assert_eq!(round(&mut needs, [(0, GIVEN), (1, TAIL)]), None);
        }
        assert_eq!(round(&mut needs, [(1, TAIL), (0, GIVEN)]), Some(GIVEN));
        for _ in 0..ROUNDS_BEFORE {
            assert_eq!(round(&mut needs, [(0, TAIL), (1, TAIL)]), Some(GIVEN));
        }
        assert_eq!(round(&mut needs, [(0, TAIL), (1, TAIL)]), Some(TAIL));
    }

    #[test]
    fn of_what_a_shard_says_in_one_round_the_lowest_counts() {
        let mut needs = Needs::new(2);
        for _ in 0..ROUNDS_BEFORE {
            round(&mut needs, [(0, TAIL), (1, TAIL)]);
        }
        needs.report(0, through(GIVEN));
        assert_eq!(round(&mut needs, [(0, TAIL), (1, TAIL)]), Some(GIVEN));
    }
}
