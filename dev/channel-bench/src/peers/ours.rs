//! Ours: a session where two take turns, a stream where one sends, a shared sender where many do.

use super::{OURS, Peer};
use crate::{
    rows::{Size, Work},
    work::{
        Measured, idle,
        tasks::{self, TaskChannel, TaskGather, joined, timed},
        threads::{self, ThreadChannel, ThreadGather},
        whispers::{self, Whisper},
    },
};
use session_channels::{oneshot, proto, shared, stream};

proto! {
    /// Question and answer, as often as the client likes.
    pub(super) ping {
        ask: send { Ask(u64) -> answer, Bye -> ! }
        answer: recv { Answer(u64) -> ask }
    }
}

pub(super) fn peer() -> Peer {
    let note = "a session for ping-pong and the idle pipe, `stream`, `oneshot`; `shared`, whose room \
                is divided among the senders, at least 16 each";
    // Of two programs for the same row the first is taken.
    Peer::new(OURS, Some("session-channels"), note)
        .with([
            (Work::TaskPingPong, task_ping_pong as fn(Size) -> Measured),
            (Work::ThreadPingPong, thread_ping_pong),
            (Work::IdlePipe, idle_session),
        ])
        .with(tasks::programs::<Stream>())
        .with(tasks::gathering::<Shared>())
        .with(threads::between_two::<Stream>())
        .with(threads::in_a_ring::<Stream>())
        .with(threads::gathering::<Shared>())
        .with(whispers::programs::<Single>())
}

fn task_ping_pong(size: Size) -> Measured {
    timed(size.workers, async move {
        let (mut client, mut server) = ping::init();
        let echo = tokio::spawn(async move {
            while let Ok(ping::Ask::Ask(value, answer)) = server.recv().await {
                server = answer.answer(value + 1);
            }
        });
        let mut messages = 0;
        for value in 0..size.rounds {
            let Ok(ping::Answer::Answer(answer, next)) = client.ask(value).recv().await else {
                return messages;
            };
            messages += u64::from(answer == value + 1);
            client = next;
        }
        client.bye();
        joined(echo).await;
        messages
    })
}

fn thread_ping_pong(size: Size) -> Measured {
    threads::timed(|| {
        let (mut client, mut server) = ping::init();
        let echo = threads::spawned(move || {
            while let Ok(ping::Ask::Ask(value, answer)) = server.recv_blocking() {
                server = answer.answer(value + 1);
            }
            0
        });
        let mut messages = 0;
        for value in 0..size.rounds {
            let Ok(ping::Answer::Answer(answer, next)) = client.ask(value).recv_blocking() else {
                return messages;
            };
            messages += u64::from(answer == value + 1);
            client = next;
        }
        client.bye();
        messages + threads::all_joined([echo])
    })
}

fn idle_session(size: Size) -> Measured {
    idle::held(size, || {
        let (client, server) = ping::init();
        let waiting = client.ask(7);
        let Ok(ping::Ask::Ask(value, answer)) = server.recv_blocking() else {
            return None;
        };
        let server = answer.answer(value);
        let Ok(ping::Answer::Answer(_, client)) = waiting.recv_blocking() else {
            return None;
        };
        Some((client, server))
    })
}

fn room(capacity: usize) -> u32 {
    u32::try_from(capacity).unwrap_or(u32::MAX)
}

struct Stream;

impl TaskChannel for Stream {
    type Sender = stream::Sender<u64>;
    type Receiver = stream::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        stream(room(capacity))
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

impl ThreadChannel for Stream {
    type Sender = stream::Sender<u64>;
    type Receiver = stream::Receiver<u64>;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver) {
        stream(room(capacity))
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send_blocking(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv_blocking().ok()
    }
}

/// Each sender has its own ring, so the room that others have together is divided.
struct Shared;

impl Shared {
    fn open(senders: u64, capacity: usize) -> (Vec<shared::Sender<u64>>, shared::Receiver<u64>) {
        const EACH_AT_LEAST: u64 = 16;
        let each = (u64::from(room(capacity)) / senders).max(EACH_AT_LEAST);
        let (first, receiver) = shared(u32::try_from(each).unwrap_or(u32::MAX));
        let mut all: Vec<_> = (1..senders).map(|_| first.clone()).collect();
        all.push(first);
        (all, receiver)
    }
}

impl TaskGather for Shared {
    type Sender = shared::Sender<u64>;
    type Receiver = shared::Receiver<u64>;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver) {
        Self::open(senders, capacity)
    }

    async fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send(value).await;
    }

    async fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv().await.ok()
    }
}

impl ThreadGather for Shared {
    type Sender = shared::Sender<u64>;
    type Receiver = shared::Receiver<u64>;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver) {
        Self::open(senders, capacity)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        let _ = sender.send_blocking(value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        receiver.recv_blocking().ok()
    }
}

struct Single;

impl Whisper for Single {
    type Sender = oneshot::Sender<u64>;
    type Receiver = oneshot::Receiver<u64>;

    fn open() -> (Self::Sender, Self::Receiver) {
        oneshot()
    }

    fn send(sender: Self::Sender, value: u64) {
        let _ = sender.send(value);
    }

    async fn receive(receiver: Self::Receiver) -> Option<u64> {
        receiver.await.ok()
    }
}
