//! Times among the ports of a set, and after a wait.

use std::time::{Duration, Instant};

use session_channels::{PortSet, after, block_on, rendezvous, select_blocking, tick};

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn a_ticker_in_a_set_is_never_ahead_of_time() {
    let begin = Instant::now();
    let mut set = PortSet::new();
    set.insert(tick(SHORT));
    let mut ticks = 0;
    for _ in 0..5 {
        let (_, missed) = set.next_blocking().expect("there is one port");
        ticks += 1 + missed.expect("a ticker does not end");
        let due = u32::try_from(ticks).expect("few");
        assert!(begin.elapsed() >= SHORT * due);
    }
}

#[test]
fn a_time_in_a_set_comes_once() {
    let mut set = PortSet::new();
    let handle = set.insert(after(SHORT));
    assert_eq!(set.next_blocking(), Some((handle, Ok(()))));
    assert_eq!(set.next_blocking(), None);
}

#[test]
fn a_tick_can_be_awaited_and_given_up() {
    let begin = Instant::now();
    let mut ticker = tick(SHORT);
    drop(ticker.next());
    let missed = block_on(ticker.next());
    assert!(begin.elapsed() >= SHORT * (1 + u32::try_from(missed).expect("few")));
}

#[test]
fn times_and_meetings_are_places_of_a_select() {
    let mut ticker = tick(SHORT);
    let (mut sender, mut receiver) = rendezvous();
    sender.offer('a').expect("nothing was on offer");
    let mut end = Some(after(SHORT * 3));
    let (mut met, mut ticks) = (None, 0);
    while end.is_some() {
        select_blocking! {
            biased;
            receiver => { message => met = Some(message), closed(_why) => panic!("it is open") }
            // Before the end, which comes later, however late this thread is.
            ticker => { missed => ticks += 1 + missed, closed(_why) => unreachable!("it never closes") }
            end => { () => {}, closed(_why) => unreachable!("time does not close") }
        }
    }
    assert_eq!(met, Some('a'));
    assert!(ticks >= 1);
    drop(sender);
}
