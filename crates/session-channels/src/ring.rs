//! A bounded queue from one sender to one receiver, both of which can sleep.
//!
//! ```text
//! send:     room?  write the slot, publish tail, look whether the receiver sleeps or has closed
//! receive:  tail beyond head?  read the slot, publish head, look whether the sender sleeps
//! sleep:    raise WAITING, then look once more
//! ```
//!
//! Publishing and looking are a store and a load, and so are raising the sign and looking again:
//! one of the two sides must see the other's, which takes a full barrier on both (Dekker). Which
//! side executes it is explained at [`Ring`].
//!
//! Invariants:
//! - Indices count in steps of [`STEP`], the lowest bit of the tail being the sign. `head <= tail
//!   <= head + slots` (as wrapping numbers). Slots from head to tail are full and the receiver's,
//!   all others the sender's.
//! - Each index is written by one side; each side keeps the other's as it last saw it, and looks
//!   again only when that does not suffice.
//! - A receiver that closes publishes up to where it drops what was on its way; a message sent
//!   behind that is the sender's and given back.
//! - The memory is freed by the side that goes second.
//!
//! Absent: several senders (a set of rings, [`crate::port_set`]); growth.

mod receiving;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use crate::barrier;
use crate::closed::{At, Why};
use crate::coalesce::Coalesce;
use crate::gate::{Gate, PLAIN, WAITING};
use crate::park;
use crate::sync::{AtomicU32, Ordering, UnwatchedU32, exchanged, relax};
use crate::wait_graph::{self, End, Wait, What};

/// This side has closed.
const CLOSED: u32 = 1 << 2;
/// ... while panicking.
const PANICKED: u32 = 1 << 3;
/// ... at the protocol's end.
const FINISHED: u32 = 1 << 4;
/// This receiver's `taken_at_close` is valid.
const DRAINS: u32 = 1 << 5;

/// Whose index is so much more is one message on.
const STEP: u32 = 2;
/// In the tail: the receiver sleeps, or is about to.
const SIGN: u32 = 1;

/// So many messages between two sleeps make a side one that seldom sleeps.
const SELDOM: u32 = if cfg!(loom) { 0 } else { 512 };

/// The largest capacity of a stream or of a loop in a protocol.
const CAPACITY_MAX: u32 = 1 << 16;
/// The most messages that one ring may hold: those of a loop and what a protocol sends around it.
const SLOTS_MAX: u32 = CAPACITY_MAX << 1;

/// An index that one side writes at every message and the other looks at, which takes the line
/// away for a while. So nothing else is on it.
#[repr(align(64))]
struct Published(AtomicU32);

/// The line that one side alone uses.
#[repr(align(64))]
struct Own {
    /// What was last published, without the sign.
    index: UnwatchedU32,
    /// The other's, as last seen. Not a cell: several threads may look at one end at once.
    seen: UnwatchedU32,
    /// Where it was when this side's thread last slept.
    slept_at: Cell<u32>,
    /// Where it was when this side's thread last waited.
    waited_at: Cell<u32>,
    coalesce: Coalesce,
    /// The sender found no room and gave way once.
    gave_way: Cell<bool>,
    /// Both sides' copy of what never changes.
    mask: u32,
    /// Bytes from slot to slot, for those who do not know the messages' type.
    stride: u32,
    slots: *mut u8,
}

/// Read at every message and written when a side sleeps, wakes or closes.
///
/// Which side executes the barrier between publishing and looking:
///
/// - A receiver sleeps often. Its sign is a bit of the tail, and the sender publishes by an
///   exchange, which takes the sign down, shows that it was up, and is the barrier.
/// - A receiving *thread* that seldom sleeps has its sign in its gate instead, and asks the sender
///   to publish by a plain store ([`PLAIN`]). When it does sleep, it executes a barrier on all
///   cores ([`crate::barrier`]). It never changes back: the sender may be between two instructions
///   for any time.
/// - A sender sleeps only when the ring is full, and a task first yields once, after which there
///   mostly is room. So the sender always executes the barrier, and the receiver publishes the head
///   by a plain store. Without a barrier on all cores the receiver exchanges too.
#[repr(C, align(64))]
pub(crate) struct Ring {
    receiver: Gate,
    sender: Gate,
    /// How many sides have gone.
    gone: AtomicU32,
    taken_at_close: AtomicU32,
    /// Another ring of the same session, in the other direction.
    partner: Cell<Option<NonNull<Self>>>,
    layout: Layout,
    tail: Published,
    head: Published,
    sending: Own,
    receiving: Own,
    /// The model checker is shown each use of a slot here, the slots themselves being raw memory.
    #[cfg(loom)]
    watch: Vec<crate::sync::UnsafeCell<()>>,
}

