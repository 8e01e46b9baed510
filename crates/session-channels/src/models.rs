//! Every interleaving of two sides of a packet, of a ring and of a set's list, in small.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p session-channels --lib models`, bounded by
//! `LOOM_MAX_PREEMPTIONS=2` to a minute or two.
//!
//! Seen red with: a waker that is replaced without asking whether a ring is on its way; a message
//! published by a relaxed addition; a side that leaves an offer behind without asking who closed
//! first; a member that counts as discharged while it is in the list; a sleeper that leaves out its
//! barrier on all cores.

use std::alloc::Layout;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use loom::future::block_on;
use loom::thread;

use crate::barrier;
use crate::closed::Why;
use crate::packet::Packet;
use crate::ready_list::{self, ReadyList};
use crate::rendezvous;
use crate::stream::{self, stream};

/// Counts itself when it is dropped: none may be lost, none dropped twice.
struct Message(usize, Arc<AtomicUsize>);

impl Drop for Message {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

const MESSAGE: Layout = Layout::new::<Message>();

#[derive(Clone, Copy)]
struct Side(Packet);

// SAFETY: each side goes to one thread.
unsafe impl Send for Side {}

impl Side {
    async fn recv(self) -> Result<Message, Why> {
        poll_fn(|context| self.0.poll(context)).await?;
        // SAFETY: it was found.
        Ok(unsafe { self.0.take() })
    }

    fn send(self, message: Message) -> Result<(), (Message, Why)> {
        // SAFETY: the models send in turn.
        unsafe { self.0.send(message) }
    }

    fn send_last(self, message: Message) -> Result<(), (Message, Why)> {
        // SAFETY: the models do nothing afterwards.
        unsafe { self.0.send_last(message) }
    }

