//! Threads that do everything at once, for as many rounds as `STRESS` says (100 if it says
//! nothing).
//!
//! It has no test harness, so that a thread sanitizer, which does not know what the standard
//! library does inside, sees only threads that are begun and joined. Every message counts itself
//! when it is dropped: at the end none is lost and none was dropped twice.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panic, and this one has no harness"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use session_channels::{PortSet, oneshot, rendezvous, shared, stream};

session_channels::proto! {
    bank {
        open: send { Ask(Counted) -> answer, Bye -> ! }
        answer: recv { Answer(Counted) -> open }
    }
}

static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// On the heap, so that a read after it was freed is seen.
struct Counted(Box<u64>);

impl Counted {
    fn new(number: u64) -> Self {
        MADE.fetch_add(1, Ordering::Relaxed);
        Self(Box::new(number))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        *self.0 = u64::MAX;
    }
}

fn main() {
    let rounds = std::env::var("STRESS").map_or(100, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        turns(round % 7);
        streams(1 + u32::try_from(round % 5).unwrap());
        sets();
        once();
        meetings();
    }
    let (made, dropped) = (
        MADE.load(Ordering::Relaxed),
        DROPPED.load(Ordering::Relaxed),
    );
    assert_eq!(made, dropped, "each message was dropped once");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; {made} messages in {rounds} rounds");
}

/// A conversation that one side leaves after so many questions.
fn turns(questions: u64) {
    let (mut client, server) = bank::init();
    let serving = thread::spawn(move || {
        let mut server = server;
        while let Ok(bank::Open::Ask(asked, next)) = server.recv_blocking() {
            server = next.answer(asked);
        }
    });
    for number in 0..questions {
        let bank::Answer::Answer(counted, next) =
            client.ask(Counted::new(number)).recv_blocking().unwrap();
        assert_eq!(*counted.0, number);
        client = next;
    }
    if questions.is_multiple_of(2) {
        client.bye();
    } else {
        drop(client.ask(Counted::new(0)));
    }
    serving.join().unwrap();
}

/// A small queue, whose receiver gives up in the middle.
fn streams(capacity: u32) {
    let (mut sender, mut receiver) = stream(capacity);
    let sending = thread::spawn(move || {
        for number in 0.. {
            if sender.send_blocking(Counted::new(number)).is_err() {
                break;
            }
        }
    });
    for number in 0..100 {
        assert_eq!(*receiver.recv_blocking().unwrap().0, number);
    }
    drop(receiver);
    sending.join().unwrap();
}

/// Shared senders and a set, with deadlines that pass.
fn sets() {
    let (sender, mut receiver) = shared(2);
    let mut set = PortSet::new();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (mut other, port) = stream(1);
            set.insert(port);
            let mut sender = sender.clone();
            thread::spawn(move || {
                for number in 0..50 {
                    sender.send_blocking(Counted::new(number)).unwrap();
                    other.send_blocking(Counted::new(number)).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut came = 0;
    while came < 300 {
        let soon = Instant::now() + Duration::from_micros(50);
        if let Ok(Some((_, Ok(_)))) = set.next_deadline_blocking(soon) {
            came += 1;
        }
        while receiver.try_recv().is_ok() {
            came += 1;
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Each side of a oneshot dropped, used, or waited for in vain.
fn once() {
    for how in 0..4 {
        let (sender, receiver) = oneshot();
        let sending = thread::spawn(move || {
            if how != 0 {
                drop(sender.send(Counted::new(how)));
            }
        });
        match how {
            1 => drop(receiver),
            2 => drop(receiver.recv_deadline_blocking(Instant::now())),
            _ => drop(receiver.recv_blocking()),
        }
        sending.join().unwrap();
    }
}

fn meetings() {
    let (mut sender, mut receiver) = rendezvous();
    let sending = thread::spawn(move || {
        for number in 0..20 {
            if sender.send_blocking(Counted::new(number)).is_err() {
                break;
            }
        }
    });
    for _ in 0..10 {
        drop(receiver.recv_blocking().unwrap());
    }
    drop(receiver);
    sending.join().unwrap();
}
