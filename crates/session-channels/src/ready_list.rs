//! A list of members that have something to be looked at: their wakers put them in, one reader
//! takes them out.
//!
//! Invariants:
//! - A member is in the list at most once: whoever turns its `queued` on puts it in, and only the
//!   reader, taking it out, turns it off. A member that was discharged keeps it on for ever.
//! - The list owns no reference. The reader holds each member until it is discharged and not in the
//!   list.
//!
//! Costs: one exchange for a waker whose member is in the list already, three when it is not and
//! the reader is awake; nothing for the reader but an exchange for all that has gathered.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::gate::{Gate, WAITING};
use crate::sync::{AtomicBool, AtomicPtr, Ordering, UnsafeCell, exchanged};
use crate::wait_graph::End;

/// One of those who are waited for.
pub(crate) struct Member {
    list: Arc<Gathering>,
    /// The reader's number for it.
    key: u32,
    queued: AtomicBool,
    /// The one behind it, while it is in the list.
    next: UnsafeCell<Option<NonNull<Self>>>,
}

// SAFETY: `next` belongs to whoever turned `queued` on until the member is in the list, then to the
// reader.
unsafe impl Send for Member {}
// SAFETY: as above.
unsafe impl Sync for Member {}

/// What came since the reader last looked, newest first.
struct Gathering {
    newest: AtomicPtr<Member>,
    reader: Gate,
}

// SAFETY: the gate is made for two sides, and the pointer is read by the reader alone.
unsafe impl Send for Gathering {}
// SAFETY: as above.
unsafe impl Sync for Gathering {}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let list = &*self.list;
        let me = Arc::as_ptr(self).cast_mut();
        let mut newest = list.newest.load(Ordering::Relaxed);
        loop {
            self.next.with_mut(|next| {
                // SAFETY: this thread turned `queued` on, and the member is not in the list yet.
                unsafe { *next = NonNull::new(newest) };
            });
            match list
                .newest
                .compare_exchange_weak(newest, me, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => newest = now,
            }
        }
        exchanged();
        if list.reader.flags.load(Ordering::SeqCst) & WAITING != 0 {
            list.reader.wake_as_one_of_many();
        }
    }
}

/// The reader's side.
pub(crate) struct ReadyList {
    gathering: Arc<Gathering>,
    /// What was taken from there, oldest first: the first and the last.
    taken: Option<(NonNull<Member>, NonNull<Member>)>,
}

// SAFETY: members are shared, see there.
unsafe impl Send for ReadyList {}
// SAFETY: shared, it is not used: a set is waited for by its one owner.
unsafe impl Sync for ReadyList {}

impl ReadyList {
    pub(crate) fn new() -> Self {
        Self {
            gathering: Arc::new(Gathering {
                newest: AtomicPtr::new(ptr::null_mut()),
                reader: Gate::new(),
            }),
            taken: None,
        }
    }

    /// A member, put into the list at once.
    pub(crate) fn enlist(&mut self, key: u32) -> Arc<Member> {
        let member = Arc::new(Member {
            list: Arc::clone(&self.gathering),
            key,
            queued: AtomicBool::new(true),
            next: UnsafeCell::new(None),
        });
        self.append(NonNull::from(&*member));
        member
    }

    /// Puts a member that [`next`](Self::next) gave behind all others. Answers nothing if its waker
    /// has done so already.
    pub(crate) fn again(&mut self, member: &Arc<Member>) {
        if !member.queued.swap(true, Ordering::AcqRel) {
            self.append(NonNull::from(&**member));
        }
    }

    fn append(&mut self, member: NonNull<Member>) {
        set_next(member, None);
        let first = match self.taken {
            None => member,
            Some((first, last)) => {
                set_next(last, Some(member));
                first
            }
        };
        self.taken = Some((first, member));
    }

    /// The key of the member that is longest in the list, which it leaves.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.taken.is_none() {
            self.take_all();
        }
        let (first, last) = self.taken?;
        // SAFETY: members in the list are alive.
        let member = unsafe { first.as_ref() };
        self.taken = if first == last {
            None
        } else {
            let next = member.next.with(|next| {
                // SAFETY: the reader's while it is in the list.
                unsafe { *next }
            });
            Some((next.expect("it is not the last"), last))
        };
        let key = member.key;
        // An exchange, so that the look that follows sees what came before a wake that was not
        // needed.
        member.queued.swap(false, Ordering::AcqRel);
        Some(key)
    }

    fn take_all(&mut self) {
        let gathering = &self.gathering;
        if gathering.newest.load(Ordering::Relaxed).is_null() {
            return;
        }
        let newest = gathering.newest.swap(ptr::null_mut(), Ordering::SeqCst);
        let Some(last) = NonNull::new(newest) else {
            return;
        };
        let (mut first, mut behind) = (last, None);
        loop {
            // SAFETY: members in the list are alive.
            let member = unsafe { first.as_ref() };
            let before = member.next.with(|next| {
                // SAFETY: the reader's while it is in the list.
                unsafe { *next }
            });
            set_next(first, behind);
            match before {
                None => break,
                Some(before) => {
                    behind = Some(first);
                    first = before;
                }
            }
        }
        self.taken = Some((first, last));
    }

    /// Keeps a member out of the list for ever. False if it is in it: then it is to be held, and
    /// discharged again when [`next`](Self::next) has given its key.
    pub(crate) fn discharge(member: &Arc<Member>) -> bool {
        !member.queued.swap(true, Ordering::AcqRel)
    }

    /// Ready if the list is not empty; else the reader will be woken.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        if self.taken.is_some() || self.has_gathered() {
            self.gathering.reader.get_up();
            return Poll::Ready(());
        }
        if self.gathering.reader.lie_down(context).is_pending() {
            return Poll::Pending;
        }
        if self.has_gathered() {
            self.gathering.reader.get_up();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn has_gathered(&self) -> bool {
        !self.gathering.newest.load(Ordering::SeqCst).is_null()
    }

    /// By what a wait for it is known.
    pub(crate) fn end(&self) -> End {
        End::new(NonNull::from(&*self.gathering), 0)
    }

    pub(crate) fn patience(&self) -> &crate::sync::AtomicU8 {
        &self.gathering.reader.patience
    }

    /// Whether [`next`](Self::next) would give one.
    pub(crate) fn look(&self) -> bool {
        self.taken.is_some() || self.has_gathered()
    }
}

fn set_next(member: NonNull<Member>, next: Option<NonNull<Member>>) {
    // SAFETY: members in the list are alive.
    let member = unsafe { member.as_ref() };
    member.next.with_mut(|slot| {
        // SAFETY: the reader's while it is in the list.
        unsafe { *slot = next };
    });
}

/// The waker that puts a member into its list.
pub(crate) fn waker(member: &Arc<Member>) -> Waker {
    Waker::from(Arc::clone(member))
}
