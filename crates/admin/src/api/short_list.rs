//! Pages of lists that are in memory: accounts, tokens, history.

use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::limits::PAGE_MAX;
use crate::problem::Problem;

/// Which page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// Entries of a page, from 1 to 1,000; 100 if left out.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
}

/// Some entries of a list.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Page<'l, T> {
    pub(crate) items: &'l [T],
    pub(crate) next: Option<String>,
}

impl Asked {
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let limit = self.limit.unwrap_or(100);
        if (1..=PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        let detail = format!("`limit` is {limit}: it is a number from 1 to {PAGE_MAX}");
        Err(Problem::new(StatusCode::BAD_REQUEST, detail))
    }

    /// The number that the cursor is.
    pub(crate) fn place(&self) -> Result<Option<u64>, Problem> {
        let wrong = |_| {
            let detail = "`cursor` is no `next` of a page of this list";
            Problem::new(StatusCode::BAD_REQUEST, detail)
        };
        let cursor = self.cursor.as_ref();
        cursor.map(|text| text.parse().map_err(wrong)).transpose()
    }

    /// Its cursor is a position in the list.
    pub(crate) fn page<'l, T>(&self, list: &'l [T]) -> Result<Page<'l, T>, Problem> {
        let limit = self.limit()?;
        let start = usize::try_from(self.place()?.unwrap_or(0)).unwrap_or(usize::MAX);
        let start = start.min(list.len());
        let end = start.saturating_add(limit).min(list.len());
        Ok(Page {
            items: &list[start..end],
            next: (end < list.len()).then(|| end.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let asked = |limit, cursor: Option<&str>| Asked {
            limit: Some(limit),
            cursor: cursor.map(str::to_owned),
        };
        let list = [1, 2, 3];
        let first = asked(2, None).page(&list).unwrap();
        assert_eq!(
            (first.items, first.next.as_deref()),
            (&[1, 2][..], Some("2"))
        );
        let rest = asked(2, Some("2")).page(&list).unwrap();
        assert_eq!((rest.items, rest.next), (&[3][..], None));
        let beyond = asked(1, Some("18446744073709551615")).page(&list).unwrap();
        assert!(beyond.items.is_empty());
        for wrong in [asked(0, None), asked(1_001, None), asked(1, Some("x"))] {
            assert!(wrong.page(&list).is_err(), "{wrong:?}");
        }
    }
}
