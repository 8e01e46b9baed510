//! Protocols as `proto!` builds them: everything that its grammar allows, run for real.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::many_single_char_names,
    reason = "c and s are the client and the server"
)]
#![deny(missing_docs, missing_debug_implementations, unreachable_pub, unused)]

use std::sync::mpsc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use session_channels::{Endpoint, TrySend, Unreceived, Why, block_on, proto};

proto! {
    /// A client's dealings with its bank.
    pub bank {
        /// Nothing is done for strangers.
        login: send {
            /// Name and password.
            Login(String, u32) -> login_response,
        }
        login_response: recv { Ok -> connected, Invalid -> login }
        connected: send {
            Deposit(u64) -> deposited,
            Withdraw(u64) -> withdrawal,
            Bye -> !,
        },
        deposited: recv { Deposited -> connected };
        withdrawal: recv { Cash(u64) -> connected, InsufficientFunds -> connected }
    }
}

fn serve(start: bank::server::Login) -> u64 {
    let bank::Login::Login(name, password, mut login) = start.recv_blocking().unwrap();
    let mut is_known = name == "ann" && password == 7;
    while !is_known {
        let bank::Login::Login(_, password, next) = login.invalid().recv_blocking().unwrap();
        is_known = password == 7;
        login = next;
    }
    let mut connected = login.ok();
    let mut balance = 0;
    loop {
        connected = match connected.recv_blocking().unwrap() {
            bank::Connected::Deposit(money, next) => {
                balance += money;
                next.deposited()
            }
            bank::Connected::Withdraw(money, next) if money <= balance => {
                balance -= money;
                next.cash(money)
            }
            bank::Connected::Withdraw(_, next) => next.insufficient_funds(),
            bank::Connected::Bye => return balance,
        };
    }
}

#[test]
fn a_protocol_runs_to_its_end() {
    let (client, server) = bank::init();
    let server = thread::spawn(move || serve(server));
    let client = client.login("ann".to_owned(), 8);
    let bank::LoginResponse::Invalid(client) = client.recv_blocking().unwrap() else {
        panic!()
    };
    let bank::LoginResponse::Ok(client) =
        client.login("ann".to_owned(), 7).recv_blocking().unwrap()
    else {
        panic!()
    };
    let bank::Deposited::Deposited(client) = client.deposit(30).recv_blocking().unwrap();
    let bank::Withdrawal::InsufficientFunds(client) = client.withdraw(31).recv_blocking().unwrap()
    else {
        panic!()
    };
    let bank::Withdrawal::Cash(money, client) = client.withdraw(10).recv_blocking().unwrap() else {
        panic!()
    };
    client.bye();
    assert_eq!((money, server.join().unwrap()), (10, 20));
}

#[test]
fn names_are_shown() {
    type Start = bank::client::Login;
    assert_eq!((Start::PROTOCOL, Start::STATE), ("bank", "login"));
    assert_eq!(<Start as Endpoint>::Dual::STATE, "login");
    let (client, server) = bank::init();
    assert_eq!(
        format!("{client:?} {server:?}"),
        "bank::client::Login bank::server::Login"
    );
    let client = client.login(String::new(), 0);
    let message = server.recv_blocking().unwrap();
    assert_eq!(format!("{message:?}"), "Login");
    drop(client);
}

#[test]
fn a_message_that_is_not_taken_is_given_back() {
    let (client, server) = bank::init();
    drop(server);
    let unsent = client.try_login("ann".to_owned(), 7).unwrap_err();
    assert_eq!(unsent.message, ("ann".to_owned(), 7));
    assert_eq!(
        (unsent.closed.state(), unsent.closed.why),
        ("login", Why::Dropped)
    );
}

#[test]
fn a_closed_peer_shows_at_the_next_receive() {
    let (client, server) = bank::init();
    drop(server);
    let closed = client
        .login("ann".to_owned(), 7)
        .recv_blocking()
        .unwrap_err();
    assert_eq!(
        (closed.protocol(), closed.state()),
        ("bank", "login_response")
    );
}

