//! flume: one channel for tasks and threads.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
    threads::{self, ThreadChannel},
};

pub(super) fn peer() -> Peer {
    Peer::new("flume", Some("flume"), "`bounded`")
        .with(tasks::programs::<Both>())
        .with(tasks::gathering::<Both>())
        .with(threads::between_two::<Both>())
        .with(threads::in_a_ring::<Both>())
        .with(threads::gathering::<Both>())
        .with(idle::of_tasks::<Both>())
}

struct Both;

impl TaskChannel for Both {
    type Sender = flume::Sender<u64>;
    type Receiver = flume::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        flume::bounded(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send_async(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv_async().await.ok()
    }
}

impl ThreadChannel for Both {
    type Sender = flume::Sender<u64>;
    type Receiver = flume::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        flume::bounded(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}
