//! Up to where logs may be trimmed, by what the shards say they need of them.
//!
//! ```text
//! round:     1              2              3
//! shards: 0 1 0 2 | 1 2 2 0 | 2 0 1 --->  up to the lowest of all these
//! ```
//!
//! A round is over when each shard has said what it needs. They do not say it at one moment, and
//! what a group has given goes from a session that ends to one of another shard, which may have
//! said before that it needs nothing there. So one round is not enough: the shard that it comes
//! from needs it until it has heard that it is there, and what a shard has said keeps a log as it
//! is for the next rounds too. By then the other shard has said what it has got.
//!
//! Deliberately absent: when shards say it, and that what they have told before is stored by then.

use unbroken_broker_core::Frontier;

/// What shards have said they need, in this round and those before that count.
#[derive(Debug)]
pub struct Needs {
    /// By shard: the lowest that it has said in this round, if anything.
    said: Vec<Option<Frontier>>,
    /// The lowest of each round before, the last one first. Of before the start nothing is known.
    before: [Option<Frontier>; ROUNDS_BEFORE],
}

impl Needs {
    /// Of so many shards, none of which has said anything.
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
    pub fn say(&mut self, shard: usize, needed: Frontier) {
        let said = &mut self.said[shard];
        *said = Some(match said.take() {
            Some(before) => lower(&before, &needed),
            None => needed,
        });
    }

    /// Ends the round, if all shards have said what they need: nobody needs what is within. Nothing
    /// is known until there have been enough rounds.
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

/// What is within both.
fn lower(one: &Frontier, other: &Frontier) -> Frontier {
    one.iter()
        .map(|(log, number)| (log, number.min(other.of(log))))
        .collect()
}

/// How many rounds count beside the last one. Two, since what is said may be as old as what others
/// said in the round before: all that is said in a round is later than what was two rounds before.
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

    /// What two shards say one after the other, and up to where the log may be trimmed then.
    fn round(needs: &mut Needs, said: [(usize, u64); 2]) -> Option<u64> {
        let [first, second] = said;
        needs.say(first.0, through(first.1));
        assert_eq!(needs.end_round(), None);
        needs.say(second.0, through(second.1));
        needs.end_round().map(|needed| needed.of(LOG))
    }

    #[test]
    fn a_message_stays_that_goes_to_a_shard_that_has_spoken_from_one_that_has_not() {
        let mut needs = Needs::new(2);
        for _ in 0..=ROUNDS_BEFORE {
            round(&mut needs, [(1, TAIL), (0, GIVEN - 1)]);
        }
        // Between the two it is handed over: neither says that it has it.
        let trimmed = round(&mut needs, [(1, TAIL), (0, TAIL)]);
        assert_eq!(trimmed, Some(GIVEN - 1));
        let trimmed = round(&mut needs, [(1, GIVEN - 1), (0, TAIL)]);
        assert_eq!(trimmed, Some(GIVEN - 1));
    }

    #[test]
    fn what_nobody_has_needed_for_some_rounds_is_let_go() {
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
        needs.say(0, through(GIVEN));
        assert_eq!(round(&mut needs, [(0, TAIL), (1, TAIL)]), Some(GIVEN));
    }
}