const _: () = assert!(size_of::<Own>() == 64, "one line");

impl Own {
    /// This side's thread waits: how long before it looks.
    fn head_start(&self) -> u32 {
        let index = self.index.load(Ordering::Relaxed);
        let came = index.wrapping_sub(self.waited_at.replace(index)) / STEP;
        self.coalesce.head_start(came)
    }
}

impl Ring {
    /// A ring for a stream of this capacity.
    pub(crate) fn of_capacity(capacity: u32, message: Layout) -> NonNull<Self> {
        assert!(
            (1..=CAPACITY_MAX).contains(&capacity),
            "a channel holds between 1 and {CAPACITY_MAX} messages, not {capacity}"
        );
        Self::allocate(capacity, message)
    }

    /// A ring for `slots` messages, rounded up to a power of two.
    pub(crate) fn allocate(slots: u32, message: Layout) -> NonNull<Self> {
        assert!(
            (1..=SLOTS_MAX).contains(&slots),
            "a protocol's loops and what surrounds them are no more than {SLOTS_MAX} messages"
        );
        let slots = slots.next_power_of_two();
        let message = message.pad_to_align();
        let (layout, offset) = Layout::from_size_align(
            message
                .size()
                .checked_mul(slots as usize)
                .expect("a channel's memory is counted in a usize"),
            message.align(),
        )
        .and_then(|slots| Layout::new::<Self>().extend(slots))
        .expect("a channel's memory is counted in an isize");
        // SAFETY: a ring has a size.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the slots lie within the block.
        let first = unsafe { at.as_ptr().add(offset) };
        let own = || Own {
            index: UnwatchedU32::new(0),
            seen: UnwatchedU32::new(0),
            slept_at: Cell::new(0),
            waited_at: Cell::new(0),
            coalesce: Coalesce::default(),
            gave_way: Cell::new(false),
            mask: slots - 1,
            stride: u32::try_from(message.size()).expect("a message is smaller than 4 GiB"),
            slots: first,
        };
        let ring = Self {
            receiver: Gate::new(),
            sender: Gate::new(),
            gone: AtomicU32::new(0),
            taken_at_close: AtomicU32::new(0),
            partner: Cell::new(None),
            layout,
            tail: Published(AtomicU32::new(0)),
            head: Published(AtomicU32::new(0)),
            sending: own(),
            receiving: own(),
            #[cfg(loom)]
            watch: (0..slots)
                .map(|_| crate::sync::UnsafeCell::new(()))
                .collect(),
        };
        if barrier::is_here() {
            ring.sender.flags.store(PLAIN, Ordering::Relaxed);
        }
        let at = at.cast::<Self>();
        // SAFETY: the block was allocated for it.
        unsafe { at.write(ring) };
        at
    }
}

/// The slot of an index. `stride` is the distance of two slots in bytes.
#[inline]
fn slot(ring: &Ring, own: &Own, index: u32, stride: usize) -> *mut u8 {
    let at = (index / STEP) & own.mask;
    #[cfg(loom)]
    ring.watch[at as usize].with_mut(|_| ());
    let _ = ring;
    // SAFETY: the mask keeps it among the slots.
    unsafe { own.slots.add(at as usize * stride) }
}

/// The sender's hold on a ring. Copied freely inside this crate; the endpoint that holds it calls
/// [`leave`](Self::leave) exactly once and nothing after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending(NonNull<Ring>);

/// The receiver's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving(NonNull<Ring>);

impl Sending {
    /// # Safety
    /// This is the ring's one sender, and it has not left.
    #[inline]
    pub(crate) unsafe fn at(ring: NonNull<Ring>) -> Self {
        Self(ring)
    }

    #[inline]
    fn ring(&self) -> &Ring {
        // SAFETY: the ring lives as long as this side has not left.
        unsafe { self.0.as_ref() }
    }

