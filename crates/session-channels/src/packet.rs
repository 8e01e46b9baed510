//! The memory of a session whose sides take turns: one message slot, used again and again.
//!
//! ```text
//!        word: whose turn it is, who waits, who has closed, who has gone
//!
//!   client's turn ──send: write the slot, flip──▶ server's turn: the message is there
//!         ▲                                             │ take it out (the word is not touched)
//!         └───────────────send: write, flip─────────────┘
//! ```
//!
//! Invariants:
//! - The slot belongs to the side whose turn it is: full when it is a receiver that has not yet
//!   taken, empty otherwise. One addition to the word publishes a message *and* gives the turn away
//!   *and* shows whether somebody waits; a receiver never has to say "empty".
//! - Turn and waiting are different bits: a side that lies down adds its `WAIT` and can so never
//!   overwrite a turn that has come meanwhile. It is up only while it is not that side's turn, or
//!   left over from its last sleep until its next send takes it off.
//! - `CLOSED` says that a side takes and sends no more, `GONE` that it does not touch the memory
//!   any more. A side that has somebody to wake sets them one after the other. Whoever finds the
//!   other gone frees the packet.
//!
//! Absent: several messages in one direction (that is [`crate::ring`]), a count of references.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::closed::{At, Why};
use crate::park;
#[cfg(loom)]
use crate::sync::UnsafeCell;
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use crate::wait_graph::{self, End, Wait, What};
use crate::waker_cell::{Rings, WakerCell, come_back};

/// The server's turn; the client's when it is not set.
const TURN: u32 = 1;
const WAIT: [u32; 2] = [1 << 1, 1 << 2];
const CLOSED: [u32; 2] = [1 << 3, 1 << 4];
const GONE: [u32; 2] = [1 << 5, 1 << 6];
const PANICKED: [u32; 2] = [1 << 7, 1 << 8];

/// What lies just before the slot. Two wakers, or one, lie before it.
#[repr(C)]
struct Core {
    word: AtomicU32,
    rings: [Rings; 2],
    /// How long each side's thread looks before it sleeps, see [`crate::park`].
    patience: [AtomicU8; 2],
    align_log2: u8,
    size: u32,
    #[cfg(loom)]
    slot: UnsafeCell<()>,
}

#[repr(C)]
struct OneWaker {
    first: WakerCell,
    core: Core,
}

#[repr(C)]
struct TwoWakers {
    second: WakerCell,
    one: OneWaker,
}

/// Bytes between the core and the slot: none but for alignment, which a session's messages may ask
/// up to [`ALIGN_MAX`].
const SLOT: usize = size_of::<Core>();

/// The largest alignment of a message, in bytes. A message that needs more can be boxed.
pub(crate) const ALIGN_MAX: usize = 16;

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    size_of::<OneWaker>() == 32 && size_of::<TwoWakers>() == 48,
    "an idle session is small"
);

/// One side's hold on a packet. `me` is 0 for the client and 1 for the server.
///
/// Copied freely inside this crate; the endpoint that holds it calls [`leave`](Self::leave) or
/// [`send_last`](Self::send_last) exactly once and nothing after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    core: NonNull<Core>,
    me: usize,
    /// Whether both sides ever wait; only then there are two wakers.
    both_wait: bool,
}

