//! Waiting for the first of several places.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use session_channels::{Select, Selected, Why, block_on, proto, select, select_blocking, stream};

proto! {
    ping {
        ping: send { Ping(u32) -> pong, Bye -> ! }
        pong: recv { Pong(u32) -> ping }
    }
}

proto! {
    note { note: recv { Note(String) -> ! } }
}

/// Longer than any test: that it comes is not waited for.
const NEVER: Duration = Duration::from_hours(1);

#[test]
fn the_place_that_has_something_is_chosen_and_the_others_stay() {
    let (client, mut server) = ping::init();
    let (mut reader, writer) = note::init();
    let client = client.ping(7);
    let server = select_blocking! {
        reader => {
            note::Note::Note(text) => panic!("{text}"),
            closed(why) => panic!("{why}"),
        }
        server => {
            ping::Ping::Ping(7, server) => server,
            ping::Ping::Ping(other, _) if other > 7 => panic!("{other}"),
            other => panic!("{other:?}"),
            closed(why) => panic!("{why}"),
        }
    };
    let mut server = server.pong(8);
    writer.note("later".to_owned());
    let text = select_blocking! {
        server => { message => panic!("{message:?}"), closed(why) => panic!("{why}") }
        reader => { note::Note::Note(text) => { text } closed(why) => panic!("{why}") }
    };
    assert_eq!(text, "later");
    let ping::Pong::Pong(8, client) = client.recv_blocking().unwrap() else {
        panic!()
    };
    client.bye();
    assert!(matches!(server.recv_blocking(), Ok(ping::Ping::Bye)));
}

struct Desk {
    client: Option<ping::client::Pong>,
    numbers: stream::Receiver<u32>,
    seen: Vec<String>,
}

impl Desk {
    /// One round; whether there is more to come.
    async fn round(&mut self) -> Result<bool, Why> {
        select! {
            biased;
            self.client => {
                ping::Pong::Pong(n, next) if n < 2 => {
                    self.seen.push(format!("pong {n}"));
                    self.client = Some(next.ping(n + 1));
                }
                ping::Pong::Pong(n, next) => {
                    self.seen.push(format!("last pong {n}"));
                    next.bye();
                }
                closed(closed) => return Err(closed.why),
            }
            self.numbers => {
                n => self.seen.push(format!("number {n}")),
            }
            after(NEVER) => panic!("an hour has passed"),
            else => return Ok(false),
        }
        Ok(true)
    }
}

#[test]
fn fields_and_options_are_places_and_else_is_the_end_of_all() {
    let (client, server) = ping::init();
    let (mut sender, numbers) = stream(4);
    let mut desk = Desk {
        client: Some(client.ping(0)),
        numbers,
        seen: Vec::new(),
    };
    let echo = thread::spawn(move || {
        let mut server = server;
        while let ping::Ping::Ping(n, next) = server.recv_blocking().unwrap() {
            server = next.pong(n);
        }
    });
    while desk.client.is_some() {
        assert_eq!(block_on(desk.round()), Ok(true));
    }
    echo.join().unwrap();
    sender.try_send(5).unwrap();
    sender.try_send(6).unwrap();
    drop(sender);
    assert_eq!(block_on(desk.round()), Ok(true));
    assert_eq!(block_on(desk.round()), Ok(true));
    assert_eq!(block_on(desk.round()), Ok(false));
    let seen = ["pong 0", "pong 1", "last pong 2", "number 5", "number 6"];
    assert_eq!(desk.seen, seen);
}

#[test]
fn closing_is_heard_where_it_is_asked_for() {
    let (client, mut server) = ping::init();
    let (mut reader, writer) = note::init();
    drop(client);
    let why = select_blocking! {
        server => { message => panic!("{message:?}"), closed(closed) => closed.why }
        reader => { message => panic!("{message:?}"), closed(closed) => panic!("{closed}") }
    };
    assert_eq!(why, Why::Dropped);
    drop((reader, writer));
}

#[test]
fn closing_is_passed_over_where_it_is_not() {
    let (gone, other) = ping::init();
    let mut gone = gone.ping(1);
    drop(other);
    let (mut reader, writer) = note::init();
    let told = thread::spawn(move || {
        select_blocking! {
            gone => { message => panic!("{message:?}") }
            reader => { note::Note::Note(text) => text }
            else => panic!("the reader is there"),
        }
    });
    writer.note("still here".to_owned());
    assert_eq!(told.join().unwrap(), "still here");
}

#[test]
fn time_passes_while_nothing_comes() {
    let (reader, writer) = note::init();
    let mut reader = Some(reader);
    let timed_out = select_blocking! {
        reader => { message => panic!("{message:?}"), closed(why) => panic!("{why}") }
        after(Duration::ZERO) => true,
    };
    let timed_out_too = block_on(async {
        select! {
            reader => { message => panic!("{message:?}"), closed(why) => panic!("{why}") }
            after(Duration::from_millis(1)) => true
        }
    });
    assert!(timed_out && timed_out_too);
    writer.note("in time".to_owned());
    let text = select_blocking! {
        reader => { note::Note::Note(text) => text, closed(why) => panic!("{why}") }
        after(Duration::ZERO) => panic!("what is there comes before the time"),
    };
    assert_eq!(text, "in time");
}

