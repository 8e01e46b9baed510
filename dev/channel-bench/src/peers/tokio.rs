//! tokio's own: `mpsc`, and `oneshot` where one message is all.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
    whispers::{self, Whisper},
};
use tokio::sync::{mpsc, oneshot};

pub(super) fn peer() -> Peer {
    Peer::new("tokio", Some("tokio"), "`sync::mpsc`, `sync::oneshot`")
        .with(tasks::programs::<Tasks>())
        .with(tasks::gathering::<Tasks>())
        .with(whispers::programs::<Single>())
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

struct Single;

impl Whisper for Single {
    type Sender = oneshot::Sender<u64>;
    type Receiver = oneshot::Receiver<u64>;

    fn open() -> (Self::Sender, Self::Receiver) {
        oneshot::channel()
    }

    fn send(sender: Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    async fn receive(receiver: Self::Receiver) -> Option<u64> {
        receiver.await.ok()
    }
}
