//! thingbuf: many senders to one, slots used again.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
    threads::{self, ThreadChannel},
};
use thingbuf::mpsc;

pub(super) fn peer() -> Peer {
    Peer::new("thingbuf", Some("thingbuf"), "`mpsc`, `mpsc::blocking`")
        .with(tasks::programs::<Tasks>())
        .with(tasks::gathering::<Tasks>())
        .with(threads::between_two::<Threads>())
        .with(threads::in_a_ring::<Threads>())
        .with(threads::gathering::<Threads>())
        .with(idle::of_tasks::<Tasks>())
}

struct Tasks;

impl TaskChannel for Tasks {
    type Sender = mpsc::Sender<u64>;
    type Receiver = mpsc::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::channel(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await
    }
}

struct Threads;

impl ThreadChannel for Threads {
    type Sender = mpsc::blocking::Sender<u64>;
    type Receiver = mpsc::blocking::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::blocking::channel(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv()
    }
}