#[test]
fn an_endpoint_for_which_nothing_has_come_is_given_back() {
    let (client, server) = bank::init();
    assert!(!server.is_ready());
    let Err(Unreceived::Pending(server)) = server.try_recv() else {
        panic!()
    };
    let past = Instant::now();
    let Err(Unreceived::Pending(server)) = server.recv_deadline_blocking(past) else {
        panic!()
    };
    let nothing = Duration::ZERO;
    let Err(Unreceived::Pending(server)) = server.recv_timeout_blocking(nothing) else {
        panic!()
    };
    let Err(Unreceived::Pending(server)) = block_on(server.recv_timeout(nothing)) else {
        panic!()
    };
    let Err(Unreceived::Pending(mut server)) = block_on(server.recv_deadline(past)) else {
        panic!()
    };
    assert!(!server.arm(Waker::noop()));
    let client = client.login("ann".to_owned(), 7);
    assert!(server.arm(Waker::noop()));
    block_on(server.ready());
    let bank::Login::Login(name, _, _) = server.try_recv().unwrap();
    assert_eq!(name, "ann");
    drop(client);
}

proto! {
    /// Items of any type, as many as may be.
    pub(crate) feed<T: Send> {
        open: send(4) {
            /// One of them.
            Item(T) -> open,
            Pair(T, T) -> open,
            End -> !,
        }
    }
}

