//! The public API under random schedules of its threads: nothing is lost, nobody sleeps for ever.
//!
//! `SCHEDULES=100000 RUSTFLAGS="--cfg shuttle" cargo test --release -p session-channels --test
//! schedules`. A failure prints the schedule, which `shuttle::replay` repeats.
//!
//! Absent: deadlines and `shared`, whose clock and lock the scheduler does not know.

#![cfg(shuttle)]

use session_channels::{PortSet, Why, block_on, oneshot, proto, rendezvous, stream};
use shuttle::thread;

/// So many schedules of each, all together as many as asked for.
fn check(play: fn()) {
    const TESTS: usize = 5;
    let asked = std::env::var("SCHEDULES").unwrap_or_else(|_| "5000".into());
    let asked: usize = asked.parse().expect("SCHEDULES is a number");
    shuttle::check_random(play, asked / TESTS);
}

#[test]
fn a_stream_hands_over_everything_in_order_and_then_its_end() {
    check(|| {
        let (mut sender, mut receiver) = stream(2);
        let sending = thread::spawn(move || {
            for n in 0..6 {
                if n % 2 == 0 {
                    sender.send_blocking(n).expect("the receiver stays");
                } else {
                    block_on(sender.send(n)).expect("the receiver stays");
                }
            }
        });
        for n in 0..6 {
            let came = if n % 3 == 0 {
                receiver.recv_blocking()
            } else {
                block_on(receiver.recv())
            };
            assert_eq!(came, Ok(n));
        }
        assert_eq!(
            receiver.recv_blocking().map_err(|end| end.why),
            Err(Why::Finished)
        );
        sending.join().expect("everything was taken");
    });
}

#[test]
fn a_receiver_that_goes_wakes_a_sender_that_waits_for_room() {
    check(|| {
        let (mut sender, mut receiver) = stream(1);
        let sending = thread::spawn(move || {
            let refused = (0..4).find_map(|n| sender.send_blocking(n).err());
            assert!(refused.is_some_and(|unsent| unsent.message >= 1));
        });
        assert_eq!(receiver.recv_blocking(), Ok(0));
        drop(receiver);
        sending.join().expect("it was told");
    });
}

#[test]
fn a_rendezvous_gives_back_what_was_not_taken() {
    check(|| {
        let (mut sender, mut receiver) = rendezvous();
        let sending = thread::spawn(move || {
            assert_eq!(sender.send_blocking(1), Ok(()));
            let unsent = block_on(sender.send(2)).expect_err("nobody takes it");
            assert_eq!(unsent.message, 2);
        });
        assert_eq!(receiver.recv_blocking(), Ok(1));
        drop(receiver);
        sending.join().expect("it was told");
    });
}

proto! {
    pub bank {
        login: send { Login(u32) -> answer }
        answer: recv { Welcome(u32) -> open, Refused -> ! }
        open: send { Deposit(u32) -> answer, Bye -> ! }
    }
}

#[test]
fn a_session_with_a_message_that_holds_an_endpoint_comes_to_its_end() {
    check(|| {
        let (client, server) = bank::init();
        let (answer, answered) = oneshot();
        let serving = thread::spawn(move || {
            let Ok(bank::Login::Login(n, server)) = server.recv_blocking() else {
                panic!("it logs in")
            };
            let server = server.welcome(n);
            let Ok(bank::Open::Deposit(m, server)) = block_on(server.recv()) else {
                panic!("it pays in")
            };
            server.refused();
            answer.send(n + m).expect("somebody waits");
        });
        let Ok(bank::Answer::Welcome(n, client)) = client.login(3).recv_blocking() else {
            panic!("it is welcome")
        };
        let end = block_on(client.deposit(n).recv());
        assert!(matches!(end, Ok(bank::Answer::Refused)));
        assert_eq!(answered.recv_blocking(), Ok(6));
        serving.join().expect("it has ended");
    });
}

#[test]
fn a_set_gives_everything_of_all_its_ports() {
    check(|| {
        let mut set = PortSet::new();
        let sending: Vec<_> = (0..3)
            .map(|_| {
                let (mut sender, receiver) = stream(1);
                set.insert(receiver);
                thread::spawn(move || {
                    for n in 1..=2 {
                        sender.send_blocking(n).expect("the set takes everything");
                    }
                })
            })
            .collect();
        let (mut sum, mut ends) = (0, 0);
        while let Some((_, came)) = set.next_blocking() {
            match came {
                Ok(n) => sum += n,
                Err(_) => ends += 1,
            }
        }
        assert_eq!((sum, ends), (9, 3));
        for sending in sending {
            sending.join().expect("everything was taken");
        }
    });
}