    /// Bytes from slot to slot.
    #[inline]
    pub(crate) fn stride(self) -> usize {
        self.ring().sending.stride as usize
    }

    pub(crate) fn set_partner(self, partner: NonNull<Ring>) {
        self.ring().partner.set(Some(partner));
    }

    #[inline]
    fn on_their_way(self) -> u32 {
        let own = &self.ring().sending;
        let tail = own.index.load(Ordering::Relaxed);
        tail.wrapping_sub(own.seen.load(Ordering::Relaxed)) / STEP
    }

    fn refresh(self) {
        let ring = self.ring();
        let head = ring.head.0.load(Ordering::SeqCst);
        ring.sending.seen.store(head, Ordering::Relaxed);
    }

    /// Messages sent and not taken, as far as this side knows without disturbing the other.
    pub(crate) fn len(self) -> u32 {
        self.refresh();
        self.on_their_way()
    }

    /// Whether fewer than `limit` messages are on their way, or the other side has closed.
    #[inline]
    pub(crate) fn look(self, limit: u32) -> Option<Result<(), Why>> {
        if self.on_their_way() < limit {
            return Some(Ok(()));
        }
        let flags = self.ring().receiver.flags.load(Ordering::Acquire);
        if flags & CLOSED != 0 {
            return Some(Err(why(flags)));
        }
        self.refresh();
        (self.on_their_way() < limit).then_some(Ok(()))
    }

    /// Like [`look`](Self::look), and has the task woken when there is room. A task that finds none
    /// first gives way to others, which is cheaper than to sleep.
    #[inline]
    pub(crate) fn poll(self, limit: u32, context: &Context<'_>) -> Poll<Result<(), Why>> {
        match self.look(limit) {
            Some(found) => Poll::Ready(found),
            None => self.poll_full(limit, context),
        }
    }

    #[cold]
    fn poll_full(self, limit: u32, context: &Context<'_>) -> Poll<Result<(), Why>> {
        let own = &self.ring().sending;
        if !own.gave_way.replace(true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_at_once(limit, context)
    }

    /// Like [`poll`](Self::poll), but sleeps without giving way.
    pub(crate) fn poll_at_once(self, limit: u32, context: &Context<'_>) -> Poll<Result<(), Why>> {
        let gate = &self.ring().sender;
        if let Some(found) = self.look(limit) {
            gate.get_up();
            return Poll::Ready(found);
        }
        if gate.lie_down(context).is_pending() {
            return Poll::Pending;
        }
        match self.look(limit) {
            Some(found) => {
                gate.get_up();
                Poll::Ready(found)
            }
            None => Poll::Pending,
        }
    }

    /// The thread waits for room.
    #[cold]
    pub(crate) fn wait(self, limit: u32, wait: Wait) {
        park::wait(
            &self.ring().sender.patience,
            self.ring().sending.head_start(),
            None,
            || self.look(limit),
            |context| {
                wait_graph::on_thread(context, None, |context| {
                    wait_graph::noted(self.poll_at_once(limit, context), context, || wait)
                })
            },
        );
    }

    /// A wait for room, of a channel that is this ring and no more.
    pub(crate) fn awaited(self, limit: u32, at: &'static At) -> Wait {
        Wait {
            end: self.end(),
            at,
            what: What::Room(self, limit),
        }
    }

    pub(crate) fn end(self) -> End {
        End::new(self.0, 0)
    }

    /// What [`look`](Self::look) would find, for those who must not change what it keeps.
    pub(crate) fn has_room(self, limit: u32) -> bool {
        let ring = self.ring();
        let tail = ring.tail.0.load(Ordering::SeqCst) & !SIGN;
        let head = ring.head.0.load(Ordering::SeqCst);
        tail.wrapping_sub(head) / STEP < limit
            || ring.receiver.flags.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Sends a message, or gives it back if the receiver has closed.
    ///
    /// # Safety
    /// There is a free slot: fewer messages than slots are on their way. The receiver will take a
    /// `W`, and `stride` is the ring's.
    #[allow(
        clippy::inline_always,
        reason = "a result that goes through memory costs more than the rest"
    )]
    #[inline(always)]
    pub(crate) unsafe fn push<W>(self, wire: W, stride: usize) -> Result<(), (W, Why)> {
        let ring = self.ring();
        let own = &ring.sending;
        let index = own.index.load(Ordering::Relaxed);
        debug_assert!(self.len() <= own.mask, "there is a free slot");
        let at = slot(ring, own, index, stride).cast::<W>();
        // SAFETY: the slot is the sender's, and large enough for every message of the session.
        unsafe { at.write(wire) };
        let next = index.wrapping_add(STEP);
        own.gave_way.set(false);
        own.index.store(next, Ordering::Relaxed);
        // Acquired, so that a plain store comes behind the receiver's last touch of the tail.
        let before = if ring.receiver.flags.load(Ordering::Acquire) & PLAIN == 0 {
            let before = ring.tail.0.swap(next, Ordering::SeqCst);
            exchanged();
            before
        } else {
            ring.tail.0.store(next, Ordering::Release);
            barrier::here();
            0
        };
        let flags = ring.receiver.flags.load(Ordering::SeqCst);
        if before & SIGN != 0 || flags & (WAITING | CLOSED) != 0 {
            if before & SIGN != 0 {
                ring.receiver.ring();
            }
            // SAFETY: what was just written.
            return unsafe { self.receiver_sleeps_or_left(index, at) };
        }
        Ok(())
    }