#[test]
fn a_wait_that_is_given_up_takes_nothing() {
    let (reader, writer) = note::init();
    let mut reader = Some(reader);
    let mut other: Option<ping::server::Ping> = None;
    {
        let wait = async {
            select! {
                reader => { message => panic!("{message:?}"), closed(why) => panic!("{why}") }
                other => { message => panic!("{message:?}"), closed(why) => panic!("{why}") }
            }
        };
        let mut wait = std::pin::pin!(wait);
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        writer.note("kept".to_owned());
    }
    let note::Note::Note(text) = reader.unwrap().recv_blocking().unwrap();
    assert_eq!(text, "kept");
}

#[test]
fn a_task_is_woken_by_any_of_its_places() {
    let (mut one, writer) = note::init();
    let (mut two, silent) = note::init();
    let reader = thread::spawn(move || {
        block_on(async move {
            select! {
                two => { note::Note::Note(text) => text, closed(why) => panic!("{why}") }
                one => { note::Note::Note(text) => text, closed(why) => panic!("{why}") }
            }
        })
    });
    writer.note("wake".to_owned());
    assert_eq!(reader.join().unwrap(), "wake");
    drop(silent);
}

/// How often the first of two streams that always have something is chosen, in 1,000 times.
fn first_chosen(
    rhythm: usize,
    choose: impl Fn(&mut stream::Receiver<u8>, &mut stream::Receiver<u8>) -> bool,
) -> u32 {
    let (mut left_sender, mut left) = stream(1);
    let (mut right_sender, mut right) = stream(1);
    left_sender.try_send(0).unwrap();
    right_sender.try_send(0).unwrap();
    let mut count = 0;
    for _ in 0..1000 {
        // other loops of the same thread select in between
        for _ in 0..rhythm {
            let mut none: Option<ping::server::Ping> = None;
            select_blocking! { none => { _ => {} } else => {} }
        }
        if choose(&mut left, &mut right) {
            count += 1;
            left_sender.try_send(0).unwrap();
        } else {
            right_sender.try_send(0).unwrap();
        }
    }
    count
}

#[test]
fn the_choice_is_fair_in_every_rhythm() {
    for rhythm in 0..5 {
        let first = first_chosen(rhythm, |left, right| {
            select_blocking! {
                *left => { _ => true, closed(why) => panic!("{why}") }
                *right => { _ => false, closed(why) => panic!("{why}") }
            }
        });
        assert!(
            (450..=550).contains(&first),
            "rhythm {rhythm}: {first} of 1000"
        );
    }
}

#[test]
fn a_biased_choice_goes_from_top_to_bottom() {
    let first = first_chosen(0, |left, right| {
        select_blocking! {
            biased;
            *left => { _ => true, closed(why) => panic!("{why}") }
            *right => { _ => false, closed(why) => panic!("{why}") }
        }
    });
    assert_eq!(first, 1000);
}

#[test]
fn a_select_future_can_move_between_threads() {
    fn can_move<F: Future + Send>(_: F) {}
    let (client, mut server) = ping::init();
    let (_, numbers) = stream::<u8>(1);
    can_move(async move {
        let mut numbers = numbers;
        select! {
            server => { _ => {}, closed(_) => {} }
            numbers => { _ => {}, closed(_) => {} }
        }
    });
    drop(client);
}

#[test]
fn a_dynamic_select_names_the_place_and_takes_nothing() {
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        (0..5).map(|_| note::init()).map(|(r, w)| (w, r)).unzip();
    let mut receivers: Vec<_> = receivers.into_iter().map(Some).collect();
    let (mut sender, mut numbers) = stream::<u8>(1);
    senders.remove(3).note("three".to_owned());
    receivers[1] = None;

    let mut select = Select::new();
    let handles: Vec<_> = receivers
        .iter_mut()
        .map(|receiver| select.add(receiver))
        .collect();
    let number = select.add(&mut numbers);
    let selected = select.ready_blocking();
    assert_eq!(selected, Selected::Place(handles[3]));
    assert_eq!(number.index(), 5);
    let note::Note::Note(text) = receivers[3].take().unwrap().recv_blocking().unwrap();
    assert_eq!(text, "three");

    let mut select = Select::new();
    select.add(&mut receivers[0]);
    let number = select.add(&mut numbers);
    sender.try_send(9).unwrap();
    assert_eq!(block_on(select.ready()), Selected::Place(number));
    assert_eq!(numbers.try_recv(), Ok(9));

    let mut select = Select::new().biased();
    select.add(&mut numbers);
    select.add(&mut receivers[0]);
    assert_eq!(
        select.ready_deadline_blocking(Instant::now()),
        Selected::TimedOut
    );
    let mut select = Select::new();
    select.add(&mut receivers[1]);
    assert_eq!(
        block_on(select.ready_deadline(Instant::now() + NEVER)),
        Selected::Nothing
    );
}
