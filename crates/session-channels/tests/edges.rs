//! The edges: the smallest and largest messages and capacities, and how often who waits is woken.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use session_channels::{
    PortSet, Why, block_on, oneshot, proto, rendezvous, select_blocking, shared, stream,
};

proto! {
    /// As many in the loop as may be, and some around it in the same direction.
    widest {
        hello: send { Hello -> first }
        first: send { First -> open, Skip -> ! }
        open: send(65_536) { Item(u8) -> open, End -> last }
        last: send { Last -> ! }
    }
}

#[test]
fn a_loop_of_the_largest_capacity_has_room_for_what_is_around_it() {
    let (client, server) = widest::init();
    let mut client = client.hello().first();
    for _ in 2..65_536 {
        client = client.try_item(7).ok().unwrap(); // the two before it are on their way as well
    }
    assert!(!client.has_room());
    let mut server = match server.recv_blocking().unwrap() {
        widest::Hello::Hello(server) => match server.recv_blocking().unwrap() {
            widest::First::First(server) => server,
            widest::First::Skip => panic!("it was first"),
        },
    };
    assert!(client.has_room());
    client = client.try_item(8).ok().unwrap();
    client = client.try_item(8).ok().unwrap();
    assert!(!client.has_room());
    let mut count = 0;
    for _ in 0..65_536 {
        let widest::Open::Item(_, next) = server.recv_blocking().unwrap() else {
            panic!("no end was sent");
        };
        server = next;
        count += 1;
    }
    client.try_end().ok().unwrap().last();
    let widest::Open::End(server) = server.recv_blocking().unwrap() else {
        panic!("the end was sent");
    };
    let widest::Last::Last = server.recv_blocking().unwrap();
    assert_eq!(count, 65_536);
}

/// Takes no room, and counts.
struct Nothing;

static NOTHINGS: AtomicU32 = AtomicU32::new(0);