#[test]
fn a_loop_waits_for_room() {
    let (client, server) = feed::init::<u32>();
    let sender = thread::spawn(move || {
        let mut client = client;
        for n in 0..100 {
            client = client.item_blocking(n).unwrap();
        }
        client.end_blocking().unwrap();
    });
    let mut server = server;
    let mut received = Vec::new();
    while let feed::Open::Item(n, next) = server.recv_blocking().unwrap() {
        received.push(n);
        server = next;
    }
    sender.join().unwrap();
    assert_eq!(received, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_full_loop_gives_endpoint_and_message_back() {
    let (mut client, server) = feed::init::<u32>();
    for n in 0..4 {
        assert!(client.has_room());
        client = block_on(client.item(n)).unwrap();
    }
    assert!(!client.has_room() && !client.arm(Waker::noop()));
    let Err(TrySend::Full(client, message)) = client.try_pair(7, 8) else {
        panic!()
    };
    assert_eq!(message, (7, 8));
    let Err(TrySend::Full(mut client, ())) = client.try_end() else {
        panic!()
    };
    let mut server = server;
    for _ in 0..4 {
        let feed::Open::Item(_, next) = server.recv_blocking().unwrap() else {
            panic!()
        };
        server = next;
    }
    block_on(client.room());
    let client = client.try_item(9).unwrap();
    drop(server);
    let Err(TrySend::Closed(unsent)) = client.try_item(10) else {
        panic!()
    };
    assert_eq!(unsent.message, 10);
}

#[test]
fn payloads_that_were_not_taken_are_dropped_once() {
    let (counted, left) = mpsc::channel::<()>();
    let (client, server) = feed::init::<mpsc::Sender<()>>();
    let client = block_on(client.item(counted.clone())).unwrap();
    let client = block_on(client.pair(counted.clone(), counted)).unwrap();
    let feed::Open::Item(first, server) = server.recv_blocking().unwrap() else {
        panic!()
    };
    drop((client, server));
    assert_eq!(left.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(first);
    assert_eq!(left.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[allow(
    non_camel_case_types,
    reason = "a message that is a keyword is written in lower case"
)]
mod keywords {
    use session_channels::proto;

    proto! {
        // private to this module
        r#type {
            r#loop: send { Move(u8) -> r#match, Self_ -> !, r#async -> ! }
            r#match: recv { While -> r#loop, Super -> ! }
        }
    }

    #[test]
    fn keywords_can_be_names() {
        let (client, server) = r#type::init();
        let client = client.r#move(1);
        let r#type::Loop::Move(1, server) = server.recv_blocking().unwrap() else {
            panic!()
        };
        server.super_();
        let r#type::Match::Super = client.recv_blocking().unwrap() else {
            panic!()
        };
        let (client, server) = r#type::init();
        client.r#async();
        let r#type::Loop::r#async = server.recv_blocking().unwrap() else {
            panic!()
        };
    }
}

/// What a name means in a protocol is what it means outside, whatever the states are called.
mod names_of_states_and_types_meet {
    use session_channels::proto;

    pub(super) struct Request(pub(super) u8);
    pub(super) struct Response<T>(pub(super) T);
    pub(super) mod client {
        pub(crate) struct Slots;
    }

    proto! {
        pub(super) rpc<T: Send> {
            request: send { Request(Request, client::Slots, self::Request) -> response<Request> }
            response<U>: recv { Response(Response<T>, super::Shared, U) -> result<Response<U>> }
            result<V>: send { Result(Result<u8, Option<T>>, V) -> option<Vec<V>> }
            option<V>: recv { Option(Option<V>, [Request; 1]) -> vec }
            vec: send { Vec(Vec<super::names_of_states_and_types_meet::Request>) -> string }
            string: recv { String(String) -> ! }
        }
    }
}

struct Shared;

#[test]
fn a_state_may_have_the_name_of_a_type() {
    use names_of_states_and_types_meet::{Request, Response, client, rpc};
    let (client, server) = rpc::init::<u64>();
    let client = client.request(Request(1), client::Slots, Request(2));
    let rpc::Request::Request(Request(1), _, request, server) = server.recv_blocking().unwrap()
    else {
        panic!()
    };
    let server = server.response(Response(2), Shared, request);
    let rpc::Response::Response(Response(2), Shared, request, client) =
        client.recv_blocking().unwrap()
    else {
        panic!()
    };
    let client = client.result(Err(Some(3)), Response(request));
    let rpc::Result::Result(result, response, server) = server.recv_blocking().unwrap();
    assert_eq!((result, response.0.0), (Err(Some(3)), 2));
    let server = server.option(Some(vec![response]), [Request(4)]);
    let rpc::Option::Option(Some(_), _, client) = client.recv_blocking().unwrap() else {
        panic!()
    };
    let client = client.vec(Vec::new());
    let rpc::Vec::Vec(_, server) = server.recv_blocking().unwrap();
    server.string("end".to_owned());
    let rpc::String::String(end) = client.recv_blocking().unwrap();
    assert_eq!(end, "end");
}

proto! {
    /// States have parameters of their own, which the messages that lead there set.
    typed<T: Clone + Send> {
        first: send { One(T) -> second<Vec<T>, T>, Stop -> ! }
        second<U: IntoIterator<Item = V>, V>: recv { Two(U, V) -> third<(U, V)>, Stop -> ! }
        third<W>: send { Three(Option<W>) -> first, Four(<Vec<T> as IntoIterator>::Item) -> ! }
    }
}

#[test]
fn types_are_passed_from_state_to_state() {
    let (client, server) = typed::init::<&'static str>();
    let client = client.one("a");
    let typed::First::One(a, server) = server.recv_blocking().unwrap() else {
        panic!()
    };
    let server = server.two(vec![a, "b"], "c");
    let typed::Second::Two(list, c, client) = client.recv_blocking().unwrap() else {
        panic!()
    };
    let client = client.three(Some((list, c)));
    let typed::Third::Three(pair, server) = server.recv_blocking().unwrap() else {
        panic!()
    };
    assert_eq!(pair, Some((vec!["a", "b"], "c")));
    client.stop();
    assert!(matches!(server.recv_blocking(), Ok(typed::First::Stop)));
}

proto! {
    /// The last state has no use for the parameter, which nobody need notice.
    thanked<T: Send> {
        give: send { Give(T) -> thanks }
        thanks: recv { Thanks -> !, Refused(u8) -> ! }
    }
}

#[test]
fn a_state_need_not_use_the_parameters_of_its_protocol() {
    let (client, server) = thanked::init::<Vec<u8>>();
    let client = client.give(vec![1]);
    let thanked::Give::Give(_, server) = server.recv_blocking().unwrap();
    server.refused(9);
    let refused = match client.recv_blocking().unwrap() {
        thanked::Thanks::Thanks => 0,
        thanked::Thanks::Refused(why) => why,
    };
    assert_eq!(refused, 9);
}

proto! {
    /// Hands over the rest of another session.
    delegation {
        start: send {
            Take(bank::server::Connected) -> taken,
            Keep(Box<dyn FnOnce() -> Result<u8, String> + Send + 'static>) -> !,
        }
        taken: recv { Back(bank::server::Connected, Option<delegation::client::Start>) -> ! }
    }
}

#[test]
fn an_endpoint_travels_inside_a_message() {
    let (client, server) = bank::init();
    let client = client.login("ann".to_owned(), 7);
    let bank::Login::Login(_, _, server) = server.recv_blocking().unwrap();
    let server = server.ok();
    let (giver, taker) = delegation::init();
    let deputy = thread::spawn(move || {
        let delegation::Start::Take(bank, giver) = taker.recv_blocking().unwrap() else {
            panic!()
        };
        let bank::Connected::Deposit(money, bank) = bank.recv_blocking().unwrap() else {
            panic!()
        };
        giver.back(bank.deposited(), None);
        money
    });
    let giver = giver.take(server);
    let bank::LoginResponse::Ok(client) = client.recv_blocking().unwrap() else {
        panic!()
    };
    let bank::Deposited::Deposited(client) = client.deposit(5).recv_blocking().unwrap();
    let delegation::Taken::Back(server, _) = giver.recv_blocking().unwrap();
    client.bye();
    assert!(matches!(server.recv_blocking(), Ok(bank::Connected::Bye)));
    assert_eq!(deputy.join().unwrap(), 5);
}

proto! {
    /// Both sides send several in a row, and nothing says when it is over.
    #[forever]
    ten {
        s0: send { Go(u8) -> s1, Skip -> s2 }
        s1: send { Go(u8) -> s2 }
        s2: send(2) { Again(String) -> s2, Go -> s3 }
        s3: recv { Go(u16) -> s4, Short -> s6 }
        s4: recv { Go(u32) -> s5 }
        s5: recv(3) { Again([u64; 9]) -> s5, Go -> s6 }
        s6: send { Go -> s7 }
        s7: recv { Go -> s8 }
        s8: send { Go -> s9 }
        s9: recv { Go -> s0 }
    }
}

#[test]
fn ten_states_come_round_twice() {
    let (mut client, mut server) = ten::init();
    for round in 0..2 {
        let c = client.go(round).go(round + 1);
        let ten::S0::Go(a, s) = server.recv_blocking().unwrap() else {
            panic!()
        };
        let ten::S1::Go(b, s) = s.recv_blocking().unwrap();
        assert_eq!((a, b), (round, round + 1));
        let c = block_on(c.again("x".to_owned())).unwrap();
        let c = block_on(c.go()).unwrap();
        let ten::S2::Again(x, s) = s.recv_blocking().unwrap() else {
            panic!()
        };
        assert_eq!(x, "x");
        let ten::S2::Go(s) = s.recv_blocking().unwrap() else {
            panic!()
        };
        let s = s.go(7).go(8).again_blocking([9; 9]).unwrap();
        let ten::S3::Go(7, c) = c.recv_blocking().unwrap() else {
            panic!()
        };
        let ten::S4::Go(8, c) = c.recv_blocking().unwrap() else {
            panic!()
        };
        let s = s.go_blocking().unwrap();
        let ten::S5::Again(nines, c) = c.recv_blocking().unwrap() else {
            panic!()
        };
        assert_eq!(nines, [9; 9]);
        let ten::S5::Go(c) = c.recv_blocking().unwrap() else {
            panic!()
        };
        let c = c.go();
        let ten::S6::Go(s) = s.recv_blocking().unwrap();
        let s = s.go();
        let ten::S7::Go(c) = c.recv_blocking().unwrap();
        let c = c.go();
        let ten::S8::Go(s) = s.recv_blocking().unwrap();
        server = s.go();
        let ten::S9::Go(c) = c.recv_blocking().unwrap();
        client = c;
    }
    drop(client);
    assert_eq!(server.recv_blocking().unwrap_err().why, Why::Dropped);
}

macro_rules! protocol_of {
    ($(#[$note:meta])* $vis:vis $name:ident, $payload:ty, $capacity:literal) => {
        proto! {
            $(#[$note])*
            $vis $name {
                start: recv($capacity) { Some($payload) -> start, Only($payload) -> ! }
            }
        }
    };
}

protocol_of!(
    /// With documentation.
    pub(crate) made, Vec<u8>, 3
);

#[test]
fn a_protocol_can_come_from_another_macro() {
    let (client, server) = made::init();
    server.only_blocking(vec![1]).unwrap();
    assert!(matches!(client.recv_blocking(), Ok(made::Start::Only(bytes)) if bytes == [1]));
}

fn send_and_sync<T: Send + Sync>() {}

#[test]
fn endpoints_are_as_free_as_their_payloads() {
    send_and_sync::<bank::client::Login>();
    send_and_sync::<bank::LoginResponse>();
    send_and_sync::<feed::server::Open<std::cell::Cell<u8>>>();
    send_and_sync::<delegation::client::Start>();
    send_and_sync::<ten::server::S5>();
}
