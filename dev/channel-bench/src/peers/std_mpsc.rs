//! The standard library's `mpsc`.

use super::Peer;
use crate::work::{
    idle,
    threads::{self, ThreadChannel},
};
use std::sync::mpsc;

pub(super) fn peer() -> Peer {
    Peer::new("std", None, "`sync::mpsc::sync_channel`")
        .with(threads::between_two::<Threads>())
        .with(threads::in_a_ring::<Threads>())
        .with(threads::gathering::<Threads>())
        .with(idle::of_threads::<Threads>())
}

struct Threads;

impl ThreadChannel for Threads {
    type Sender = mpsc::SyncSender<u64>;
    type Receiver = mpsc::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::sync_channel(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}
