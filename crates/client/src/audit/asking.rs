//! What a subscriber has asked producers for, when it asks again, and where answers come to. A
//! value; time is an argument.
//!
//! Invariants: what is newly missed is asked for at once, whatever else is outstanding; what was
//! asked for is asked for again only when it is still missing after a pause, which doubles; what
//! came is forgotten. An answer that something is no longer held ends nothing: anyone may send it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::ledger::Request;
use unbroken_merkle_log::{Epoch, LaneId};

use crate::Filter;
use crate::options::random;

/// An epoch of a lane.
type Lane = (LaneId, Epoch);

/// Ordered ranges that do not touch.
type Numbers = Vec<Range<u64>>;

#[derive(Debug, Default)]
pub(super) struct Asking {
    lanes: BTreeMap<Lane, Vec<Asked>>,
}

/// Asked for together.
#[derive(Debug)]
struct Asked {
    request: Request,
    again: Duration,
    pause: Duration,
}

impl Asking {
    /// What to ask now, of all that the ledger misses. It counts as asked.
    pub(super) fn due(
        &mut self,
        missed: impl IntoIterator<Item = (LaneId, Epoch, Request)>,
        now: Duration,
    ) -> Vec<(LaneId, Epoch, Request)> {
        let mut wanted: BTreeMap<Lane, Vec<Request>> = BTreeMap::new();
        for (lane, epoch, request) in missed {
            wanted.entry((lane, epoch)).or_default().push(request);
        }
        self.lanes.retain(|lane, _| wanted.contains_key(lane));
        let mut due = Vec::new();
        for (lane, requests) in wanted {
            let asked = self.lanes.entry(lane).or_default();
            let requests = ask(asked, requests, now);
            due.extend(
                requests
                    .into_iter()
                    .map(|request| (lane.0, lane.1, request)),
            );
        }
        due
    }
}

/// What of `requests` is due for one lane.
fn ask(asked: &mut Vec<Asked>, requests: Vec<Request>, now: Duration) -> Vec<Request> {
    let mut missing = Numbers::new();
    let mut hashes = Vec::new();
    for request in requests {
        match request {
            Request::Numbers(numbers) => missing = numbers,
            about_hashes => hashes.push(about_hashes),
        }
    }
    asked.retain_mut(|asked| match &mut asked.request {
        Request::Numbers(numbers) => {
            *numbers = in_both(numbers, &missing);
            !numbers.is_empty()
        }
        about_hashes => hashes.contains(about_hashes),
    });
    for asked in &*asked {
        match &asked.request {
            Request::Numbers(numbers) => missing = without(&missing, numbers),
            about_hashes => hashes.retain(|wanted| wanted != about_hashes),
        }
    }
    let mut due = Vec::new();
    for asked in &mut *asked {
        if asked.again <= now {
            due.push(asked.request.clone());
            asked.pause = (asked.pause * 2).min(PAUSE_LONGEST);
            asked.again = now + asked.pause;
        }
    }
    let numbers = (!missing.is_empty()).then_some(Request::Numbers(missing));
    for request in numbers.into_iter().chain(hashes) {
        due.push(request.clone());
        asked.push(Asked {
            request,
            again: now + PAUSE_FIRST,
            pause: PAUSE_FIRST,
        });
    }
    due
}

/// Where answers come to: one for each client and what it takes, which stays the same. A session
/// may outlive its client, and the client that resumes it receives the answers. A client without a
/// name has no such session.
pub(super) fn token(client_id: &str, filters: &[Filter]) -> String {
    if client_id.is_empty() {
        return format!("{:016x}{:016x}", random(), random());
    }
    let texts = filters.iter().map(Filter::text);
    // A zero is in none of them.
    let all: Vec<&str> = std::iter::once(client_id).chain(texts).collect();
    let hash = xxhash_rust::xxh3::xxh3_128(all.join("\0").as_bytes());
    format!("{hash:032x}")
}

fn in_both(some: &[Range<u64>], others: &[Range<u64>]) -> Numbers {
    let mut both = Numbers::new();
    let mut rest = others;
    for range in some {
        while let Some((other, behind)) = rest.split_first()
            && other.start < range.end
        {
            let common = range.start.max(other.start)..range.end.min(other.end);
            both.extend((!common.is_empty()).then_some(common));
            if other.end > range.end {
                break;
            }
            rest = behind;
        }
    }
    both
}

