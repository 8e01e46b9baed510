//! Threads that wait for each other are named; threads that only look as if they did are not.

use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session_channels::debug::{OnDrop, on_drop, wait_graph};
use session_channels::{Unreceived, proto};

proto! {
    pub asking {
        question: send { Ask -> answer, Enough -> ! }
        answer: recv { Tell -> question }
    }
}

use asking::{Answer, Question};

fn watch() {
    on_drop(OnDrop::Panic);
    wait_graph(true);
}

/// Waits in vain once, so that it is known who holds the endpoint.
fn hold(server: asking::server::Question) -> asking::server::Question {
    match server.recv_timeout_blocking(Duration::ZERO) {
        Err(Unreceived::Pending(server)) => server,
        other => panic!("nobody asked: {:?}", other.err()),
    }
}

#[test]
fn the_thread_that_closes_a_circle_names_it() {
    watch();
    let [(ask_a, a), (ask_b, b), (ask_c, c)] = [(); 3].map(|()| asking::init());
    let all_hold = Arc::new(Barrier::new(3));
    let start = |name: &str, server, asks: asking::client::Question| {
        let all_hold = Arc::clone(&all_hold);
        let work = move || {
            let server = hold(server);
            all_hold.wait();
            // The first to panic lets the next one go on, which then drops its server too early.
            let _ = asks.ask().recv_blocking();
            drop(server);
        };
        let started = thread::Builder::new().name(name.into()).spawn(work);
        started.expect("a thread can be had")
    };
    let threads = [
        start("a", a, ask_b),
        start("b", b, ask_c),
        start("c", c, ask_a),
    ];
    let ends = threads.map(JoinHandle::join);
    let panics = ends.into_iter().filter_map(Result::err);
    let mut words = panics.map(|panic| *panic.downcast::<String>().expect("it was words"));
    let circle = |[x, y, z]: [&str; 3]| {
        format!(
            "nobody will go on: thread `{x}` waits in `asking.answer` for thread `{y}`, \
             which waits in `asking.answer` for thread `{z}`, \
             which waits in `asking.answer` for thread `{x}`"
        )
    };
    let circles = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]].map(circle);
    assert!(words.any(|words| circles.contains(&words)));
    assert!(
        !words.any(|words| circles.contains(&words)),
        "it is named once"
    );
}

#[test]
fn threads_that_answer_each_other_are_no_circle() {
    watch();
    let (mut client, server) = asking::init();
    let serving = thread::spawn(move || {
        let mut server = server;
        while let Ok(Question::Ask(answer)) = server.recv_blocking() {
            server = answer.tell();
        }
    });
    for _ in 0..2000 {
        let told = client.ask().recv_blocking();
        let Answer::Tell(next) = told.expect("it answers");
        client = next;
    }
    client.enough();
    serving.join().expect("no circle was reported");
}
