//! Sends that are done when the message was taken, and what becomes of those that are given up.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use session_channels::rendezvous::SendTimeoutError;
use session_channels::stream::{TryRecvError, TrySendError};
use session_channels::{PortSet, Why, block_on, rendezvous};

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts itself when it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_send_is_done_when_its_message_was_taken() {
    let (mut sender, mut receiver) = rendezvous();
    let mut sending = pin!(sender.send(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(receiver.try_recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(sending.poll(&mut context), Poll::Ready(Ok(())));
}

#[test]
fn a_send_that_was_given_up_is_accounted_for_by_the_next() {
    let (mut sender, mut receiver) = rendezvous();
    assert!(poll_once(sender.send(1)).is_pending());
    assert!(poll_once(sender.send(2)).is_pending(), "1 is on offer");
    assert_eq!(sender.offer(2), Err(TrySendError::Full(2)));
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(poll_once(sender.send(3)).is_pending());
    assert_eq!(receiver.try_recv(), Ok(3), "2 was never on offer");
    assert_eq!(poll_once(sender.taken()), Poll::Ready(Ok(())));
}

#[test]
fn what_a_receiver_that_goes_has_not_taken_is_given_back() {
    let (mut sender, receiver) = rendezvous();
    assert!(poll_once(sender.send(1)).is_pending());
    drop(receiver);
    let refused = block_on(sender.send(2)).expect_err("nobody is there");
    assert_eq!((refused.message, refused.closed.why), (2, Why::Dropped));
    let untaken = block_on(sender.taken()).expect_err("it was not taken");
    assert_eq!(untaken.message, 1);
    assert_eq!(block_on(sender.taken()), Ok(()), "given back once");
}

#[test]
fn an_offer_outlives_its_sender() {
    let (mut sender, mut receiver) = rendezvous();
    sender.offer(1).expect("nothing was on offer");
    drop(sender);
    assert_eq!(receiver.recv_blocking(), Ok(1));
    let end = receiver.recv_blocking().expect_err("nobody sends");
    assert_eq!(end.why, Why::Dropped);
}

#[test]
fn an_untaken_message_is_dropped_once_whichever_side_goes_first() {
    for sender_first in [false, true] {
        let dropped = Arc::new(AtomicU32::new(0));
        let (mut sender, receiver) = rendezvous();
        assert!(sender.offer(Counted(Arc::clone(&dropped))).is_ok());
        if sender_first {
            drop(sender);
            drop(receiver);
        } else {
            drop(receiver);
            drop(sender);
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "{sender_first}");
    }
}

#[test]
fn a_send_says_at_which_step_its_time_was_over() {
    let (mut sender, mut receiver) = rendezvous();
    let past = Instant::now();
    let over = sender.send_deadline_blocking(1, past);
    assert!(matches!(over, Err(SendTimeoutError::Offered)), "{over:?}");
    let over = block_on(sender.send_timeout(2, Duration::ZERO));
    assert!(
        matches!(over, Err(SendTimeoutError::Waiting(2))),
        "{over:?}"
    );
    assert_eq!(receiver.recv_deadline_blocking(past), Ok(1));
    assert_eq!(
        receiver.recv_deadline_blocking(past),
        Err(TryRecvError::Empty)
    );
    assert_eq!(
        block_on(receiver.recv_timeout(Duration::ZERO)),
        Err(TryRecvError::Empty)
    );
}

#[test]
fn threads_meet_at_every_message() {
    let (mut sender, mut receiver) = rendezvous();
    let taken = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&taken);
    let sending = thread::spawn(move || {
        for n in 0..1000 {
            sender.send_blocking(n).expect("everything is taken");
            assert!(seen.load(Ordering::Acquire) >= n, "not before it was taken");
        }
    });
    for n in 0..1000 {
        taken.store(n, Ordering::Release);
        assert_eq!(receiver.recv_blocking(), Ok(n));
    }
    sending.join().expect("every message was taken");
}

#[test]
fn a_rendezvous_is_a_port_of_a_set() {
    let (mut sender, receiver) = rendezvous();
    let mut set = PortSet::new();
    let handle = set.insert(receiver);
    assert!(set.try_next().is_none());
    sender.offer('a').expect("nothing was on offer");
    assert_eq!(set.next_blocking(), Some((handle, Ok('a'))));
    assert_eq!(poll_once(sender.taken()), Poll::Ready(Ok(())));
    drop(sender);
    let (_, end) = set.next_blocking().expect("the end is told");
    assert_eq!(end.expect_err("nobody sends").why, Why::Dropped);
}
