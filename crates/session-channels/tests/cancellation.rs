//! Futures dropped after any number of polls, and waits given up at random: no message is lost that
//! was not consumed, none comes twice, and each is dropped once.
//!
//! Runs from seeds. A failure names its seed; `CANCELLATION_SEED=n` repeats that one alone.

#![allow(clippy::print_stdout, reason = "names the seed that failed")]

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use session_channels::stream::{TryRecvError, TrySendError};
use session_channels::{PortSet, Select, oneshot, proto, rendezvous, shared, stream};

const SEEDS: u64 = 3_000;
const STEPS: u32 = 60;

/// A numbered message; those alive are counted.
struct Message(u32, Arc<AtomicU32>);

impl Drop for Message {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes messages and holds what was sent against what came.
#[derive(Default)]
struct Book {
    made: u32,
    alive: Arc<AtomicU32>,
    on_their_way: VecDeque<u32>,
}

impl Book {
    fn make(&mut self) -> Message {
        self.made += 1;
        self.alive.fetch_add(1, Ordering::Relaxed);
        Message(self.made, Arc::clone(&self.alive))
    }

    fn came(&mut self, message: &Message) {
        assert_eq!(
            Some(message.0),
            self.on_their_way.pop_front(),
            "in order, none lost"
        );
    }
}

/// Polls so often at the most, then drops it.
fn give_up<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    (0..polls).find_map(|_| match poll(future.as_mut()) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    // Each time another waker, as for a task that moves.
    let waker = Waker::from(Arc::new(Fresh));
    future.poll(&mut Context::from_waker(&waker))
}

struct Fresh;

impl Wake for Fresh {
    fn wake(self: Arc<Self>) {}
}

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(limit)) >> 32).expect("it is below a u32")
    }
}

/// Plays with many seeds, and tells the one that fails.
fn from_seeds(play: impl Fn(&mut Dice, &mut Book)) {
    let chosen = std::env::var("CANCELLATION_SEED").ok();
    let chosen: Option<u64> = chosen.map(|seed| seed.parse().expect("a seed is a number"));
    let seeds = chosen.map_or(1..SEEDS + 1, |seed| seed..seed + 1);
    for seed in seeds {
        let mut book = Book::default();
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let played = catch_unwind(AssertUnwindSafe(|| play(&mut dice, &mut book)));
        if let Err(panic) = played {
            println!("CANCELLATION_SEED={seed}");
            resume_unwind(panic);
        }
        assert_eq!(
            book.alive.load(Ordering::Relaxed),
            0,
            "CANCELLATION_SEED={seed}: each is dropped once"
        );
    }
}

#[test]
fn a_stream_loses_nothing_to_waits_that_are_given_up() {
    from_seeds(|dice, book| {
        let capacity = 1 + dice.below(3);
        let (mut sender, mut receiver) = stream(capacity);
        for _ in 0..STEPS {
            let polls = dice.below(3);
            match dice.below(7) {
                0 | 1 => {
                    let message = book.make();
                    let number = message.0;
                    // Not sent, it goes with the future.
                    if let Some(sent) = give_up(sender.send(message), polls) {
                        assert!(sent.is_ok());
                        book.on_their_way.push_back(number);
                    }
                }
                2 => {
                    let message = book.make();
                    let number = message.0;
                    match sender.try_send(message) {
                        Ok(()) => book.on_their_way.push_back(number),
                        Err(TrySendError::Full(back)) => assert_eq!(back.0, number),
                        Err(TrySendError::Closed(_)) => panic!("nobody has closed"),
                    }
                }
                3 => {
                    if let Some(came) = give_up(receiver.recv(), polls) {
                        book.came(&came.expect("nobody has closed"));
                    }
                }
                4 => {
                    let came = give_up(receiver.recv_timeout(Duration::ZERO), polls);
                    if let Some(Ok(message)) = came {
                        book.came(&message);
                    }
                }
                5 => {
                    let mut select = Select::new();
                    select.add(&mut receiver);
                    let _ = give_up(select.ready(), polls);
                }
                _ => match receiver.try_recv() {
                    Ok(message) => book.came(&message),
                    Err(why) => {
                        assert_eq!((why, book.on_their_way.len()), (TryRecvError::Empty, 0));
                    }
                },
            }
            assert!(sender.len() == book.on_their_way.len() && sender.len() <= capacity as usize);
        }
    });
}

