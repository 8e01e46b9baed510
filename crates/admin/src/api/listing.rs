//! Lists: pages of a bounded size, and the opaque text by which the next one is asked for.
//!
//! A page costs about as much as its limit, however long the list is. Where a search finds little,
//! a page has fewer items than its limit though more follow: only `next` says whether there are
//! more.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use utoipa::ToSchema;

use crate::limits::{ANSWER_TIMEOUT, PAGE_MAX, PAGE_USUAL, TEXT_BYTES_MAX};
use crate::problem::Problem;
use crate::time;
use unbroken_broker::handle::Within;

/// A page of a list
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// The `cursor` of the next page; null behind the last one
    pub(crate) next: Option<String>,
    /// When the broker was asked
    #[schema(format = DateTime)]
    pub(crate) as_of: String,
}

impl<T> Page<T> {
    pub(crate) fn new(items: Vec<T>, next: Option<String>) -> Self {
        Self {
            items,
            next: next.map(|next| URL_SAFE_NO_PAD.encode(next)),
            as_of: time::now_text(),
        }
    }
}

/// How many entries a page has.
pub(crate) fn limit(limit: Option<u16>) -> Result<usize, Problem> {
    match limit.map_or(PAGE_USUAL, usize::from) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        limit => Err(Problem::bad(format!(
            "`limit` is {limit}; it is 1 to {PAGE_MAX}"
        ))),
    }
}

pub(crate) fn within(asked: Option<u16>) -> Result<Within, Problem> {
    Ok(Within {
        entries: limit(asked)?,
        timeout: ANSWER_TIMEOUT,
    })
}

/// Where a page begins, as [`Page::new`] was given it; `None`: the first one.
pub(crate) fn cursor(text: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let decoded = (text.len() <= 2 * TEXT_BYTES_MAX).then(|| URL_SAFE_NO_PAD.decode(text));
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes.ok()?).ok());
    decoded.map(Some).ok_or_else(wrong_cursor)
}

/// The same for a type that can be read from text.
pub(crate) fn parsed_cursor<T: Default + std::str::FromStr>(
    text: Option<&str>,
) -> Result<T, Problem> {
    let Some(text) = cursor(text)? else {
        return Ok(T::default());
    };
    text.parse().map_err(|_| wrong_cursor())
}

pub(crate) fn wrong_cursor() -> Problem {
    Problem::bad("`cursor` is not the `next` of a page; leave it out for the first page")
}

/// The items behind the cursor of a list that is short enough to be made whole.
pub(crate) fn part<T>(
    items: Vec<T>,
    asked: Option<u16>,
    from: Option<&str>,
) -> Result<Page<T>, Problem> {
    let limit = limit(asked)?;
    let from: usize = parsed_cursor(from)?;
    let behind = from.saturating_add(limit);
    let next = (behind < items.len()).then(|| behind.to_string());
    let items = items.into_iter().skip(from).take(limit);
    Ok(Page::new(items.collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_at_least_one_and_at_most_a_thousand() {
        assert_eq!(limit(None).unwrap(), 100);
        assert_eq!(limit(Some(1_000)).unwrap(), 1_000);
        assert!(limit(Some(0)).is_err() && limit(Some(1_001)).is_err());
    }

    #[test]
    fn pages_of_a_whole_list_have_each_item_once() {
        let all: Vec<_> = (0..25).collect();
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let page = part(all.clone(), Some(7), next.as_deref()).unwrap();
            found.extend(page.items);
            match page.next {
                Some(cursor) => next = Some(cursor),
                None => break,
            }
        }
        assert_eq!(found, all);
        for wrong in ["!", "eA", "LTE", &"A".repeat(20_000)] {
            assert!(part(all.clone(), None, Some(wrong)).is_err(), "{wrong}");
        }
    }
}
