//! Programs of threads that block, or spin where the peer can do no better.

use super::{Measured, Program, tasks::circle};
use crate::rows::{Size, Work};
use std::{
    thread::{self, JoinHandle},
    time::Instant,
};

/// Room of a channel between two neighbours in a ring.
const RING_CAPACITY: usize = 16;
/// Room where one side does nothing but send.
const STREAM_CAPACITY: usize = 1_024;
/// The programs have few locals.
const STACK_BYTES: usize = 128 << 10;

/// A bounded channel between two threads.
pub(crate) trait ThreadChannel: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn open(capacity: usize) -> (Self::Sender, Self::Receiver);

    /// Waits for room. What is sent to nobody is dropped.
    fn send(sender: &mut Self::Sender, value: u64);

    /// `None` once the sender is gone and nothing is left.
    fn receive(receiver: &mut Self::Receiver) -> Option<u64>;
}

/// Many threads that send to one, with so much room together or each, as the peer has it.
pub(crate) trait ThreadGather: 'static {
    type Sender: Send + 'static;
    type Receiver: Send + 'static;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver);
    fn send(sender: &mut Self::Sender, value: u64);
    fn receive(receiver: &mut Self::Receiver) -> Option<u64>;
}

impl<P: ThreadChannel> ThreadGather for P
where
    P::Sender: Clone,
{
    type Sender = P::Sender;
    type Receiver = P::Receiver;

    fn open(senders: u64, capacity: usize) -> (Vec<Self::Sender>, Self::Receiver) {
        let (sender, receiver) = P::open(capacity);
        ((0..senders).map(|_| sender.clone()).collect(), receiver)
    }

    fn send(sender: &mut Self::Sender, value: u64) {
        P::send(sender, value);
    }

    fn receive(receiver: &mut Self::Receiver) -> Option<u64> {
        P::receive(receiver)
    }
}

/// The programs of two threads.
pub(crate) fn between_two<P: ThreadChannel>() -> [Program; 2] {
    [
        (Work::ThreadPingPong, ping_pong::<P>),
        (Work::ThreadStream, stream::<P>),
    ]
}

/// Only for those that can sleep: a hundred threads that spin on two cores never end.
pub(crate) fn in_a_ring<P: ThreadChannel>() -> [Program; 1] {
    [(Work::ThreadRing, ring::<P>)]
}

pub(crate) fn gathering<P: ThreadGather>() -> [Program; 1] {
    [(Work::ThreadGather, gather::<P>)]
}

pub(crate) fn timed(program: impl FnOnce() -> u64) -> Measured {
    let begin = Instant::now();
    let messages = program();
    Measured::new(messages, begin.elapsed())
}

pub(crate) fn spawned(program: impl FnOnce() -> u64 + Send + 'static) -> JoinHandle<u64> {
    thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(program)
        .expect("a hundred small threads are few")
}

/// The sum of what they returned; a panic goes on here.
pub(crate) fn all_joined(threads: impl IntoIterator<Item = JoinHandle<u64>>) -> u64 {
    let results = threads.into_iter().map(JoinHandle::join);
    results
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .sum()
}

fn ping_pong<P: ThreadChannel>(size: Size) -> Measured {
    timed(|| {
        let (mut ask, mut asked) = P::open(1);
        let (mut answer, mut answered) = P::open(1);
        let echo = spawned(move || {
            while let Some(value) = P::receive(&mut asked) {
                P::send(&mut answer, value + 1);
            }
            0
        });
        let mut messages = 0;
        for value in 0..size.rounds {
            P::send(&mut ask, value);
            messages += u64::from(P::receive(&mut answered) == Some(value + 1));
        }
        drop(ask);
        messages + all_joined([echo])
    })
}

fn stream<P: ThreadChannel>(size: Size) -> Measured {
    timed(|| {
        let (mut sender, mut receiver) = P::open(STREAM_CAPACITY);
        let source = spawned(move || {
            for value in 0..size.rounds {
                P::send(&mut sender, value);
            }
            0
        });
        let mut messages = 0;
        while let Some(value) = P::receive(&mut receiver) {
            messages += u64::from(value == messages);
        }
        messages + all_joined([source])
    })
}

fn ring<P: ThreadChannel>(size: Size) -> Measured {
    timed(|| {
        let neighbours = circle(size.parties, || P::open(RING_CAPACITY));
        let threads = neighbours.map(|(mut sender, mut receiver)| {
            spawned(move || {
                let mut messages = 0;
                for value in 0..size.rounds {
                    P::send(&mut sender, value);
                    messages += u64::from(P::receive(&mut receiver) == Some(value));
                }
                messages
            })
        });
        all_joined(threads.collect::<Vec<_>>())
    })
}

fn gather<P: ThreadGather>(size: Size) -> Measured {
    const AMOUNT: u64 = 100;
    timed(|| {
        let (senders, mut receiver) = P::open(size.parties, STREAM_CAPACITY);
        let threads = senders.into_iter().map(|mut sender| {
            spawned(move || {
                for _ in 0..size.rounds {
                    P::send(&mut sender, AMOUNT);
                }
                0
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut sum = 0;
        while let Some(amount) = P::receive(&mut receiver) {
            sum += amount;
        }
        sum / AMOUNT + all_joined(threads)
    })
}
