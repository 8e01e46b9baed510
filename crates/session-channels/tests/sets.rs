//! Sets of ports and shared senders: what comes, in which order, and how it ends.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use session_channels::port_set::{Port, Taken};
use session_channels::{PortSet, Why, block_on, oneshot, shared, stream};

#[test]
fn what_each_port_sends_arrives_in_order_and_then_its_end() {
    const PORTS: usize = 20;
    const EACH: usize = 2_000;
    let mut set = PortSet::new();
    let mut expected = HashMap::new();
    for _ in 0..PORTS {
        let (mut sender, receiver) = stream(16);
        expected.insert(set.insert(receiver), 0);
        thread::spawn(move || {
            for n in 0..EACH {
                sender.send_blocking(n).unwrap();
            }
        });
    }
    let mut ends = 0;
    while let Some((handle, came)) = set.next_blocking() {
        let next = expected.get_mut(&handle).unwrap();
        match came {
            Ok(n) => {
                assert_eq!(n, *next);
                *next += 1;
            }
            Err(closed) => {
                assert_eq!(closed.why, Why::Finished);
                assert_eq!(*next, EACH, "the end comes behind everything");
                ends += 1;
            }
        }
    }
    assert_eq!(ends, PORTS);
}

#[test]
fn a_port_that_always_has_something_gives_way() {
    let mut set = PortSet::new();
    let (mut busy, receiver) = stream(1024);
    let busy_port = set.insert(receiver);
    let (mut quiet, receiver) = stream(4);
    let quiet_port = set.insert(receiver);
    for n in 0..1000 {
        busy.try_send(n).unwrap();
    }
    quiet.try_send(0).unwrap();
    let before_quiet = std::iter::from_fn(|| set.try_next())
        .take_while(|(handle, _)| *handle == busy_port)
        .count();
    assert!(before_quiet < 100, "{before_quiet} messages in a row");
    assert!(set.get(quiet_port).is_some());
}

#[test]
fn a_port_that_was_removed_gives_nothing_more_and_its_handle_is_dead() {
    let mut set = PortSet::new();
    let (mut sender, receiver) = stream(4);
    let handle = set.insert(receiver);
    sender.try_send(1).unwrap();
    let mut receiver = set.remove(handle).unwrap();
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(set.is_empty());
    assert_eq!(set.next_blocking().map(|_| ()), None);
    let again = set.insert(receiver);
    assert_ne!(again, handle);
    assert!(set.remove(handle).is_none());
    sender.try_send(2).unwrap();
    let (from, message) = set.next_blocking().unwrap();
    assert_eq!((from, message.ok()), (again, Some(2)));
}

#[test]
fn a_set_that_is_dropped_tells_its_senders() {
    let mut set = PortSet::new();
    let (mut sender, receiver) = stream(4);
    set.insert(receiver);
    assert!(set.try_next().is_none(), "and now it waits");
    drop(set);
    assert!(sender.try_send(1).is_err());
}

#[test]
fn every_clone_of_a_shared_sender_reaches_the_receiver() {
    let (sender, mut receiver) = shared(4);
    let threads: Vec<_> = (0..8)
        .map(|worker| {
            let mut sender = sender.clone();
            thread::spawn(move || {
                for n in 0..1000 {
                    sender.send_blocking((worker, n)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut next = [0; 8];
    while let Ok((worker, n)) = block_on(receiver.recv()) {
        let expected: &mut i32 = &mut next[worker];
        assert_eq!(n, *expected, "in order for each sender");
        *expected += 1;
    }
    assert_eq!(next, [1000; 8]);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_clone_made_when_the_receiver_is_gone_is_told() {
    let (sender, receiver) = shared::<u8>(4);
    drop(receiver);
    let mut clone = sender.clone();
    assert!(clone.send_blocking(1).is_err());
    assert!(sender.is_closed());
}

#[test]
fn a_oneshot_gives_its_message_back_when_nobody_waits() {
    let (sender, receiver) = oneshot();
    drop(receiver);
    let unsent = sender.send(String::from("back")).unwrap_err();
    assert_eq!(unsent.message, "back");
    assert_eq!(unsent.closed.why, Why::Dropped);
}

/// Keeps the waker it was last polled with; may panic then.
struct Kept(Arc<Mutex<Option<Waker>>>, bool);

impl Port for Kept {
    type Item = ();

    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        *self.0.lock().expect("nobody panics with it") = Some(context.waker().clone());
        assert!(!self.1, "as the test wants it");
        Poll::Pending
    }

    fn take_port(_: &mut Option<Self>) -> Taken<()> {
        Taken::Nothing
    }
}

/// A set that waits for one port, and the waker of another that has left it.
fn set_and_stray_waker(panics: bool) -> (PortSet<Kept>, Waker) {
    let stray = Arc::new(Mutex::new(None));
    let mut set = PortSet::new();
    set.insert(Kept(Arc::default(), false));
    assert!(set.try_next().is_none());
    let handle = set.insert(Kept(Arc::clone(&stray), panics));
    let looked = catch_unwind(AssertUnwindSafe(|| set.try_next().is_none()));
    assert_eq!(looked.is_err(), panics);
    let kept = stray.lock().expect("nobody panics with it").take();
    let stray = kept.expect("it was polled");
    if !panics {
        stray.wake_by_ref();
        assert!(set.remove(handle).is_some());
        assert!(set.try_next().is_none());
    }
    (set, stray)
}

#[test]
fn a_waker_that_outlives_its_port_in_a_set_does_nothing() {
    let (mut set, stray) = set_and_stray_waker(false);
    stray.wake();
    assert!(
        !set.poll_ready(&Context::from_waker(Waker::noop()))
            .is_ready()
    );
}

#[test]
fn a_port_that_panics_stays_in_the_set_and_is_looked_at_when_it_wakes() {
    let (mut set, stray) = set_and_stray_waker(true);
    assert_eq!(set.len(), 2);
    assert!(set.try_next().is_none(), "nothing has woken it");
    stray.wake();
    assert!(catch_unwind(AssertUnwindSafe(|| set.try_next().is_none())).is_err());
}
