//! crossbeam-channel: many to many between threads.

use super::Peer;
use crate::work::{
    idle,
    threads::{self, ThreadChannel},
};

pub(super) fn peer() -> Peer {
    Peer::new("crossbeam", Some("crossbeam-channel"), "`bounded`")
        .with(threads::between_two::<Threads>())
        .with(threads::in_a_ring::<Threads>())
        .with(threads::gathering::<Threads>())
        .with(idle::of_threads::<Threads>())
}

struct Threads;

impl ThreadChannel for Threads {
    type Sender = crossbeam_channel::Sender<u64>;
    type Receiver = crossbeam_channel::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        crossbeam_channel::bounded(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}
