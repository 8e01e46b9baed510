//! Lists: pages of a bounded size, and the opaque text by which the next one is asked for.
//!
//! A page costs about as much as its limit, however long the list is. Where a search finds little,
//! a page has fewer items than its limit though more follow: only `next` says whether there are
//! more.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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

    pub(crate) fn map<U>(self, show: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(show).collect(),
            next: self.next,
            as_of: self.as_of,
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
pub(crate) fn cursor_of<T: FromStr>(text: Option<&str>) -> Result<Option<T>, Problem> {
    let parse = |text: String| text.parse().map_err(|_| wrong_cursor());
    cursor(text)?.map(parse).transpose()
}

pub(crate) fn parsed_cursor<T: Default + FromStr>(text: Option<&str>) -> Result<T, Problem> {
    cursor_of(text).map(Option::unwrap_or_default)
}

pub(crate) fn wrong_cursor() -> Problem {
    Problem::bad("`cursor` is not the `next` of a page; leave it out for the first page")
}

/// The parameters of a list that has no others.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// Items of a page, 1 to 1,000
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u16>,
    /// The `next` of the page before
    pub(crate) cursor: Option<String>,
}

/// A page of a list that is short enough to be walked whole.
///
/// A cursor names the last item of its page, not a position: items that come or go before it move
/// no others. `is_behind` compares an item with that name; it sees the items in their order.
pub(crate) fn part<T, K: FromStr + ToString>(
    items: impl IntoIterator<Item = T>,
    (asked, from): (Option<u16>, Option<&str>),
    name: impl Fn(&T) -> K,
    mut is_behind: impl FnMut(&T, &K) -> bool,
) -> Result<Page<T>, Problem> {
    let limit = limit(asked)?;
    let from: Option<K> = cursor_of(from)?;
    let mut items = items
        .into_iter()
        .filter(|item| from.as_ref().is_none_or(|from| is_behind(item, from)));
    let page: Vec<T> = items.by_ref().take(limit).collect();
    let next = items.next().and(page.last());
    let next = next.map(|last| name(last).to_string());
    Ok(Page::new(page, next))
}

/// For lists whose names have no order: what comes after the item of this name.
pub(crate) fn behind_named<T, K>(is_it: impl Fn(&T, &K) -> bool) -> impl FnMut(&T, &K) -> bool {
    let mut is_behind = false;
    move |item, last| {
        let was_behind = is_behind;
        is_behind |= is_it(item, last);
        was_behind
    }
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
    fn pages_of_a_list_have_each_item_once_while_others_come_and_go() {
        let mut all: Vec<u32> = (0..25).collect();
        let page = |all: &[u32], from: Option<&str>| {
            let by_name = |item: &u32, from: &u32| item < from;
            let newest_first = all.iter().rev().copied();
            part(newest_first, (Some(7), from), |item| *item, by_name)
        };
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let page = page(&all, next.as_deref()).unwrap();
            found.extend(page.items);
            match page.next {
                Some(cursor) => next = Some(cursor),
                None => break,
            }
            all.push(100 + u32::try_from(found.len()).unwrap());
            all.retain(|item| Some(item) != found.last());
        }
        assert_eq!(found, (0..25).rev().collect::<Vec<_>>());
        for wrong in ["!", "eA", "LTE", &"A".repeat(20_000)] {
            assert!(page(&all, Some(wrong)).is_err(), "{wrong}");
        }
    }
}
