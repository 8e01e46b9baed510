//! Recent verdicts of one shard.
//!
//! Invariants:
//! - A verdict is found by everything it depends on: the generation of the policy, the roles and
//!   names of the client, the action and the topic. They are compared, not only their hash.
//! - There are at most [`VERDICTS_MAX`] verdicts; a topic longer than [`VERDICT_TOPIC_MAX`] is
//!   judged each time. A hit allocates nothing.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{Action, Ceiling, Decision, Subject, Verdict};
use crate::limits::{VERDICT_TOPIC_MAX, VERDICTS_MAX};

#[derive(Debug, Default)]
pub(super) struct VerdictTable {
    hasher: RandomState,
    /// Hash of what is in each place, 0 if nothing is.
    tags: Vec<u64>,
    /// As many as `tags`: none before the first use.
    places: Vec<Place>,
    /// Chooses which verdict of a full set goes.
    hand: usize,
}

#[derive(Debug, Default)]
struct Place {
    topic: SmallVec<[u8; TOPIC_INLINE]>,
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    subject: Arc<Subject>,
    action: Action,
    answer: Answer,
}

/// A decision, without what made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) ceiling: Ceiling,
}

impl From<Decision<'_>> for Answer {
    fn from(decision: Decision<'_>) -> Self {
        Self {
            verdict: decision.verdict,
            ceiling: decision.ceiling,
        }
    }
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Self {
        let ceiling = Ceiling::NONE;
        Self { verdict, ceiling }
    }
}

impl VerdictTable {
    /// The answer that is known, or the one that is found now.
    pub(super) fn find_or(
        &mut self,
        subject: &Arc<Subject>,
        action: Action,
        topic: &str,
        judge: impl FnOnce() -> Answer,
    ) -> Answer {
        if topic.len() > VERDICT_TOPIC_MAX {
            return judge();
        }
        let tag = self.hasher.hash_one((subject.hash(), action, topic)) | 1;
        if let Some(known) = self.find(tag, subject, action, topic) {
            return known.answer;
        }
        let answer = judge();
        let known = Known {
            subject: Arc::clone(subject),
            action,
            answer,
        };
        self.insert(tag, topic, known);
        answer
    }

    fn find(
        &self,
        tag: u64,
        subject: &Arc<Subject>,
        action: Action,
        topic: &str,
    ) -> Option<&Known> {
        let mut set = self.set(tag).filter(|place| self.tags[*place] == tag);
        set.find_map(|place| {
            let Place { topic: text, known } = &self.places[place];
            known.as_ref().filter(|known| {
                known.action == action
                    && text.as_slice() == topic.as_bytes()
                    && (Arc::ptr_eq(&known.subject, subject) || known.subject.equals(subject))
            })
        })
    }

    fn insert(&mut self, tag: u64, topic: &str, known: Known) {
        let generation = known.subject.generation();
        let place = self.place_for(tag, generation);
        self.tags[place] = tag;
        let place = &mut self.places[place];
        place.topic.clear();
        place.topic.extend_from_slice(topic.as_bytes());
        place.known = Some(known);
    }

    /// A place of the set that is unused or of an earlier policy, or, when the table cannot grow,
    /// any.
    fn place_for(&mut self, tag: u64, generation: u64) -> usize {
        loop {
            let is_free = |place: &usize| {
                let known = self.places[*place].known.as_ref();
                known.is_none_or(|known| known.subject.generation() != generation)
            };
            if let Some(place) = self.set(tag).find(is_free) {
                return place;
            }
            if self.places.len() >= VERDICTS_MAX {
                self.hand = self.hand.wrapping_add(1);
                return self.set(tag).start + self.hand % WAYS;
            }
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 2).max(VERDICTS_MIN);
        let old_places = std::mem::take(&mut self.places);
        let old_tags = std::mem::replace(&mut self.tags, vec![0; places]);
        self.places.resize_with(places, Place::default);
        for (tag, old) in old_tags.into_iter().zip(old_places) {
            // A set splits into two, so there is room for each.
            if tag != 0
                && let Some(place) = self.set(tag).find(|place| self.tags[*place] == 0)
            {
                self.tags[place] = tag;
                self.places[place] = old;
            }
        }
    }

