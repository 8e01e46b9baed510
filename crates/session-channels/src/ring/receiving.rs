//! The receiving side of a ring.

use super::{CLOSED, DRAINS, GoneAtEnd, Receiving, Ring, SELDOM, SIGN, STEP, end, slot, why};
use crate::barrier;
use crate::closed::{At, Why};
use crate::gate::{PLAIN, WAITING};
use crate::park;
use crate::sync::{Ordering, exchanged};
use crate::wait_graph::{self, End, Wait, What};
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::time::Instant;

impl Receiving {
    /// # Safety
    /// This is the ring's one receiver, and it has not left.
    #[inline]
    pub(crate) unsafe fn at(ring: NonNull<Ring>) -> Self {
        Self(ring)
    }

    #[inline]
    pub(super) fn ring(&self) -> &Ring {
        // SAFETY: the ring lives as long as this side has not left.
        unsafe { self.0.as_ref() }
    }

    /// Bytes from slot to slot.
    #[inline]
    pub(crate) fn stride(self) -> usize {
        self.ring().receiving.stride as usize
    }

    pub(crate) fn partner(self) -> Option<NonNull<Ring>> {
        self.ring().partner.get()
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        let own = &self.ring().receiving;
        own.index.load(Ordering::Relaxed) == own.seen.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn refresh(self) {
        let ring = self.ring();
        let tail = ring.tail.0.load(Ordering::SeqCst) & !SIGN;
        ring.receiving.seen.store(tail, Ordering::Relaxed);
    }

    pub(crate) fn is_sender_closed(self) -> bool {
        self.ring().sender.flags.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many messages can be taken, at least.
    pub(crate) fn len(self) -> u32 {
        self.refresh();
        let own = &self.ring().receiving;
        let seen = own.seen.load(Ordering::Relaxed);
        seen.wrapping_sub(own.index.load(Ordering::Relaxed)) / STEP
    }

    /// Whether there is a message, or an end, to be taken.
    #[inline]
    pub(crate) fn look(self) -> Option<Result<(), Why>> {
        if !self.is_empty() {
            return Some(Ok(()));
        }
        self.refresh();
        if !self.is_empty() {
            return Some(Ok(()));
        }
        let flags = self.ring().sender.flags.load(Ordering::SeqCst);
        if flags & CLOSED == 0 {
            return None;
        }
        // What it sent before it closed comes first.
        self.refresh();
        Some(if self.is_empty() {
            Err(why(flags))
        } else {
            Ok(())
        })
    }

    /// Like [`look`](Self::look), and has this side woken when there is.
    #[inline]
    pub(crate) fn poll(self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        match self.look() {
            // If the sign is up, the sender of this has seen it, or is about to.
            Some(found) => Poll::Ready(found),
            None => self.poll_empty(context),
        }
    }

    /// The thread waits for what [`look`](Self::look) finds, until this time.
    #[cold]
    pub(crate) fn wait(self, deadline: Option<Instant>, wait: Wait) -> Option<Result<(), Why>> {
        self.seldom_sleeps();
        park::wait(
            &self.ring().receiver.patience,
            self.ring().receiving.head_start(),
            deadline,
            || self.look(),
            |context| {
                let own = &self.ring().receiving;
                own.slept_at.set(own.index.load(Ordering::Relaxed));
                wait_graph::on_thread(context, deadline, |context| {
                    wait_graph::noted(self.poll(context), context, || wait)
                })
            },
        )
    }

    /// A wait for a message, of a channel that is this ring and no more.
    pub(crate) fn awaited(self, at: &'static At) -> Wait {
        Wait {
            end: self.end(),
            at,
            what: What::Message(self),
        }
    }

    pub(crate) fn end(self) -> End {
        End::new(self.0, 1)
    }

    /// What [`look`](Self::look) would find, for those who must not change what it keeps.
    pub(crate) fn has_something(self) -> bool {
        let ring = self.ring();
        let is_closed = ring.sender.flags.load(Ordering::SeqCst) & CLOSED != 0;
        let tail = ring.tail.0.load(Ordering::SeqCst) & !SIGN;
        is_closed || tail != ring.head.0.load(Ordering::SeqCst)
    }

    /// A thread is about to sleep: if it got much done since it last did, the sender's exchanges
    /// cost more than its own barriers. Tasks sleep too lightly for that.
    pub(crate) fn seldom_sleeps(self) {
        let ring = self.ring();
        let head = ring.receiving.index.load(Ordering::Relaxed);
        let since = head.wrapping_sub(ring.receiving.slept_at.get()) / STEP;
        if since > SELDOM
            && ring.receiver.flags.load(Ordering::Relaxed) & PLAIN == 0
            && barrier::is_here()
        {
            // A sign in the tail would be written over.
            self.take_sign_down();
            ring.receiver.flags.fetch_or(PLAIN, Ordering::SeqCst);
        }
    }

    pub(super) fn poll_empty(self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        let gate = &self.ring().receiver;
        let plain = gate.flags.load(Ordering::Relaxed) & PLAIN != 0;
        let lies = if plain {
            gate.lie_down(context)
        } else {
            self.raise_sign(context)
        };
        if lies.is_pending() {
            return Poll::Pending;
        }
        match self.look() {
            Some(found) => {
                if plain {
                    gate.get_up();
                } else {
                    self.take_sign_down();
                }
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }

    /// What [`Gate::lie_down`] does, with the sign in the tail.
    pub(super) fn raise_sign(self, context: &Context<'_>) -> Poll<()> {
        let ring = self.ring();
        if ring.tail.0.load(Ordering::Relaxed) & SIGN != 0 {
            if ring.receiver.would_wake(context) {
                return Poll::Ready(());
            }
            self.take_sign_down();
        }
        if ring.receiver.expect_ring(context).is_pending() {
            return Poll::Pending;
        }
        ring.tail.0.fetch_or(SIGN, Ordering::SeqCst);
        exchanged();
        Poll::Ready(())
    }

    pub(super) fn take_sign_down(self) {
        let ring = self.ring();
        if ring.tail.0.fetch_and(!SIGN, Ordering::SeqCst) & SIGN != 0 {
            ring.receiver.expect_none();
        }
    }

    /// Takes the oldest message.
    ///
    /// # Safety
    /// [`look`](Self::look) has found one, it is of this type, and `stride` is the ring's.
    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    pub(crate) unsafe fn pop<W>(self, stride: usize) -> W {
        let ring = self.ring();
        let own = &ring.receiving;
        let index = own.index.load(Ordering::Relaxed);
        debug_assert!(
            index != own.seen.load(Ordering::Relaxed),
            "there is a message"
        );
        // SAFETY: the slot is full and the receiver's.
        let wire = unsafe { slot(ring, own, index, stride).cast::<W>().read() };
        let next = index.wrapping_add(STEP);
        own.index.store(next, Ordering::Relaxed);
        if ring.sender.flags.load(Ordering::Relaxed) & PLAIN == 0 {
            ring.head.0.swap(next, Ordering::SeqCst);
            exchanged();
        } else {
            ring.head.0.store(next, Ordering::Release);
            barrier::here();
        }
        if ring.sender.flags.load(Ordering::SeqCst) & WAITING != 0 {
            ring.sender.wake();
        }
        wire
    }

    /// Closes this side. `discard` drops the message in the slot it is given, and is called for
    /// each message that was on its way.
    ///
    /// # Safety
    /// Nothing is done with this side afterwards; `discard` knows the messages' types, and `stride`
    /// is the ring's.
    pub(crate) unsafe fn leave(self, why: Why, stride: usize, mut discard: impl FnMut(*mut u8)) {
        let ring = self.ring();
        let _gone = GoneAtEnd(self.0);
        let before = ring.receiver.flags.fetch_or(end(why), Ordering::SeqCst);
        exchanged();
        if before & PLAIN != 0 {
            barrier::everywhere();
        }
        let tail = ring.tail.0.load(Ordering::SeqCst) & !SIGN;
        ring.taken_at_close.store(tail, Ordering::Relaxed);
        ring.receiver.flags.fetch_or(DRAINS, Ordering::Release);
        ring.sender.wake();
        let own = &ring.receiving;
        // The slots stay the receiver's: the sender is not told of any room.
        let mut index = own.index.load(Ordering::Relaxed);
        while index != tail {
            discard(slot(ring, own, index, stride));
            index = index.wrapping_add(STEP);
        }
    }
}
