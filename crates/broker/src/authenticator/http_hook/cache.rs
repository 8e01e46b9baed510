//! Answers of a service that hold for a while, by what was asked.
//!
//! Invariants:
//! - An answer is found until its time or the end of its grant, and a use does not prolong it.
//! - There are at most as many as the configuration says: the oldest is forgotten.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::authenticator::chain::HookVerdict;
use crate::authenticator::recent_logins::LoginTag;

pub(super) struct Cache {
    most: usize,
    answers: HashMap<LoginTag, Known>,
    /// In the order in which they end.
    order: VecDeque<(Instant, LoginTag)>,
}

struct Known {
    verdict: HookVerdict,
    until: Instant,
}

impl Cache {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            answers: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn find(&self, tag: LoginTag, now: Instant) -> Option<HookVerdict> {
        let known = self.answers.get(&tag).filter(|known| now < known.until)?;
        match &known.verdict {
            HookVerdict::Allow(grant) if grant.until.is_some_and(|until| until <= now) => None,
            verdict => Some(verdict.clone()),
        }
    }

    pub(super) fn insert(
        &mut self,
        tag: LoginTag,
        verdict: HookVerdict,
        now: Instant,
        ttl: Duration,
    ) {
        // Under the lock that shards take, too: a few at a time, but more than come.
        for _ in 0..REMOVED_AT_ONCE {
            let Some((at, oldest)) = self.order.front().copied() else {
                break;
            };
            if self.order.len() < self.most && at > now {
                break;
            }
            self.order.pop_front();
            // One that was asked again since has a later end.
            if self
                .answers
                .get(&oldest)
                .is_some_and(|known| known.until == at)
            {
                self.answers.remove(&oldest);
            }
        }
        let until = now + ttl;
        self.answers.insert(tag, Known { verdict, until });
        self.order.push_back((until, tag));
    }
}

/// Answers that are over and are forgotten when another one comes.
const REMOVED_AT_ONCE: usize = 4;

#[cfg(test)]
mod tests {
    use unbroken_broker_core::Grant;

    use super::*;
    use crate::authenticator::recent_logins::RecentLogins;

    const TTL: Duration = Duration::from_secs(30);

    fn tag(name: &str) -> LoginTag {
        RecentLogins::new([1; 32]).tag_of(&[name.as_bytes()])
    }

    #[test]
    fn an_answer_holds_for_its_time_and_no_longer_than_its_grant() {
        let (mut cache, now) = (Cache::new(10), Instant::now());
        cache.insert(tag("a"), HookVerdict::Deny, now, TTL);
        let grant = Grant {
            until: Some(now + TTL / 2),
            ..Grant::user("b")
        };
        cache.insert(tag("b"), HookVerdict::Allow(grant.clone()), now, TTL);
        let soon = now + Duration::from_millis(14_999);
        assert_eq!(cache.find(tag("a"), soon), Some(HookVerdict::Deny));
        assert_eq!(cache.find(tag("b"), soon), Some(HookVerdict::Allow(grant)));
        assert_eq!(cache.find(tag("c"), soon), None);
        assert_eq!(cache.find(tag("a"), now + TTL / 2), Some(HookVerdict::Deny));
        assert_eq!(cache.find(tag("b"), now + TTL / 2), None);
        assert_eq!(cache.find(tag("a"), now + TTL), None);
    }

    #[test]
    fn what_is_over_is_forgotten_a_few_at_a_time() {
        let (mut cache, now) = (Cache::new(1_000), Instant::now());
        for number in 0..100 {
            cache.insert(tag(&number.to_string()), HookVerdict::Deny, now, TTL);
        }
        cache.insert(tag("later"), HookVerdict::Deny, now + TTL, TTL);
        assert_eq!(cache.answers.len(), 101 - REMOVED_AT_ONCE);
        assert_eq!(cache.find(tag("50"), now + TTL), None);
        for _ in 0..100 {
            cache.insert(tag("later"), HookVerdict::Deny, now + TTL, TTL);
        }
        assert_eq!(cache.answers.len(), 1);
    }

    #[test]
    fn a_full_cache_forgets_the_oldest() {
        let (mut cache, now) = (Cache::new(100), Instant::now());
        for number in 0..250 {
            cache.insert(tag(&number.to_string()), HookVerdict::Deny, now, TTL);
        }
        let is_known = |number: &u32| cache.find(tag(&number.to_string()), now).is_some();
        assert_eq!((0..250).filter(is_known).count(), 100);
        assert!(!is_known(&149) && is_known(&150));
        assert_eq!((cache.answers.len(), cache.order.len()), (100, 100));
        for _ in 0..1_000 {
            cache.insert(tag("same"), HookVerdict::Deny, now, TTL);
        }
        assert!(cache.answers.len() <= 100 && cache.order.len() <= 100);
        assert!(cache.find(tag("same"), now).is_some());
    }
}