fn without(some: &[Range<u64>], others: &[Range<u64>]) -> Numbers {
    let mut left = Numbers::new();
    for range in some {
        let mut at = range.start;
        for common in in_both(std::slice::from_ref(range), others) {
            left.extend((at < common.start).then_some(at..common.start));
            at = common.end;
        }
        left.extend((at < range.end).then_some(at..range.end));
    }
    left
}

/// After how long the same is asked for again, at first and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one gap is meant, not its numbers"
)]
mod tests {
    use super::*;

    const LANE: Lane = (LaneId::new(7).expect("not 0"), Epoch(0));
    const GROUPS: Request = Request::Groups { window: 3, size: 9 };

    fn at(asking: &mut Asking, ms: u64, requests: Vec<Request>) -> Vec<Request> {
        let missed = requests.into_iter().map(|it| (LANE.0, LANE.1, it));
        let due = asking.due(missed, Duration::from_millis(ms));
        due.into_iter().map(|(_, _, request)| request).collect()
    }

    fn numbers(ranges: &[Range<u64>]) -> Vec<Request> {
        vec![Request::Numbers(ranges.to_vec())]
    }

    #[test]
    fn what_is_newly_missed_is_asked_for_while_the_rest_is_outstanding() {
        let mut asking = Asking::default();
        assert_eq!(at(&mut asking, 0, numbers(&[3..4])), numbers(&[3..4]));
        assert_eq!(at(&mut asking, 10, numbers(&[3..4])), []);
        let both = numbers(&[2..5, 9..10]);
        assert_eq!(at(&mut asking, 20, both), numbers(&[2..3, 4..5, 9..10]));
    }

    #[test]
    fn only_what_is_still_missing_is_asked_for_again_after_pauses_that_double() {
        let mut asking = Asking::default();
        at(&mut asking, 0, numbers(&[0..10]));
        assert_eq!(at(&mut asking, 999, numbers(&[4..6, 8..9])), []);
        let left = numbers(&[4..6, 8..9]);
        assert_eq!(at(&mut asking, 1_000, left.clone()), left);
        assert_eq!(at(&mut asking, 2_999, left.clone()), []);
        assert_eq!(at(&mut asking, 3_000, left.clone()), left);
        // Lost anew, it is new.
        assert_eq!(at(&mut asking, 3_001, vec![]), []);
        assert_eq!(at(&mut asking, 3_002, left.clone()), left);
    }

    #[test]
    fn answers_come_to_the_same_place_for_the_same_client_and_filters_and_no_others() {
        let filters = |texts: &[&str]| -> Vec<Filter> {
            let filters = texts.iter().map(|text| Filter::new(*text));
            filters.map(|filter| filter.unwrap()).collect()
        };
        let (one, both) = (filters(&["a/b"]), filters(&["a/b", "c"]));
        assert_eq!(token("me", &one), token("me", &one));
        let tokens = [
            token("me", &one),
            token("me", &both),
            token("you", &one),
            token("", &one),
            token("", &one),
        ];
        for (at, token) in tokens.iter().enumerate() {
            assert_eq!(token.len(), 32);
            assert!(!tokens[..at].contains(token), "{tokens:?}");
        }
    }

    #[test]
    fn each_step_of_a_descent_is_asked_for_at_once() {
        let mut asking = Asking::default();
        let leaves = Request::Leaves {
            window: 3,
            group: 1,
            size: 9,
        };
        assert_eq!(at(&mut asking, 0, vec![GROUPS]), [GROUPS]);
        assert_eq!(at(&mut asking, 5, vec![GROUPS]), []);
        assert_eq!(at(&mut asking, 9, vec![leaves.clone()]), [leaves]);
    }

    #[test]
    fn ranges_are_cut_as_sets_of_their_numbers_are() {
        let sets = [
            vec![],
            vec![0..3],
            vec![1..2, 4..9],
            vec![2..5, 6..7, 8..12],
            vec![0..20],
        ];
        let all = |ranges: &[Range<u64>]| ranges.iter().cloned().flatten().collect::<Vec<u64>>();
        for a in &sets {
            for b in &sets {
                let (in_a, in_b) = (all(a), all(b));
                let shared: Vec<u64> = in_a.iter().copied().filter(|n| in_b.contains(n)).collect();
                let alone: Vec<u64> = in_a.iter().copied().filter(|n| !in_b.contains(n)).collect();
                assert_eq!(all(&in_both(a, b)), shared, "{a:?} {b:?}");
                assert_eq!(all(&without(a, b)), alone, "{a:?} {b:?}");
            }
        }
    }
}
