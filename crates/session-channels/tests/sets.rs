//! Sets of ports and shared senders: what comes, in which order, and how it ends.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use session_channels::port_set::{Handle, Port, Taken};
use session_channels::{PortSet, TrySend, Why, block_on, oneshot, proto, shared, stream};

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
fn a_clone_made_when_the_receiver_is_gone_reports_that() {
    let (sender, receiver) = shared::<u8>(4);
    drop(receiver);
    let mut clone = sender.clone();
    assert!(clone.send_blocking(1).is_err());
    assert!(sender.is_closed());
}

#[test]
fn a_oneshot_gives_its_message_back_without_a_receiver() {
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

proto! {
    pub counting {
        next: send(3) { Number(u32) -> next, Over -> ! }
    }
}

/// What a set must do with a port, by a queue that can be looked into.
struct Model {
    sender: Option<counting::client::Next>,
    sent: VecDeque<Option<u32>>,
    handle: Handle,
    /// The endpoint behind the message that came last.
    away: Option<counting::server::Next>,
    is_removed: bool,
}

#[test]
fn ports_that_come_and_go_while_they_have_something_are_not_mistaken_for_each_other() {
    for seed in 1..3_000_u64 {
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |limit: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            usize::try_from(dice >> 33).unwrap() % limit
        };
        let (mut set, mut models, mut number) = (PortSet::new(), Vec::<Model>::new(), 0);
        for _ in 0..80 {
            let one = below(models.len().max(1));
            match below(8) {
                0 => {
                    let (sender, receiver) = counting::init();
                    models.push(Model {
                        sender: Some(sender),
                        sent: VecDeque::new(),
                        handle: set.insert(receiver),
                        away: None,
                        is_removed: false,
                    });
                }
                1..4 if !models.is_empty() => {
                    number += 1;
                    let model = &mut models[one];
                    model.sender = match model.sender.take().map(|sender| sender.try_number(number))
                    {
                        Some(Ok(sender)) => {
                            model.sent.push_back(Some(number));
                            Some(sender)
                        }
                        Some(Err(TrySend::Full(sender, _))) => Some(sender),
                        Some(Err(TrySend::Closed(_))) => {
                            assert!(model.is_removed);
                            None
                        }
                        None => None,
                    };
                }
                4 if !models.is_empty() => {
                    let model = &mut models[one];
                    if model.sender.take().is_some() {
                        model.sent.push_back(None);
                    }
                }
                5 if !models.is_empty() => {
                    let model = &mut models[one];
                    let was_in = !model.is_removed && model.away.is_none();
                    assert_eq!(set.remove(model.handle).is_some(), was_in, "seed {seed}");
                    model.is_removed = true;
                    model.away = None;
                }
                6 if !models.is_empty() => {
                    let model = &mut models[one];
                    if let Some(endpoint) = model.away.take() {
                        assert!(set.put_back(model.handle, endpoint).is_ok(), "seed {seed}");
                    }
                }
                _ => take(&mut set, &mut models, seed),
            }
            let inside = models
                .iter()
                .filter(|model| !model.is_removed && model.away.is_none());
            assert_eq!(set.len(), inside.count(), "seed {seed}");
        }
    }
}

/// Takes one, and holds it against the models.
fn take(set: &mut PortSet<counting::server::Next>, models: &mut [Model], seed: u64) {
    let has_something =
        |model: &&mut Model| !model.is_removed && model.away.is_none() && !model.sent.is_empty();
    let Some((handle, came)) = set.try_next() else {
        let left = models.iter_mut().find(has_something);
        assert!(left.is_none(), "seed {seed}: something was left");
        return;
    };
    let model = models
        .iter_mut()
        .find(|model| model.handle == handle)
        .expect("it was inserted");
    assert!(!model.is_removed && model.away.is_none(), "seed {seed}");
    let expected = model.sent.pop_front().expect("something was sent");
    match came {
        Ok(counting::Next::Number(number, next)) => {
            assert_eq!(Some(number), expected, "seed {seed}");
            model.away = Some(next);
        }
        Ok(counting::Next::Over) => panic!("nobody sent it"),
        Err(_) => {
            assert_eq!(expected, None, "seed {seed}");
            model.is_removed = true;
        }
    }
}

/// Panics when something is taken from it.
struct Trap;

impl Port for Trap {
    type Item = ();

    fn poll_port(&mut self, _: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn take_port(place: &mut Option<Self>) -> Taken<()> {
        assert!(place.take().is_none(), "as the test wants it");
        Taken::Nothing
    }
}

#[test]
fn a_port_that_panics_when_it_is_taken_from_and_is_lost_leaves_the_set() {
    let mut set = PortSet::new();
    set.insert(Trap);
    assert!(catch_unwind(AssertUnwindSafe(|| set.try_next().is_none())).is_err());
    assert!(set.is_empty());
    assert!(set.next_blocking().is_none(), "and it is not waited for");
}