#[test]
fn a_rendezvous_accounts_for_every_send_that_is_given_up() {
    from_seeds(|dice, book| {
        let (mut sender, mut receiver) = rendezvous();
        for _ in 0..STEPS {
            let polls = dice.below(3);
            match dice.below(5) {
                0 | 1 => {
                    let was_free = book.on_their_way.is_empty();
                    let message = book.make();
                    let number = message.0;
                    let done = give_up(sender.send(message), polls);
                    assert!(done.is_none(), "nobody has taken it");
                    if was_free && polls > 0 {
                        book.on_their_way.push_back(number);
                    }
                }
                2 => {
                    let taken = give_up(sender.taken(), polls);
                    assert_eq!(taken.is_some(), polls > 0 && book.on_their_way.is_empty());
                }
                3 => {
                    if let Some(came) = give_up(receiver.recv(), polls) {
                        book.came(&came.expect("nobody has closed"));
                    }
                }
                _ => {
                    if let Ok(message) = receiver.try_recv() {
                        book.came(&message);
                    }
                }
            }
        }
        if dice.below(2) == 0 {
            drop(receiver);
            let untaken = give_up(sender.taken(), 1).expect("it is known").err();
            assert_eq!(
                untaken.map(|unsent| unsent.message.0),
                book.on_their_way.pop_front()
            );
        }
    });
}

proto! {
    #[forever]
    pub ball<T> {
        ping: send { Ping(T) -> pong }
        pong: recv { Pong(T) -> ping }
    }
}

#[test]
fn a_session_goes_on_after_waits_that_are_given_up() {
    from_seeds(|dice, book| {
        let (client, server) = ball::init();
        let mut waiting = server;
        let message = book.make();
        let mut pong = client.ping(message);
        for _ in 0..STEPS / 4 {
            give_up(waiting.ready(), dice.below(3));
            give_up(pong.ready(), dice.below(3));
            let ball::Ping::Ping(message, server) = waiting.try_recv().expect("it has come");
            give_up(pong.ready(), dice.below(3));
            waiting = server.pong(message);
            give_up(waiting.ready(), dice.below(3));
            let came = give_up(pong.recv_timeout(Duration::ZERO), 1).expect("it does not wait");
            let ball::Pong::Pong(message, client) = came.expect("it has come");
            give_up(waiting.ready(), dice.below(3));
            pong = client.ping(message);
        }
    });
}

#[test]
fn sets_and_shared_senders_lose_nothing_to_waits_that_are_given_up() {
    from_seeds(|dice, book| {
        let (sender, mut receiver) = shared(2);
        let mut senders = vec![sender];
        let mut on_their_way = 0;
        let (mut single, port) = stream(2);
        let mut set = PortSet::new();
        set.insert(port);
        for _ in 0..STEPS {
            let polls = dice.below(3);
            let one = dice.below(u32::try_from(senders.len()).expect("few")) as usize;
            match dice.below(6) {
                0 if senders.len() < 4 => {
                    let clone = senders[one].clone();
                    senders.push(clone);
                }
                0 | 1 => {
                    let message = book.make();
                    if give_up(senders[one].send(message), polls).is_some() {
                        on_their_way += 1;
                    }
                }
                2 | 3 => on_their_way -= u32::from(give_up(receiver.recv(), polls).is_some()),
                4 => {
                    let message = book.make();
                    let number = message.0;
                    if give_up(single.send(message), polls).is_some() {
                        book.on_their_way.push_back(number);
                    }
                }
                _ => {
                    if let Some(Some((_, came))) = give_up(set.next(), polls) {
                        book.came(&came.expect("nobody has closed"));
                    }
                }
            }
        }
        while receiver.try_recv().is_ok() {
            on_their_way -= 1;
        }
        assert_eq!(on_their_way, 0);
    });
}

#[test]
fn a_oneshot_that_is_given_up_gives_its_message_back() {
    for polls in 0..4 {
        let mut book = Book::default();
        let (sender, receiver) = oneshot();
        assert!(give_up(receiver, polls).is_none());
        let message = book.make();
        let unsent = sender.send(message).expect_err("nobody waits");
        assert_eq!(unsent.message.0, 1);
        drop(unsent);
        assert_eq!(book.alive.load(Ordering::Relaxed), 0);
    }
}