    /// The places that something with this hash may be in.
    fn set(&self, tag: u64) -> std::ops::Range<usize> {
        let sets = self.places.len() / WAYS;
        if sets == 0 {
            return 0..0;
        }
        // The upper half: the lowest bit is always set, and the lower ones are as good.
        let upper = usize::try_from(tag >> 32).unwrap_or_default();
        let first = (upper & (sets - 1)) * WAYS;
        first..first + WAYS
    }
}

/// Places that one verdict may be in.
const WAYS: usize = 4;
/// The places a table begins with.
const VERDICTS_MIN: usize = 64;
/// Length of a topic that needs no memory beside its place.
const TOPIC_INLINE: usize = 36;

const _: () = assert!(VERDICTS_MAX.is_power_of_two() && VERDICTS_MIN.is_power_of_two());
const _: () = assert!(WAYS <= VERDICTS_MIN && VERDICTS_MIN <= VERDICTS_MAX);

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Place>() <= 64, "as limits.rs says");

#[cfg(test)]
mod tests {
    use crate::policy::{Identity, Member, Policy, Role, RuleSet};

    use super::*;

    fn subjects(generation: u64) -> [Arc<Subject>; 2] {
        let role = |user: &str| Role {
            name: user.into(),
            members: vec![Member::user(user)],
            connect: crate::policy::Effect::Allow,
            ceiling: Ceiling::NONE,
            client_id: None,
            rules: Vec::new(),
            mount_point: None,
        };
        let policy =
            Policy::compile(generation, vec![RuleSet::of(vec![role("a"), role("b")])]).unwrap();
        ["a", "b"].map(|user| {
            let identity = Identity {
                user: Some(user.into()),
                ..Identity::default()
            };
            Arc::new(policy.subject(&identity))
        })
    }

    #[test]
    fn a_verdict_is_found_by_all_that_it_depends_on_and_by_nothing_less() {
        let mut table = VerdictTable::default();
        let denied = Answer::from(Verdict::Denied(super::super::Denial::Rule));
        let [a, b] = subjects(1);
        let [later, _] = subjects(2);
        assert_eq!(table.find_or(&a, Action::Publish, "t", || denied), denied);
        let known = || unreachable!("it is known");
        assert_eq!(table.find_or(&a, Action::Publish, "t", known), denied);
        let [same, _] = subjects(1);
        assert_eq!(table.find_or(&same, Action::Publish, "t", known), denied);
        let allowed = || Answer::from(Verdict::Allowed);
        let others = [
            (&b, Action::Publish, "t"),
            (&a, Action::Receive, "t"),
            (&a, Action::Publish, "u"),
            (&later, Action::Publish, "t"),
        ];
        for (subject, action, topic) in others {
            let found = table.find_or(subject, action, topic, allowed);
            assert_eq!(found, allowed());
        }
    }

    #[test]
    fn the_table_grows_with_what_is_asked_and_no_further() {
        let mut table = VerdictTable::default();
        let [a, _] = subjects(1);
        let verdict_of = |n: usize| match n % 3 {
            0 => Answer::from(Verdict::Allowed),
            _ => Verdict::Denied(super::super::Denial::NoRule).into(),
        };
        for round in 0..2 {
            for n in 0..20_000 {
                let topic = format!("topic/{n}");
                let found = table.find_or(&a, Action::Publish, &topic, || verdict_of(n));
                assert_eq!(found, verdict_of(n), "{n} in round {round}");
            }
        }
        assert!(table.places.len() <= VERDICTS_MAX);
        assert_eq!(table.places.len(), table.tags.len());
        let long = "x".repeat(VERDICT_TOPIC_MAX + 1);
        table.find_or(&a, Action::Publish, &long, || Verdict::Allowed.into());
        let denied = Answer::from(Verdict::Denied(super::super::Denial::Rule));
        let again = table.find_or(&a, Action::Publish, &long, || denied);
        assert_eq!(again, denied, "what is so long is judged each time");
    }
}
