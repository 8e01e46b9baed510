//! What a pipe holds on the heap while nothing is in it.
//!
//! Each pipe has room for one `u64` and has carried one message, so that what a peer allocates only
//! then is counted as well. A channel for one message has carried none. Stacks, and what is inside
//! the endpoints themselves, are not counted.

use super::{Measured, Program, tasks::TaskChannel, threads::ThreadChannel, whispers::Whisper};
use crate::{
    counting,
    rows::{Size, Work},
};
use std::time::Duration;
use tokio::runtime;

pub(crate) fn of_tasks<P: TaskChannel>() -> [Program; 1] {
    [(Work::IdlePipe, |size| {
        let runtime = runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime without drivers needs only memory");
        held(size, || {
            let (mut sender, mut receiver) = P::open(1);
            let received = runtime.block_on(async {
                P::send(&mut sender, 7).await;
                P::receive(&mut receiver).await
            });
            received.map(|_| (sender, receiver))
        })
    })]
}

pub(crate) fn of_threads<P: ThreadChannel>() -> [Program; 1] {
    [(Work::IdlePipe, |size| {
        held(size, || {
            let (mut sender, mut receiver) = P::open(1);
            P::send(&mut sender, 7);
            P::receive(&mut receiver).map(|_| (sender, receiver))
        })
    })]
}

pub(crate) fn of_whispers<P: Whisper>() -> [Program; 1] {
    [(Work::IdlePipe, |size| held(size, || Some(P::open())))]
}

/// Holds so many pipes at once. A pipe counts as a message if what went in came out.
pub(crate) fn held<T>(size: Size, mut open: impl FnMut() -> Option<T>) -> Measured {
    // What a peer or the runtime allocates once is not a pipe's.
    drop(open());
    let count = usize::try_from(size.parties).unwrap_or(usize::MAX);
    let mut pipes = Vec::with_capacity(count);
    counting::begin();
    pipes.extend((0..count).map_while(|_| open()));
    let bytes = counting::end();
    let held = u64::try_from(pipes.len()).unwrap_or(u64::MAX);
    Measured {
        bytes: Some(bytes),
        ..Measured::new(held * size.rounds, Duration::ZERO)
    }
}
