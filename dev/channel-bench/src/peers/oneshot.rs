//! oneshot: one message, from anywhere to a task.

use super::Peer;
use crate::work::{
    idle,
    whispers::{self, Whisper},
};

pub(super) fn peer() -> Peer {
    Peer::new("oneshot", Some("oneshot"), "`async_channel`")
        .with(whispers::programs::<Single>())
        .with(idle::of_whispers::<Single>())
}

struct Single;

impl Whisper for Single {
    type Sender = oneshot::Sender<u64>;
    type Receiver = oneshot::AsyncReceiver<u64>;

    fn open() -> (Self::Sender, Self::Receiver) {
        oneshot::async_channel()
    }

    fn send(sender: Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    async fn receive(receiver: Self::Receiver) -> Option<u64> {
        receiver.await.ok()
    }
}
