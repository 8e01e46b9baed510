//! A chain of tasks, each of which whispers on what it hears and adds one.
//!
//! The chain is built for every whisper, so a channel carries one message in its life: what is
//! measured is mostly making and forgetting tasks and channels.

use super::{Measured, Program, tasks::timed};
use crate::rows::{Size, Work};

/// A channel for one message.
pub(crate) trait Whisper: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn open() -> (Self::Sender, Self::Receiver);

    /// Never waits. What is sent to nobody is dropped.
    fn send(sender: Self::Sender, value: u64);

    /// `None` if the sender is gone and sent nothing.
    fn receive(receiver: Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

pub(crate) fn programs<P: Whisper>() -> [Program; 1] {
    [(Work::Whispers, chain::<P>)]
}

/// The size's parties are the channels; between them stands one task less.
fn chain<P: Whisper>(size: Size) -> Measured {
    timed(size.workers, async move {
        let mut messages = 0;
        for _ in 0..size.rounds {
            let (mut left, end) = P::open();
            for _ in 1..size.parties {
                let (right, heard) = P::open();
                tokio::spawn(async move {
                    if let Some(value) = P::receive(heard).await {
                        P::send(left, value + 1);
                    }
                });
                left = right;
            }
            P::send(left, 1);
            messages += P::receive(end).await.unwrap_or_default();
        }
        messages
    })
}
