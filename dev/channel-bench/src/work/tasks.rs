//! Programs of tasks on tokio's runtime.

use super::{Measured, Program};
use crate::rows::{Size, Work};
use std::time::Instant;
use tokio::{runtime, task::JoinHandle};

/// Room of a channel between two neighbours in a ring.
const RING_CAPACITY: usize = 16;
/// Room where one side does nothing but send.
const STREAM_CAPACITY: usize = 1_024;

/// A bounded channel between two tasks.
pub(crate) trait TaskChannel: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver);

    /// Waits for room. What is sent to nobody is dropped.
    fn send(sender: &mut Self::Sender, value: u64) -> impl Future<Output = ()> + Send;

    /// `None` once the sender is gone and nothing is left.
    fn receive(receiver: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

/// Many tasks that send to one, with so much room together or each, as the peer has it.
pub(crate) trait TaskGather: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver);
    fn send(sender: &mut Self::Sender, value: u64) -> impl Future<Output = ()> + Send;
    fn receive(receiver: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send;
}

impl<P: TaskChannel> TaskGather for P
where
    P::Sender: Clone,
{
    type Sender = P::Sender;
    type Receiver = P::Receiver;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver) {
        let (sender, receiver) = P::open(capacity);
        ((0..senders).map(|_| sender.clone()).collect(), receiver)
    }

    fn send(sender: &mut Self::Sender, value: u64) -> impl Future<Output = ()> + Send {
        P::send(sender, value)
    }

    fn receive(receiver: &mut Self::Receiver) -> impl Future<Output = Option<u64>> + Send {
        P::receive(receiver)
    }
}

/// The programs that need one sender to a channel.
pub(crate) fn programs<P: TaskChannel>() -> [Program; 4] {
    [
        (Work::TaskPingPong, ping_pong::<P>),
        (Work::TaskRing, ring::<P>),
        (Work::TokenRing, token_ring::<P>),
        (Work::TaskStream, stream::<P>),
    ]
}

pub(crate) fn gathering<P: TaskGather>() -> [Program; 1] {
    [(Work::TaskGather, gather::<P>)]
}

/// Times what runs as a task, so that with several workers the runtime's own threads do the work.
pub(crate) fn timed<F>(workers: usize, program: F) -> Measured
where
    F: Future<Output = u64> + Send + 'static,
{
    let runtime = match workers {
        1 => runtime::Builder::new_current_thread().build(),
        _ => runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .build(),
    };
    let runtime = runtime.expect("a runtime without drivers needs only memory and threads");
    runtime.block_on(async {
        let task = tokio::spawn(async {
            let begin = Instant::now();
            let messages = program.await;
            Measured::new(messages, begin.elapsed())
        });
        joined(task).await
    })
}

/// What the task returned; its panic goes on here.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

pub(crate) async fn all_joined(tasks: Vec<JoinHandle<u64>>) -> u64 {
    let mut sum = 0;
    for task in tasks {
        sum += joined(task).await;
    }
    sum
}

fn ping_pong<P: TaskChannel>(size: Size) -> Measured {
    timed(size.workers, async move {
        let (mut ask, mut asked) = P::open(1);
        let (mut answer, mut answered) = P::open(1);
        let echo = tokio::spawn(async move {
            while let Some(value) = P::receive(&mut asked).await {
                P::send(&mut answer, value + 1).await;
            }
        });
        let mut messages = 0;
        for value in 0..size.rounds {
            P::send(&mut ask, value).await;
            messages += u64::from(P::receive(&mut answered).await == Some(value + 1));
        }
        drop(ask);
        joined(echo).await;
        messages
    })
}

fn ring<P: TaskChannel>(size: Size) -> Measured {
    timed(size.workers, async move {
        let neighbours = circle(size.parties, || P::open(RING_CAPACITY));
        let tasks = neighbours.map(|(mut sender, mut receiver)| {
            tokio::spawn(async move {
                let mut messages = 0;
                for value in 0..size.rounds {
                    P::send(&mut sender, value).await;
                    messages += u64::from(P::receive(&mut receiver).await == Some(value));
                }
                messages
            })
        });
        all_joined(tasks.collect()).await
    })
}

fn token_ring<P: TaskChannel>(size: Size) -> Measured {
    timed(size.workers, async move {
        let mut neighbours: Vec<_> = circle(size.parties, || P::open(1)).collect();
        // Whoever receives 1 stops; then each finds its neighbour gone.
        if let Some((sender, _)) = neighbours.first_mut() {
            P::send(sender, size.messages()).await;
        }
        let tasks = neighbours.into_iter().map(|(mut sender, mut receiver)| {
            tokio::spawn(async move {
                let mut messages = 0;
                while let Some(value) = P::receive(&mut receiver).await {
                    messages += 1;
                    if value == 1 {
                        break;
                    }
                    P::send(&mut sender, value - 1).await;
                }
                messages
            })
        });
        all_joined(tasks.collect()).await
    })
}

fn gather<P: TaskGather>(size: Size) -> Measured {
    const AMOUNT: u64 = 100;
    timed(size.workers, async move {
        let (senders, mut receiver) = P::open(size.parties, STREAM_CAPACITY);
        let tasks = senders.into_iter().map(|mut sender| {
            tokio::spawn(async move {
                for _ in 0..size.rounds {
                    P::send(&mut sender, AMOUNT).await;
                }
                0
            })
        });
        let tasks = tasks.collect();
        let mut sum = 0;
        while let Some(amount) = P::receive(&mut receiver).await {
            sum += amount;
        }
        all_joined(tasks).await;
        sum / AMOUNT
    })
}

fn stream<P: TaskChannel>(size: Size) -> Measured {
    timed(size.workers, async move {
        let (mut sender, mut receiver) = P::open(STREAM_CAPACITY);
        let source = tokio::spawn(async move {
            for value in 0..size.rounds {
                P::send(&mut sender, value).await;
            }
        });
        let mut messages = 0;
        while let Some(value) = P::receive(&mut receiver).await {
            messages += u64::from(value == messages);
        }
        joined(source).await;
        messages
    })
}

/// For each party the sender to its right and the receiver from its left.
pub(super) fn circle<S, R>(
    parties: u64,
    mut open: impl FnMut() -> (S, R),
) -> impl Iterator<Item = (S, R)> {
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..parties).map(|_| open()).unzip();
    receivers.rotate_right(1);
    senders.into_iter().zip(receivers)
}
