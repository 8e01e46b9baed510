//! What the functions over slices promise: every item once, results in order, panics reported, an
//! answer found early ends the search; the same by helpers that stay.

use session_channels::par::{self, Limits, Parallel, Team};
use std::{
    collections::HashSet,
    hint,
    panic::{self, AssertUnwindSafe},
    sync::{
        Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Three tasks for whatever is long enough for three items.
const THREE: Limits = Limits {
    tasks_max: 3,
    items_per_task_min: 1,
};

/// Lengths around where the work is cut differently.
const LENGTHS: [usize; 9] = [0, 1, 2, 3, 47, 48, 49, 1_000, 10_001];

#[test]
fn results_are_in_the_order_of_the_items() {
    for length in LENGTHS {
        let items: Vec<usize> = (0..length).collect();
        let expect: Vec<String> = items.iter().map(|item| format!("<{item}>")).collect();
        assert_eq!(THREE.map(&items, |item| format!("<{item}>")), expect);
        assert_eq!(
            THREE.map_indexed(&items, |index, _| format!("<{index}>")),
            expect
        );
        let mut results = vec![String::new(); length];
        THREE.map_into(&items, &mut results, |item| format!("<{item}>"));
        assert_eq!(results, expect);
        assert_eq!(par::map(&items, |item| format!("<{item}>")), expect);
    }
}

#[test]
fn every_item_is_seen_exactly_once() {
    for length in LENGTHS {
        let items: Vec<usize> = (0..length).collect();
        let seen: Vec<AtomicUsize> = items.iter().map(|_| AtomicUsize::new(0)).collect();
        let see = |item: usize| seen[item].fetch_add(1, Ordering::Relaxed);
        THREE.for_each(&items, |item| {
            see(*item);
        });
        THREE.for_each_indexed(&items, |index, item| {
            assert_eq!(index, *item);
            see(index);
        });
        let mut own = items.clone();
        THREE.map_in_place(&mut own, |item| {
            see(*item);
            *item += 1;
        });
        assert!(!THREE.any(&items, |item| see(*item) == usize::MAX));
        assert!(THREE.all(&items, |item| see(*item) < usize::MAX));
        assert!(own.iter().zip(1..).all(|(item, expect)| *item == expect));
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 5));
    }
}

#[test]
fn any_and_all_answer_like_the_iterators() {
    for length in LENGTHS {
        let items: Vec<usize> = (0..length).collect();
        for wanted in [0, 1, length / 2, length.saturating_sub(1), length] {
            let is_wanted = |item: &usize| *item == wanted;
            assert_eq!(THREE.any(&items, is_wanted), items.iter().any(is_wanted));
            let is_other = |item: &usize| *item != wanted;
            assert_eq!(THREE.all(&items, is_other), items.iter().all(is_other));
        }
    }
}

#[test]
fn a_search_ends_when_the_answer_is_found() {
    let items: Vec<usize> = (0..100_000).collect();
    for tasks_max in [1, 3] {
        let limits = Limits { tasks_max, ..THREE };
        let found = AtomicUsize::new(0);
        // Whoever finds one finds it at the first item it looks at; nobody looks at a second.
        let answer = limits.any(&items, |_| {
            found.fetch_add(1, Ordering::Relaxed);
            true
        });
        assert!(answer);
        assert!(found.into_inner() <= tasks_max);
    }
}

#[test]
fn there_are_as_many_tasks_as_allowed_and_no_more() {
    let threads = Mutex::new(HashSet::new());
    let barrier = Barrier::new(3);
    let begin = Instant::now();
    THREE.for_each(&[0, 1, 2, 3], |item| {
        if *item == 0 {
            // Longer than anybody works alone.
            while begin.elapsed() < Duration::from_millis(5) {
                hint::spin_loop();
            }
            return;
        }
        threads.lock().unwrap().insert(thread::current().id());
        // Nobody passes before three are there, so three there must be.
        barrier.wait();
    });
    assert_eq!(threads.into_inner().unwrap().len(), 3);
}

#[test]
fn a_slice_too_short_for_two_tasks_is_worked_on_by_the_caller() {
    let caller = thread::current().id();
    let limits = Limits {
        items_per_task_min: 1_024,
        ..THREE
    };
    let is_caller = |(): &()| thread::current().id() == caller;
    assert!(limits.all(&[(); 2_047], is_caller));
    let zero = Limits {
        tasks_max: 0,
        items_per_task_min: 0,
    };
    assert!(zero.all(&[(); 100], is_caller));
}

