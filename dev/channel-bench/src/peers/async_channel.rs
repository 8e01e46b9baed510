//! async-channel: many to many between tasks, chosen by many for being safe to cancel.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
};

pub(super) fn peer() -> Peer {
    Peer::new("async-channel", Some("async-channel"), "`bounded`")
        .with(tasks::programs::<Tasks>())
        .with(tasks::gathering::<Tasks>())
        .with(idle::of_tasks::<Tasks>())
}

struct Tasks;

impl TaskChannel for Tasks {
    type Sender = async_channel::Sender<u64>;
    type Receiver = async_channel::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        async_channel::bounded(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}