impl Drop for Nothing {
    fn drop(&mut self) {
        NOTHINGS.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn messages_without_size_are_counted_like_others() {
    let (mut sender, mut receiver) = stream(3);
    for _ in 0..3 {
        assert!(sender.try_send(Nothing).is_ok());
    }
    assert!(sender.try_send(Nothing).is_err()); // 1, given back
    assert!(receiver.try_recv().is_ok()); // 2
    drop(receiver); // 4
    assert!(sender.try_send(Nothing).is_err()); // 5
    drop(sender);
    let (sender, receiver) = oneshot();
    assert!(sender.send(Nothing).is_ok());
    drop(receiver); // 6
    let (mut sender, mut receiver) = rendezvous();
    assert!(sender.offer(Nothing).is_ok());
    assert!(receiver.try_recv().is_ok()); // 7
    assert!(sender.offer(Nothing).is_ok());
    drop((sender, receiver)); // 8
    assert_eq!(NOTHINGS.load(Ordering::Relaxed), 8);
}

/// On a boundary of its own.
#[repr(align(256))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wide([u8; 300]);

proto! {
    freight {
        load: send { Load([u64; 2_000]) -> answer }
        answer: recv { Weight(u64) -> !, More -> load }
    }
}

#[test]
fn large_messages_come_whole_and_aligned() {
    let (mut sender, mut receiver) = stream(2);
    for n in 0..5 {
        sender.try_send(Wide([n; 300])).unwrap();
        let came = receiver.try_recv().unwrap();
        assert_eq!(came, Wide([n; 300]));
        assert_eq!((&raw const came).addr() % 256, 0);
    }
    let (client, server) = freight::init();
    let serving = thread::spawn(move || {
        let freight::Load::Load(load, server) = server.recv_blocking().unwrap();
        server.weight(load.iter().sum());
    });
    let answer = client.load([3; 2_000]).recv_blocking().unwrap();
    assert!(matches!(answer, freight::Answer::Weight(6_000)));
    serving.join().unwrap();
}

#[test]
fn a_capacity_is_kept_though_memory_comes_in_powers_of_two() {
    for capacity in [1, 2, 3, 5, 1023, 65_535, 65_536] {
        let (mut sender, receiver) = stream(capacity);
        for _ in 0..capacity {
            assert!(sender.try_send(0_u8).is_ok());
        }
        assert!(sender.try_send(0).is_err());
        assert_eq!(
            (sender.len(), receiver.len()),
            (capacity as usize, capacity as usize)
        );
    }
}

#[test]
fn capacities_out_of_range_are_refused_in_words() {
    for capacity in [0, 65_537, u32::MAX] {
        let refused = std::panic::catch_unwind(|| stream::<u8>(capacity));
        let words = *refused.err().unwrap().downcast::<String>().unwrap();
        let expected = format!("a channel holds between 1 and 65536 messages, not {capacity}");
        assert_eq!(words, expected);
    }
}

/// Counts how often it wakes.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rung(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn who_is_armed_is_woken_once_for_many_messages_and_not_at_all_while_awake() {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let (mut sender, mut receiver) = stream(16);
    let (first, mut all) = shared(16);
    let mut senders = [first.clone(), first];
    let mut set = PortSet::new();
    let (mut to_set, port) = stream(16);
    set.insert(port);
    for _ in 0..3 {
        // nobody is armed: nobody is woken
        for n in 0..4 {
            sender.try_send(n).unwrap();
            senders[n % 2].try_send(n).unwrap();
            to_set.try_send(n).unwrap();
        }
        assert_eq!(bell.rung(), 0);
        assert!(receiver.arm(&waker) && all.arm(&waker));
        while receiver.try_recv().is_ok() {}
        while all.try_recv().is_ok() {}
        while set.try_next().is_some() {}
        assert_eq!(bell.rung(), 0);
        // all are armed: each is woken once
        assert!(!receiver.arm(&waker) && !receiver.arm(&waker));
        assert!(!all.arm(&waker));
        for n in 0..4 {
            sender.try_send(n).unwrap();
        }
        assert_eq!(bell.rung(), 1);
        for n in 0..4 {
            senders[n % 2].try_send(n).unwrap();
        }
        assert_eq!(bell.rung(), 1);
        let context = Context::from_waker(&waker);
        assert!(set.poll_ready(&context).is_pending());
        for n in 0..4 {
            to_set.try_send(n).unwrap();
        }
        assert_eq!(bell.rung(), 1);
        while receiver.try_recv().is_ok() {}
        while all.try_recv().is_ok() {}
        while set.try_next().is_some() {}
    }
    // and the other way: who waits for room
    let (mut sender, mut receiver) = stream(4);
    for n in 0..4 {
        sender.try_send(n).unwrap();
    }
    assert!(!sender.arm(&waker));
    for _ in 0..4 {
        receiver.try_recv().unwrap();
    }
    assert_eq!(bell.rung(), 1);
}

proto! {
    errand {
        go: send { Go(oneshot_end::Sender) -> ! }
    }
}

mod oneshot_end {
    pub(super) type Sender = session_channels::oneshot::Sender<u8>;
}

proto! {
    deputy {
        start: send(4) { Take(errand::client::Go, errand::server::Go) -> start, Enough -> ! }
    }
}

#[test]
fn endpoints_in_untaken_messages_notify_their_other_sides() {
    // in a packet, in a ring, and an endpoint within a message of an endpoint within a message
    let (far, near) = oneshot();
    let (client, server) = errand::init();
    client.go(far);
    drop(server);
    assert_eq!(near.recv_blocking().unwrap_err().why, Why::Dropped);

    let (far, near) = oneshot();
    let (client, inner) = errand::init();
    client.go(far);
    let (lone, _) = errand::init();
    let (client, server) = deputy::init();
    let client = block_on(client.take(lone, inner)).unwrap();
    drop(server);
    assert_eq!(near.recv_blocking().unwrap_err().why, Why::Dropped);
    let (lone, other) = errand::init();
    let (_, inner) = errand::init();
    let unsent = block_on(client.take(lone, inner)).unwrap_err();
    unsent.message.0.try_go(oneshot().0).unwrap();
    assert!(other.is_ready());
}

#[test]
fn a_receiver_that_waits_hears_that_the_last_clone_is_gone() {
    for round in 0..200 {
        let (sender, mut receiver) = shared::<usize>(1);
        let clones: Vec<_> = (0..3).map(|_| sender.clone()).collect();
        drop(sender);
        let threads = clones.into_iter().enumerate().map(|(number, mut clone)| {
            thread::spawn(move || {
                if number != round % 4 {
                    clone.send_blocking(number).unwrap();
                }
                let late = clone.clone();
                drop(clone);
                late
            })
        });
        let threads: Vec<_> = threads.collect();
        let waiting = thread::spawn(move || {
            let mut came = 0;
            while receiver.recv_blocking().is_ok() {
                came += 1;
            }
            came
        });
        for thread in threads {
            drop(thread.join().unwrap());
        }
        assert_eq!(waiting.join().unwrap(), if round % 4 < 3 { 2 } else { 3 });
    }
}

#[test]
fn two_that_are_always_ready_share_evenly_among_many_that_are_not() {
    let (senders, mut quiet): (Vec<_>, Vec<_>) = (0..2).map(|_| stream::<u8>(1)).unzip();
    let [mut none, mut nothing] = [quiet.remove(0), quiet.remove(0)];
    let (mut to_left, mut left) = stream(1);
    let (mut to_right, mut right) = stream(1);
    to_left.try_send(0).unwrap();
    to_right.try_send(0).unwrap();
    let mut lefts = 0;
    for _ in 0..1000 {
        let is_left = select_blocking! {
            none => { _ => panic!("nothing was sent"), closed(why) => panic!("{why}") }
            nothing => { _ => panic!("nothing was sent"), closed(why) => panic!("{why}") }
            left => { _ => true, closed(why) => panic!("{why}") }
            right => { _ => false, closed(why) => panic!("{why}") }
        };
        if is_left {
            lefts += 1;
            to_left.try_send(0).unwrap();
        } else {
            to_right.try_send(0).unwrap();
        }
    }
    assert!((450..=550).contains(&lefts), "{lefts} of 1000");
    drop(senders);
}