    /// # Safety
    /// `at` is the slot of `index`, just published.
    #[cold]
    unsafe fn receiver_sleeps_or_left<W>(self, index: u32, at: *mut W) -> Result<(), (W, Why)> {
        let ring = self.ring();
        let mut flags = ring.receiver.flags.load(Ordering::SeqCst);
        if flags & CLOSED == 0 {
            if flags & WAITING != 0 {
                ring.receiver.wake();
            }
            return Ok(());
        }
        // Between closing and saying how far it drops there are a few instructions.
        while flags & DRAINS == 0 {
            relax();
            flags = ring.receiver.flags.load(Ordering::Acquire);
        }
        let taken = ring.taken_at_close.load(Ordering::Relaxed);
        if taken.wrapping_sub(index).cast_signed() > 0 {
            return Ok(()); // it came in time, to be dropped by the receiver
        }
        ring.sending.index.store(index, Ordering::Relaxed);
        ring.tail.0.store(index, Ordering::Relaxed);
        // SAFETY: the receiver leaves it alone.
        Err((unsafe { at.read() }, why(flags)))
    }

    /// Whether the receiver has closed, and why.
    #[inline]
    pub(crate) fn closed(self) -> Option<Why> {
        let flags = self.ring().receiver.flags.load(Ordering::Acquire);
        (flags & CLOSED != 0).then(|| why(flags))
    }

    /// # Safety
    /// Nothing is done with this side afterwards.
    pub(crate) unsafe fn leave(self, why: Why) {
        let ring = self.ring();
        ring.sender.flags.fetch_or(end(why), Ordering::SeqCst);
        if ring.tail.0.fetch_and(!SIGN, Ordering::SeqCst) & SIGN != 0 {
            ring.receiver.ring();
        }
        ring.receiver.wake();
        // SAFETY: passed on.
        unsafe { go(self.0) };
    }
}

struct GoneAtEnd(NonNull<Ring>);

impl Drop for GoneAtEnd {
    fn drop(&mut self) {
        // SAFETY: made by the side that leaves, as the last thing it does.
        unsafe { go(self.0) };
    }
}

fn why(flags: u32) -> Why {
    if flags & PANICKED != 0 {
        Why::Panicked
    } else if flags & FINISHED != 0 {
        Why::Finished
    } else {
        Why::Dropped
    }
}

const fn end(why: Why) -> u32 {
    match why {
        Why::Dropped | Why::TimedOut => CLOSED,
        Why::Panicked => CLOSED | PANICKED,
        Why::Finished => CLOSED | FINISHED,
    }
}

/// # Safety
/// Called once by each side, as the last thing it does.
unsafe fn go(at: NonNull<Ring>) {
    // SAFETY: this side has not gone yet.
    let ring = unsafe { at.as_ref() };
    if ring.gone.fetch_add(1, Ordering::AcqRel) == 0 {
        return;
    }
    let layout = ring.layout;
    // SAFETY: both have gone; every message was taken, discarded or given back.
    unsafe {
        at.drop_in_place();
        dealloc(at.as_ptr().cast(), layout);
    }
}
