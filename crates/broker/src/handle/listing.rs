//! Listings that are asked for in parts, and where a part begins.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use unbroken_broker_core::{Page, Place, Shard, ShardId};

use super::{BrokerHandle, HandleError, Within};
use crate::bounds::{HANDLE_PAGE, HANDLE_PAGES};
use crate::request::{Look, Request};

/// A listing, or a part of it. It is not a snapshot: an entry that exists throughout is in it once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing<T> {
    /// In no particular order. Where few entries of many are wanted, there are fewer than asked for
    /// though more follow.
    pub entries: Vec<T>,
    /// Where the next part begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// Where a part of a listing begins; the default is the beginning. As text it is three numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cursor {
    shard: u8,
    place: Place,
}

/// A text is no [`Cursor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not where a part of a listing begins")]
pub struct CursorError;

impl BrokerHandle {
    /// Page by page, one shard after another.
    pub(super) fn list<T: Send + 'static>(
        &self,
        mut from: Cursor,
        within: Within,
        question: impl Fn(&Shard, Place, usize) -> Page<T> + Clone + Send + 'static,
    ) -> Result<Listing<T>, HandleError> {
        let deadline = Instant::now() + within.timeout;
        let most = within.entries.max(1);
        let (mut entries, mut pages) = (Vec::new(), 0);
        while from.shard < self.requests.shards() && entries.len() < most && pages < HANDLE_PAGES {
            pages += 1;
            let (question, place) = (question.clone(), from.place);
            let wanted = HANDLE_PAGE.min(most - entries.len());
            let look = move |shard: &Shard| question(shard, place, wanted);
            let left = deadline.saturating_duration_since(Instant::now());
            let page = self.requests.ask(ShardId(from.shard), left, |answer| {
                Request::Look(Look::new(answer, look))
            });
            let page = page.map_err(|error| match error {
                HandleError::Timeout(_) => HandleError::Timeout(within.timeout),
                other => other,
            })?;
            entries.extend(page.entries);
            from = match page.next {
                Some(place) => Cursor { place, ..from },
                None => Cursor {
                    shard: from.shard + 1,
                    place: Place::default(),
                },
            };
        }
        let next = (from.shard < self.requests.shards()).then_some(from);
        Ok(Listing { entries, next })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, offset) = self.place.parts();
        write!(f, "{}.{index}.{offset}", self.shard)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().ok_or(CursorError);
        let (shard, index, offset) = (next()?, next()?, next()?);
        let number = |text: &str| text.parse().map_err(|_| CursorError);
        Ok(Self {
            shard: shard.parse().map_err(|_| CursorError)?,
            place: Place::from_parts((number(index)?, number(offset)?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        for text in ["0.0.0", "3.70000.4294967295"] {
            let cursor: Cursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        for wrong in [
            "",
            "1",
            "1.2",
            "1.2.",
            "256.0.0",
            "1.2.3.4",
            "-1.0.0",
            "0.0.4294967296",
        ] {
            assert_eq!(wrong.parse::<Cursor>(), Err(CursorError), "{wrong}");
        }
    }
}