    fn leave(self, receives: bool) {
        let discard: unsafe fn(*mut u8) = |slot| {
            // SAFETY: a message lies there.
            unsafe { slot.cast::<Message>().drop_in_place() };
        };
        // SAFETY: the models do nothing afterwards.
        unsafe { self.0.leave(receives.then_some(discard), false) };
    }
}

fn packet(both_wait: bool) -> (Side, Side) {
    let at = Packet::allocate(MESSAGE, 0, both_wait);
    // SAFETY: the sides are made once.
    unsafe {
        (
            Side(Packet::at(at, 0, both_wait)),
            Side(Packet::at(at, 1, both_wait)),
        )
    }
}

#[test]
fn one_message_arrives_or_comes_back() {
    loom::model(|| {
        let dropped = counter();
        let (sender, receiver) = packet(false);
        let message = Message(7, Arc::clone(&dropped));
        let sending = thread::spawn(move || sender.send_last(message).is_ok());
        let received = block_on(receiver.recv()).map(|message| message.0);
        receiver.leave(false);
        assert!(sending.join().unwrap());
        assert_eq!(received, Ok(7));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_receiver_that_leaves_drops_what_came_and_gives_back_what_did_not() {
    loom::model(|| {
        let dropped = counter();
        let (sender, receiver) = packet(false);
        let message = Message(7, Arc::clone(&dropped));
        let sending = thread::spawn(move || drop(sender.send_last(message)));
        receiver.leave(true);
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_sender_that_leaves_wakes_the_receiver() {
    loom::model(|| {
        let (sender, receiver) = packet(false);
        let leaving = thread::spawn(move || sender.leave(false));
        let received = block_on(receiver.recv()).map(|message| message.0);
        receiver.leave(true);
        leaving.join().unwrap();
        assert_eq!(received, Err(Why::Dropped));
    });
}

#[test]
fn sides_that_take_turns_lose_no_turn() {
    loom::model(|| {
        let dropped = counter();
        let (client, server) = packet(true);
        let made = Arc::clone(&dropped);
        let serving = thread::spawn(move || {
            block_on(async {
                for n in 0..2 {
                    let request = server.recv().await.ok().unwrap();
                    assert_eq!(request.0, n);
                    assert!(server.send(request).is_ok());
                }
            });
            server.leave(true);
        });
        block_on(async {
            for n in 0..2 {
                assert!(client.send(Message(n, Arc::clone(&made))).is_ok());
                assert_eq!(client.recv().await.ok().unwrap().0, n);
            }
        });
        client.leave(false);
        serving.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

/// Polls once with a waker that is not the one it goes on with: as a task that moves, or a select
/// that was given up.
async fn moved(side: Side) {
    let waker = std::task::Waker::noop();
    let _ = side.0.poll(&Context::from_waker(waker));
    thread::yield_now();
}

#[test]
fn a_wait_that_moves_to_another_task_is_still_woken() {
    loom::model(|| {
        let dropped = counter();
        let (client, server) = packet(true);
        let message = Message(1, Arc::clone(&dropped));
        let serving = thread::spawn(move || {
            let request = block_on(async {
                moved(server).await;
                server.recv().await
            });
            assert!(server.send(request.ok().unwrap()).is_ok());
            server.leave(true);
        });
        assert!(client.send(message).is_ok());
        let answer = block_on(async {
            moved(client).await;
            client.recv().await
        });
        assert_eq!(answer.ok().unwrap().0, 1);
        client.leave(false);
        serving.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn sides_that_leave_at_once_free_once() {
    loom::model(|| {
        let dropped = counter();
        let (client, server) = packet(true);
        let message = Message(1, Arc::clone(&dropped));
        let serving = thread::spawn(move || server.leave(true));
        drop(client.send(message));
        client.leave(true);
        serving.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// Sends until nobody is there any more.
async fn send_all(sender: &mut stream::Sender<Message>, count: usize, dropped: &Arc<AtomicUsize>) {
    for n in 0..count {
        if sender.send(Message(n, Arc::clone(dropped))).await.is_err() {
            break;
        }
    }
}

async fn number(receiver: &mut stream::Receiver<Message>) -> Result<usize, Why> {
    let came = receiver.recv().await;
    came.map(|message| message.0).map_err(|closed| closed.why)
}

#[test]
fn a_ring_of_one_hands_over_everything_in_order() {
    loom::model(|| {
        let dropped = counter();
        let (mut sender, mut receiver) = stream(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || block_on(send_all(&mut sender, 2, &made)));
        block_on(async {
            assert_eq!(number(&mut receiver).await, Ok(0));
            assert_eq!(number(&mut receiver).await, Ok(1));
            assert_eq!(number(&mut receiver).await, Err(Why::Finished));
        });
        drop(receiver);
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_receiver_that_leaves_a_ring_drops_each_message_once_and_wakes_the_sender() {
    loom::model(|| {
        let dropped = counter();
        let (mut sender, receiver) = stream(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || block_on(send_all(&mut sender, 2, &made)));
        drop(receiver);
        sending.join().unwrap();
        let dropped = dropped.load(Ordering::Relaxed);
        assert!(
            (1..=2).contains(&dropped),
            "{dropped} messages were dropped"
        );
    });
}

#[test]
fn a_wait_on_a_ring_that_moves_to_another_task_is_still_woken() {
    loom::model(|| {
        let dropped = counter();
        let (mut sender, mut receiver) = stream(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || block_on(send_all(&mut sender, 2, &made)));
        for n in 0..2 {
            // polled once with a waker that is not the one it goes on with
            let _ = receiver.poll_ready(&Context::from_waker(std::task::Waker::noop()));
            thread::yield_now();
            assert_eq!(block_on(number(&mut receiver)), Ok(n));
        }
        drop(receiver);
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_sender_that_waits_for_room_hears_of_room_and_then_of_the_end() {
    loom::model(|| {
        let dropped = counter();
        let (mut sender, mut receiver) = stream(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || block_on(send_all(&mut sender, 3, &made)));
        assert_eq!(block_on(number(&mut receiver)), Ok(0));
        drop(receiver);
        sending.join().unwrap();
        let dropped = dropped.load(Ordering::Relaxed);
        assert!(
            (2..=3).contains(&dropped),
            "{dropped} messages were dropped"
        );
    });
}

#[test]
fn a_receiver_that_asks_for_plain_stores_hears_of_what_comes_meanwhile() {
    barrier::with_barrier(|| {
        loom::model(|| {
            let dropped = counter();
            let (mut sender, mut receiver) = stream(2);
            assert!(sender.try_send(Message(0, Arc::clone(&dropped))).is_ok());
            assert_eq!(block_on(number(&mut receiver)), Ok(0));
            // its sign is up when it asks
            let _ = receiver.poll_ready(&Context::from_waker(std::task::Waker::noop()));
            let message = Message(1, Arc::clone(&dropped));
            let sending = thread::spawn(move || sender.try_send(message).is_ok());
            receiver.seldom_sleeps();
            assert_eq!(block_on(number(&mut receiver)), Ok(1));
            assert_eq!(block_on(number(&mut receiver)), Err(Why::Finished));
            assert!(sending.join().unwrap());
            assert_eq!(dropped.load(Ordering::Relaxed), 2);
        });
    });
}

#[test]
fn a_sender_that_waits_hears_of_room_made_by_a_plain_store() {
    barrier::with_barrier(|| {
        loom::model(|| {
            let dropped = counter();
            let (mut sender, mut receiver) = stream(1);
            assert!(sender.try_send(Message(0, Arc::clone(&dropped))).is_ok());
            let made = Arc::clone(&dropped);
            let sending = thread::spawn(move || block_on(send_all(&mut sender, 1, &made)));
            assert_eq!(block_on(number(&mut receiver)), Ok(0));
            sending.join().unwrap();
            drop(receiver);
            assert_eq!(dropped.load(Ordering::Relaxed), 2);
        });
    });
}

#[test]
fn a_receiver_that_asked_for_plain_stores_and_leaves_drops_each_message_once() {
    barrier::with_barrier(|| {
        loom::model(|| {
            let dropped = counter();
            let (mut sender, mut receiver) = stream(2);
            assert!(sender.try_send(Message(0, Arc::clone(&dropped))).is_ok());
            assert_eq!(block_on(number(&mut receiver)), Ok(0));
            receiver.seldom_sleeps();
            let made = Arc::clone(&dropped);
            let sending = thread::spawn(move || {
                let sent = sender.try_send(Message(1, made));
                drop(sender);
                sent.is_ok()
            });
            drop(receiver);
            sending.join().unwrap();
            assert_eq!(dropped.load(Ordering::Relaxed), 2);
        });
    });
}

#[test]
fn who_waits_on_a_packet_and_a_ring_hears_of_both_ends() {
    loom::model(|| {
        let (sender, receiver) = packet(false);
        let (to_ring, mut ring) = stream::<Message>(1);
        let leaving = thread::spawn(move || {
            sender.leave(false);
            drop(to_ring);
        });
        let (mut of_packet, mut of_ring) = (None, None);
        block_on(poll_fn(|context| {
            if of_packet.is_none()
                && let Poll::Ready(found) = receiver.0.poll(context)
            {
                of_packet = found.err();
            }
            if of_ring.is_none()
                && let Poll::Ready(found) = ring.poll_recv(context)
            {
                of_ring = found.err().map(|closed| closed.why);
            }
            if of_packet.is_some() && of_ring.is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        assert_eq!(of_packet.zip(of_ring), Some((Why::Dropped, Why::Finished)));
        receiver.leave(true);
        drop(ring);
        leaving.join().unwrap();
    });
}

#[test]
fn an_offer_is_taken_or_dropped_once_whichever_side_goes_first() {
    for takes in [false, true] {
        loom::model(move || {
            let dropped = counter();
            let (mut sender, mut receiver) = rendezvous();
            let message = Message(7, Arc::clone(&dropped));
            let sending = thread::spawn(move || {
                let offered = sender.offer(message);
                drop(sender);
                drop(offered);
            });
            if takes {
                drop(receiver.try_recv());
            }
            drop(receiver);
            sending.join().unwrap();
            assert_eq!(dropped.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn a_send_is_done_when_its_message_was_taken_or_given_back() {
    loom::model(|| {
        let dropped = counter();
        let (mut sender, mut receiver) = rendezvous();
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || {
            block_on(async {
                let first = sender.send(Message(0, Arc::clone(&made))).await;
                let second = sender.send(Message(1, Arc::clone(&made))).await;
                assert!(first.is_ok(), "it was taken");
                assert_eq!(second.unwrap_err().message.0, 1);
            });
        });
        assert_eq!(block_on(receiver.recv()).ok().unwrap().0, 0);
        drop(receiver);
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_set_hears_of_every_member_that_wakes() {
    loom::model(|| {
        let mut list = ReadyList::new();
        let members = [list.enlist(0), list.enlist(1)];
        assert_eq!(
            [list.next(), list.next(), list.next()],
            [Some(0), Some(1), None]
        );
        let wakers = [0, 1].map(|key: usize| ready_list::waker(&members[key]));
        let [first, second] = wakers.map(|waker| thread::spawn(move || waker.wake()));
        let mut woken = [false; 2];
        while woken != [true; 2] {
            block_on(poll_fn(|context| list.poll(context)));
            while let Some(key) = list.next() {
                woken[key as usize] = true;
            }
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_member_that_was_discharged_is_not_put_into_the_list() {
    loom::model(|| {
        let mut list = ReadyList::new();
        let member = list.enlist(0);
        assert_eq!(list.next(), Some(0));
        let waker = ready_list::waker(&member);
        let waking = thread::spawn(move || {
            waker.wake_by_ref();
            waker.wake();
        });
        // As a set does: held as long as it may be in the list.
        while !ReadyList::discharge(&member) {
            block_on(poll_fn(|context| list.poll(context)));
            assert_eq!(list.next(), Some(0));
        }
        drop(member);
        waking.join().unwrap();
        assert_eq!(list.next(), None);
    });
}
