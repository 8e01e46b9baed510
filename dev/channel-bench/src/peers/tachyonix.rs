//! tachyonix: many senders to one task, nothing for threads.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
};

pub(super) fn peer() -> Peer {
    Peer::new("tachyonix", Some("tachyonix"), "`channel`")
        .with(tasks::programs::<Tasks>())
        .with(tasks::gathering::<Tasks>())
        .with(idle::of_tasks::<Tasks>())
}

struct Tasks;

impl TaskChannel for Tasks {
    type Sender = tachyonix::Sender<u64>;
    type Receiver = tachyonix::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        tachyonix::channel(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}
