//! crossfire: a flavour for each number of senders; `spsc` where one sends, `mpsc` where many do.

use super::Peer;
use crate::work::{
    idle,
    tasks::{self, TaskChannel},
    threads::{self, ThreadChannel},
    whispers::{self, Whisper},
};
use crossfire::{
    AsyncRx, AsyncTx, MAsyncTx, MTx, Rx, Tx, mpsc,
    oneshot::{self, RxOneshot, TxOneshot},
    spsc,
};

pub(super) fn peer() -> Peer {
    Peer::new(
        "crossfire",
        Some("crossfire"),
        "`spsc` between two, `mpsc` where many send, `oneshot`",
    )
    .with(tasks::programs::<Tasks>())
    .with(tasks::gathering::<ManyTasks>())
    .with(threads::between_two::<Threads>())
    .with(threads::in_a_ring::<Threads>())
    .with(threads::gathering::<ManyThreads>())
    .with(whispers::programs::<Single>())
    .with(idle::of_tasks::<Tasks>())
}

struct Tasks;

impl TaskChannel for Tasks {
    type Sender = AsyncTx<spsc::Array<u64>>;
    type Receiver = AsyncRx<spsc::Array<u64>>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        spsc::bounded_async(capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

struct ManyTasks;

impl TaskChannel for ManyTasks {
    type Sender = MAsyncTx<mpsc::Array<u64>>;
    type Receiver = AsyncRx<mpsc::Array<u64>>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::bounded_async(capacity)
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
    type Sender = Tx<spsc::Array<u64>>;
    type Receiver = Rx<spsc::Array<u64>>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        spsc::bounded_blocking(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}

struct ManyThreads;

impl ThreadChannel for ManyThreads {
    type Sender = MTx<mpsc::Array<u64>>;
    type Receiver = Rx<mpsc::Array<u64>>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::bounded_blocking(capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().ok()
    }
}

struct Single;

impl Whisper for Single {
    type Sender = TxOneshot<u64>;
    type Receiver = RxOneshot<u64>;

    fn open() -> (Self::Sender, Self::Receiver) {
        oneshot::oneshot()
    }

    fn send(sender: Self::Sender, value: u64) {
        sender.send(value);
    }

    async fn receive(receiver: Self::Receiver) -> Option<u64> {
        receiver.recv_async().await.ok()
    }
}
