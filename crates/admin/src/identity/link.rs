//! The link by which the first account is made: good once, and for a short time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::secret::{digest, new_secret};
use crate::limits::LINK_TIME_MAX;

/// At most one is good.
#[derive(Debug, Default)]
pub(crate) struct Link(Mutex<Option<Good>>);

#[derive(Debug)]
struct Good {
    digest: String,
    made: Instant,
}

impl Link {
    /// Makes one, in place of an older one.
    pub(crate) fn make(&self, now: Instant) -> Result<String, getrandom::Error> {
        let secret = new_secret()?;
        *self.lock() = Some(Good {
            digest: digest(&secret),
            made: now,
        });
        Ok(secret)
    }

    pub(crate) fn is_good(&self, secret: &str, now: Instant) -> bool {
        let link = self.lock();
        let is_it = |good: &Good| {
            good.digest == digest(secret) && now.duration_since(good.made) < LINK_TIME_MAX
        };
        link.as_ref().is_some_and(is_it)
    }

    /// No link is good any more.
    pub(crate) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Good>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_link_is_good_and_not_for_long() {
        let (link, now) = (Link::default(), Instant::now());
        assert!(!link.is_good("", now));
        let old = link.make(now).unwrap();
        let new = link.make(now).unwrap();
        assert!(!link.is_good(&old, now));
        assert!(link.is_good(&new, now));
        assert!(!link.is_good(&new, now + LINK_TIME_MAX));
        link.end();
        assert!(!link.is_good(&new, now));
    }
}