impl Packet {
    /// A new packet for messages no larger than this layout; `sender` has the first turn.
    pub(crate) fn allocate(message: Layout, sender: usize, both_wait: bool) -> NonNull<()> {
        assert!(
            message.align() <= ALIGN_MAX,
            "a message is aligned to {} bytes, more than {ALIGN_MAX}: box it",
            message.align()
        );
        let wakers = wakers_size(both_wait);
        // A session that goes on for long begins on a line of its own, so that word and slot of
        // small messages move between cores together.
        let align = if both_wait {
            64
        } else {
            align_of::<TwoWakers>().max(ALIGN_MAX)
        };
        let size = wakers + SLOT + message.size();
        let (size_32, align_log2) = (
            u32::try_from(size).expect("a message is smaller than 4 GiB"),
            u8::try_from(align.trailing_zeros()).expect("a shift is below 64"),
        );
        let layout = Layout::from_size_align(size, align).expect("size and alignment are small");
        // SAFETY: the layout has a size.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        let core = Core {
            word: AtomicU32::new(if sender == 0 { 0 } else { TURN }),
            rings: [Rings::new(), Rings::new()],
            patience: [AtomicU8::new(0), AtomicU8::new(0)],
            align_log2,
            size: size_32,
            #[cfg(loom)]
            slot: UnsafeCell::new(()),
        };
        // SAFETY: the block was allocated for just this.
        unsafe {
            let one = OneWaker {
                first: WakerCell::new(),
                core,
            };
            if both_wait {
                base.cast::<TwoWakers>().write(TwoWakers {
                    second: WakerCell::new(),
                    one,
                });
            } else {
                base.cast::<OneWaker>().write(one);
            }
            base.add(wakers).cast()
        }
    }

    /// # Safety
    /// `at` came from [`allocate`](Self::allocate) with the same `both_wait`, and side `me` has not
    /// left.
    #[inline]
    pub(crate) unsafe fn at(at: NonNull<()>, me: usize, both_wait: bool) -> Self {
        Self {
            core: at.cast(),
            me,
            both_wait,
        }
    }

    #[inline]
    fn core(&self) -> &Core {
        // SAFETY: the packet lives as long as this side has not left.
        unsafe { self.core.as_ref() }
    }

    #[inline]
    fn other(&self) -> usize {
        1 - self.me
    }

    /// What my send adds to the word to give the turn away.
    #[inline]
    fn flip(&self) -> u32 {
        if self.me == 0 {
            TURN
        } else {
            TURN.wrapping_neg()
        }
    }

    #[inline]
    fn is_mine(&self, word: u32) -> bool {
        (word & TURN) as usize == self.me
    }

    fn why(&self, word: u32) -> Why {
        if word & PANICKED[self.other()] == 0 {
            Why::Dropped
        } else {
            Why::Panicked
        }
    }

    #[inline]
    fn waker(&self, side: usize) -> &WakerCell {
        let first = size_of::<WakerCell>();
        let before = if self.both_wait && side == 1 {
            2 * first
        } else {
            first
        };
        // SAFETY: the wakers lie before the core, the first nearest.
        unsafe { self.core.byte_sub(before).cast().as_ref() }
    }

    #[inline]
    fn slot<W>(&self) -> *mut W {
        const { assert!(align_of::<W>() <= ALIGN_MAX, "box it") };
        #[cfg(loom)]
        self.core().slot.with_mut(|_| ());
        // SAFETY: the slot lies behind the core.
        unsafe { self.core.byte_add(SLOT).as_ptr().cast() }
    }

    pub(crate) fn is_peer_closed(&self) -> bool {
        self.core().word.load(Ordering::Acquire) & CLOSED[self.other()] != 0
    }

    /// Whether there is a message, or an end, to be taken.
    #[inline]
    pub(crate) fn look(&self) -> Option<Result<(), Why>> {
        let word = self.core().word.load(Ordering::Acquire);
        if self.is_mine(word) {
            Some(Ok(()))
        } else if word & CLOSED[self.other()] != 0 {
            Some(Err(self.why(word)))
        } else {
            None
        }
    }

    /// Like [`look`](Self::look), and has this side woken when there is.
    #[inline]
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), Why>> {
        if let Some(found) = self.look() {
            return Poll::Ready(found);
        }
        let (core, waker) = (self.core(), self.waker(self.me));
        let rings = &core.rings[self.me];
        // Mine alone, so what is read is what is.
        if core.word.load(Ordering::Relaxed) & WAIT[self.me] != 0 {
            if waker.holds(context.waker()) {
                return Poll::Pending;
            }
            let word = core.word.fetch_and(!WAIT[self.me], Ordering::AcqRel);
            if self.is_mine(word) {
                return Poll::Ready(Ok(()));
            }
            if word & CLOSED[self.other()] != 0 {
                return Poll::Ready(Err(self.why(word)));
            }
            rings.disarm();
        }
        if !waker.set(rings, context.waker()) {
            return come_back(context);
        }
        rings.arm();
        let word = core.word.fetch_add(WAIT[self.me], Ordering::AcqRel);
        if self.is_mine(word) {
            rings.disarm();
            return Poll::Ready(Ok(()));
        }
        if word & CLOSED[self.other()] != 0 {
            rings.disarm();
            return Poll::Ready(Err(self.why(word)));
        }
        Poll::Pending
    }

    /// The thread waits for what [`look`](Self::look) finds, until this time.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        at: &'static At,
    ) -> Option<Result<(), Why>> {
        let patience = &self.core().patience[self.me];
        park::wait(
            patience,
            0,
            deadline,
            || self.look(),
            |context| wait_graph::on_thread(context, deadline, |context| self.poll_at(context, at)),
        )
    }

    /// [`poll`](Self::poll), and the wait is noted as one at this place.
    #[inline]
    pub(crate) fn poll_at(&self, context: &Context<'_>, at: &'static At) -> Poll<Result<(), Why>> {
        wait_graph::noted(self.poll(context), context, || self.awaited(at))
    }

    pub(crate) fn awaited(&self, at: &'static At) -> Wait {
        Wait {
            end: self.end(),
            at,
            what: What::Turn(*self),
        }
    }

    pub(crate) fn end(&self) -> End {
        End::new(self.core, self.me)
    }

    /// Takes the message out.
    ///
    /// # Safety
    /// [`look`](Self::look) has found one, of this type, and it has not been taken.
    #[inline]
    pub(crate) unsafe fn take<W>(&self) -> W {
        // SAFETY: the caller's promise, and the turn is mine.
        unsafe { self.slot::<W>().read() }
    }

    /// Gives a message and the turn to the other side, or the message back if it has closed. Either
    /// way the turn is the other's afterwards.
    ///
    /// # Safety
    /// It is this side's turn, and the other side will take a `W`.
    #[inline]
    pub(crate) unsafe fn send<W>(&self, wire: W) -> Result<(), (W, Why)> {
        let (core, other) = (self.core(), self.other());
        let word = core.word.load(Ordering::Acquire);
        if word & CLOSED[other] != 0 {
            core.word.fetch_add(self.flip(), Ordering::Relaxed);
            return Err((wire, self.why(word)));
        }
        // SAFETY: the turn is mine, the slot empty and large enough for every message.
        unsafe { self.slot::<W>().write(wire) };
        let change = self.flip().wrapping_sub(word & WAIT[self.me]);
        let word = core.word.fetch_add(change, Ordering::AcqRel);
        if word & CLOSED[other] != 0 {
            // It closed before it could see the message.
            // SAFETY: so nobody but this side will touch the slot.
            return Err((unsafe { self.slot::<W>().read() }, self.why(word)));
        }
        if word & WAIT[other] != 0 {
            self.waker(other).ring(&core.rings[other]);
        }
        Ok(())
    }

    /// [`send`](Self::send) and leave, in one step where nobody sleeps.
    ///
    /// # Safety
    /// As for `send`; and nothing is done with this side afterwards.
    #[inline]
    pub(crate) unsafe fn send_last<W>(self, wire: W) -> Result<(), (W, Why)> {
        let (core, me, other) = (self.core(), self.me, self.other());
        let mut word = core.word.load(Ordering::Acquire);
        if word & CLOSED[other] != 0 {
            let why = self.why(word);
            // SAFETY: passed on; there is nothing to discard.
            unsafe { self.leave(None, false) };
            return Err((wire, why));
        }
        // SAFETY: as in `send`.
        unsafe { self.slot::<W>().write(wire) };
        while word & (WAIT[other] | CLOSED[other]) == 0 {
            let last = word.wrapping_add(self.flip()) | CLOSED[me] | GONE[me];
            match core
                .word
                .compare_exchange_weak(word, last, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
        let word = core.word.fetch_add(self.flip(), Ordering::AcqRel);
        if word & CLOSED[other] != 0 {
            // SAFETY: as in `send`.
            let wire = unsafe { self.slot::<W>().read() };
            let why = self.why(word);
            // SAFETY: passed on.
            unsafe { self.leave(None, false) };
            return Err((wire, why));
        }
        if word & WAIT[other] != 0 {
            // Not gone before it has rung: the other side may have taken the message already.
            self.waker(other).ring(&core.rings[other]);
        }
        let word = core.word.fetch_or(CLOSED[me] | GONE[me], Ordering::AcqRel);
        if word & GONE[other] != 0 {
            // SAFETY: both have gone.
            unsafe { self.free() };
        }
        Ok(())
    }

    /// Closes this side; a message that has come for it and was not taken goes to `discard`.
    ///
    /// # Safety
    /// Nothing is done with this side afterwards. `discard` is given by a side that receives, and
    /// drops the message of its state in place.
    pub(crate) unsafe fn leave(self, discard: Option<unsafe fn(*mut u8)>, panicked: bool) {
        let (core, me, other) = (self.core(), self.me, self.other());
        let closed = CLOSED[me] | if panicked { PANICKED[me] } else { 0 };
        let mut word = core.word.load(Ordering::Acquire);
        while word & WAIT[other] == 0 && (discard.is_none() || !self.is_mine(word)) {
            if word & GONE[other] != 0 {
                // SAFETY: both have gone.
                return unsafe { self.free() };
            }
            let gone = word | closed | GONE[me];
            match core
                .word
                .compare_exchange_weak(word, gone, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        let word = core.word.fetch_or(closed, Ordering::AcqRel);
        // What is left to do even if a message panics while it is dropped.
        let _gone = Gone(self);
        if word & WAIT[other] != 0 {
            self.waker(other).ring(&core.rings[other]);
        }
        if let Some(discard) = discard
            && self.is_mine(word)
        {
            // SAFETY: the turn came to this side with a message, which the other side now leaves
            // alone.
            unsafe { discard(self.slot()) };
        }
    }

    /// Closes this side and leaves a message that `receiver` has not taken where it is: it is the
    /// other side's until that leaves as well, and goes to `discard` if that has.
    ///
    /// # Safety
    /// As for [`leave`](Self::leave); both sides leave in this way, or know that the slot is empty.
    pub(crate) unsafe fn leave_behind(
        self,
        receiver: usize,
        discard: unsafe fn(*mut u8),
        panicked: bool,
    ) {
        let (core, me, other) = (self.core(), self.me, self.other());
        let closed = CLOSED[me] | if panicked { PANICKED[me] } else { 0 };
        let word = core.word.fetch_or(closed, Ordering::AcqRel);
        let _gone = Gone(self);
        if word & WAIT[other] != 0 {
            self.waker(other).ring(&core.rings[other]);
        }
        if word & CLOSED[other] != 0 && (word & TURN) as usize == receiver {
            // SAFETY: of two that close one is second, and this is the one; the turn is a
            // receiver's only while its message lies there.
            unsafe { discard(self.slot()) };
        }
    }

    /// # Safety
    /// Both sides have left.
    #[cold]
    unsafe fn free(self) {
        let core = self.core();
        let size = usize::try_from(core.size).expect("it was a size");
        let layout = Layout::from_size_align(size, 1 << core.align_log2).expect("it was a layout");
        // SAFETY: the block came from `allocate` with this layout, and nobody else knows it any
        // more.
        unsafe {
            let base = self.core.byte_sub(wakers_size(self.both_wait));
            if self.both_wait {
                base.cast::<TwoWakers>().drop_in_place();
            } else {
                base.cast::<OneWaker>().drop_in_place();
            }
            dealloc(base.as_ptr().cast(), layout);
        }
    }
}

struct Gone(Packet);

impl Drop for Gone {
    fn drop(&mut self) {
        let Packet { me, .. } = self.0;
        let word = self.0.core().word.fetch_or(GONE[me], Ordering::AcqRel);
        if word & GONE[1 - me] != 0 {
            // SAFETY: both have gone.
            unsafe { self.0.free() };
        }
    }
}

#[inline]
const fn wakers_size(both_wait: bool) -> usize {
    let one = size_of::<WakerCell>();
    if both_wait { 2 * one } else { one }
}
