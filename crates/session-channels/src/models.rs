//! Every interleaving of two sides of a packet, of a ring and of a set's list, in small.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p session-channels --lib models`, bounded by
//! `LOOM_MAX_PREEMPTIONS=2` to a minute or two.
//!
//! Seen red with: a waker that is replaced without asking whether a ring is on its way; a message
//! published by a relaxed addition; a side that leaves an offer behind without asking who closed
//! first; a member that counts as discharged while it is in the list.

use std::alloc::Layout;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use loom::future::block_on;
use loom::thread;

use crate::closed::Why;
use crate::packet::Packet;
use crate::ready_list::{self, ReadyList};
use crate::rendezvous;
use crate::ring::{Receiving, Ring, Sending};

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

struct Out(Sending);
struct In(Receiving);

// SAFETY: each side goes to one thread.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Send for In {}

fn ring(slots: u32) -> (Out, In) {
    let ring = Ring::allocate(slots, MESSAGE);
    // SAFETY: the sides are made once.
    unsafe { (Out(Sending::at(ring)), In(Receiving::at(ring))) }
}

impl Out {
    async fn send(&self, limit: u32, message: Message) -> Result<(), Why> {
        poll_fn(|context| self.0.poll(limit, context)).await?;
        // SAFETY: there is room.
        unsafe { self.0.push(message, MESSAGE.size()) }.map_err(|(_, why)| why)
    }

    fn leave(self) {
        // SAFETY: nothing follows.
        unsafe { self.0.leave(Why::Dropped) };
    }
}

impl In {
    fn poll(&self, context: &Context<'_>) -> Poll<Result<Message, Why>> {
        self.0.poll(context).map(|found| {
            // SAFETY: it was found.
            found.map(|()| unsafe { self.0.pop(MESSAGE.size()) })
        })
    }

    fn leave(self) {
        // SAFETY: nothing follows; the messages are `Message`.
        unsafe {
            self.0.leave(Why::Dropped, MESSAGE.size(), |slot| {
                slot.cast::<Message>().drop_in_place();
            });
        }
    }
}

#[test]
fn a_ring_of_one_hands_over_everything_in_order() {
    loom::model(|| {
        let dropped = counter();
        let (out, into) = ring(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || {
            block_on(async {
                for n in 0..2 {
                    let sent = out.send(1, Message(n, Arc::clone(&made))).await;
                    assert_eq!(sent, Ok(()));
                }
            });
            out.leave();
        });
        block_on(async {
            for n in 0..2 {
                let message = poll_fn(|context| into.poll(context)).await;
                assert_eq!(message.ok().unwrap().0, n);
            }
            let end = poll_fn(|context| into.poll(context)).await;
            assert_eq!(end.err(), Some(Why::Dropped));
        });
        into.leave();
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_receiver_that_leaves_a_ring_drops_each_message_once_and_wakes_the_sender() {
    loom::model(|| {
        let dropped = counter();
        let (out, into) = ring(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || {
            block_on(async {
                for n in 0..2 {
                    if out.send(1, Message(n, Arc::clone(&made))).await.is_err() {
                        break;
                    }
                }
            });
            out.leave();
        });
        into.leave();
        sending.join().unwrap();
        let dropped = dropped.load(Ordering::Relaxed);
        assert!(
            (1..=2).contains(&dropped),
            "{dropped} messages were dropped"
        );
    });
}

/// Polls once with a waker that is not the one it goes on with.
fn look_in_passing(into: &In) {
    let _ = into.0.poll(&Context::from_waker(std::task::Waker::noop()));
    thread::yield_now();
}

#[test]
fn a_wait_on_a_ring_that_moves_to_another_task_is_still_woken() {
    loom::model(|| {
        let dropped = counter();
        let (out, into) = ring(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || {
            for n in 0..2 {
                let message = Message(n, Arc::clone(&made));
                assert_eq!(block_on(out.send(1, message)), Ok(()));
            }
            out.leave();
        });
        for n in 0..2 {
            look_in_passing(&into);
            let came = block_on(poll_fn(|context| into.poll(context)));
            assert_eq!(came.ok().unwrap().0, n);
        }
        into.leave();
        sending.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_sender_that_waits_for_room_hears_of_room_and_then_of_the_end() {
    loom::model(|| {
        let dropped = counter();
        let (out, into) = ring(1);
        let made = Arc::clone(&dropped);
        let sending = thread::spawn(move || {
            block_on(async {
                for n in 0..3 {
                    if out.send(1, Message(n, Arc::clone(&made))).await.is_err() {
                        break;
                    }
                }
            });
            out.leave();
        });
        let first = block_on(poll_fn(|context| into.poll(context)));
        assert_eq!(first.ok().unwrap().0, 0);
        into.leave();
        sending.join().unwrap();
        let dropped = dropped.load(Ordering::Relaxed);
        assert!(
            (2..=3).contains(&dropped),
            "{dropped} messages were dropped"
        );
    });
}

#[test]
fn who_waits_on_a_packet_and_a_ring_hears_of_both_ends() {
    loom::model(|| {
        let (sender, receiver) = packet(false);
        let (out, into) = ring(1);
        let leaving = thread::spawn(move || {
            sender.leave(false);
            out.leave();
        });
        let (mut of_packet, mut of_ring) = (None, None);
        block_on(poll_fn(|context| {
            if of_packet.is_none()
                && let Poll::Ready(found) = receiver.0.poll(context)
            {
                of_packet = Some(found);
            }
            if of_ring.is_none()
                && let Poll::Ready(found) = into.0.poll(context)
            {
                of_ring = Some(found);
            }
            if of_packet.is_some() && of_ring.is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        assert_eq!(
            of_packet.zip(of_ring),
            Some((Err(Why::Dropped), Err(Why::Dropped)))
        );
        receiver.leave(true);
        into.leave();
        leaving.join().unwrap();
    });
}

#[test]
fn an_offer_is_taken_or_dropped_once_whoever_goes_first() {
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