#[test]
fn a_panic_reaches_the_caller_after_all_tasks_have_ended() {
    let items: Vec<usize> = (0..1_000).collect();
    for culprit in [0, 1, 500, 999] {
        let inside = AtomicUsize::new(0);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            THREE.for_each(&items, |item| {
                inside.fetch_add(1, Ordering::SeqCst);
                if *item == culprit {
                    inside.fetch_sub(1, Ordering::SeqCst);
                    panic::resume_unwind(Box::new("item refused"));
                }
                hint::spin_loop();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }));
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        let payload = outcome.expect_err("the closure panicked");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"item refused"));
    }
}

#[test]
#[should_panic(expected = "one place for each item")]
fn results_that_do_not_fit_are_refused() {
    par::map_into(&[1, 2, 3], &mut [0; 2], |item| *item);
}

/// Joins texts: associative, not commutative.
fn joined(parallel: &impl Parallel, items: &[usize]) -> String {
    parallel.reduce(
        items,
        String::new,
        |text, item| text + &item.to_string() + ",",
        |a, b| a + &b,
    )
}

#[test]
fn reduce_combines_neighbours_in_order() {
    let team = Team::new(THREE);
    for length in LENGTHS {
        let items: Vec<usize> = (0..length).collect();
        let expect: String = items.iter().map(|item| item.to_string() + ",").collect();
        assert_eq!(joined(&THREE, &items), expect);
        assert_eq!(joined(&team, &items), expect);
        let sum = par::reduce(&items, || 0, |sum, item| sum + item, |a, b| a + b);
        assert_eq!(sum, items.iter().sum::<usize>());
    }
}

#[test]
fn blocks_cover_the_items_once_each_with_the_index_of_its_first() {
    let team = Team::new(THREE);
    for length in LENGTHS {
        let items: Vec<usize> = (0..length).collect();
        let part = |first: usize, block: &[usize]| {
            assert_eq!(block.first(), Some(&first));
            vec![(first, block.len())]
        };
        let blocks = team.reduce_blocks(&items, part, |a, b| [a, b].concat());
        assert_eq!(blocks.is_none(), length == 0);
        let mut next = 0;
        for (first, count) in blocks.unwrap_or_default() {
            assert_eq!(first, next);
            next += count;
        }
        assert_eq!(next, length);
    }
}

#[test]
fn a_team_serves_call_after_call_with_the_same_threads() {
    let team = Team::new(THREE);
    assert_eq!(team.tasks_max(), 3);
    let threads = Mutex::new(HashSet::new());
    let mut items: Vec<usize> = (0..300).collect();
    for round in 0..200 {
        team.map_in_place(&mut items, |item| {
            threads.lock().unwrap().insert(thread::current().id());
            *item += 1;
        });
        assert!(
            items
                .iter()
                .enumerate()
                .all(|(i, item)| *item == i + round + 1)
        );
    }
    assert!(threads.into_inner().unwrap().len() <= 3);
}

#[test]
fn all_of_a_team_can_be_at_one_call() {
    let team = Team::new(THREE);
    for _ in 0..20 {
        let barrier = Barrier::new(3);
        let begin = Instant::now();
        team.items_per_task_min(1).for_each(&[0, 1, 2, 3], |item| {
            if *item == 0 {
                // Longer than the caller works alone.
                while begin.elapsed() < Duration::from_millis(1) {
                    hint::spin_loop();
                }
                return;
            }
            // No task passes before three are there.
            barrier.wait();
        });
    }
}

#[test]
fn a_panic_in_a_team_reaches_the_caller_and_the_team_works_on() {
    let team = Team::new(THREE);
    let items: Vec<usize> = (0..1_000).collect();
    for culprit in [0, 1, 500, 999] {
        let inside = AtomicUsize::new(0);
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            team.for_each(&items, |item| {
                inside.fetch_add(1, Ordering::SeqCst);
                hint::spin_loop();
                inside.fetch_sub(1, Ordering::SeqCst);
                if *item == culprit {
                    panic::resume_unwind(Box::new("item refused"));
                }
            });
        }));
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        let payload = outcome.expect_err("the closure panicked");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"item refused"));
        assert_eq!(team.map(&items, |item| *item), items);
    }
}

#[test]
fn a_team_of_one_is_the_caller() {
    let team = Team::new(Limits {
        tasks_max: 0,
        items_per_task_min: 0,
    });
    let caller = thread::current().id();
    assert_eq!(team.tasks_max(), 1);
    assert!(team.all(&[(); 100], |()| thread::current().id() == caller));
}
