//! kanal: the fastest of the general channels.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
    threads::{self, ThreadChannel},
    whispers::{self, Whisper},
};

pub(super) fn peer() -> Peer {
    Peer::new("kanal", Some("kanal"), "`bounded_async`, `bounded`")
        .with(tasks::programs::<Tasks>())
        .with(tasks::gathering::<Tasks>())
        .with(threads::between_two::<Threads>())
        .with(threads::in_a_ring::<Threads>())
        .with(threads::gathering::<Threads>())
        .with(whispers::programs::<Single>())
        .with(idle::of_tasks::<Tasks>())
}

struct Tasks;

impl TaskChannel for Tasks {
    type Sender = kanal::AsyncSender<u64>;
    type Receiver = kanal::AsyncReceiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        kanal::bounded_async(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

struct Threads;

impl ThreadChannel for Threads {
    type Sender = kanal::Sender<u64>;
    type Receiver = kanal::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        kanal::bounded(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}

/// It has no channel for one message; one with room for one does.
struct Single;

impl Whisper for Single {
    type Sender = kanal::AsyncSender<u64>;
    type Receiver = kanal::AsyncReceiver<u64>;

    fn open() -> (Self::Sender, Self::Receiver) {
        kanal::bounded_async(1)
    }

    fn send(sender: Self::Sender, value: u64) {
        let _ = sender.try_send(value);
    }

    async fn receive(receiver: Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}
