//! Services on threads and under an executor, and one that cannot be begun.

use std::convert::Infallible;
use std::future::Future;

use session_channels::service::{Spawn, Threads, serve, spawn_service, spawn_service_recv};
use session_channels::{Duplex, Why, block_on, duplex, proto};

proto! {
    #[forever]
    pub doubling {
        ask: send { Number(u32) -> answer }
        answer: recv { Double(u32) -> ask }
    }
}

proto! {
    pub greeting {
        hello: recv { Hello(&'static str) -> ! }
    }
}

use doubling::{Answer, Ask};

async fn double(mut server: doubling::server::Ask) {
    while let Ok(Ask::Number(n, answer)) = server.recv().await {
        server = answer.double(2 * n);
    }
}

#[test]
fn a_service_on_a_thread_answers_until_its_client_goes() {
    let client = spawn_service(&Threads("doubling"), doubling::init, double);
    let Answer::Double(n, client) = client
        .expect("a thread can be had")
        .number(4)
        .recv_blocking()
        .expect("it answers");
    assert_eq!(n, 8);
    let Answer::Double(n, _) = client.number(5).recv_blocking().expect("it answers");
    assert_eq!(n, 10);
}

#[test]
fn a_service_of_a_protocol_in_which_the_server_speaks_first() {
    let client = spawn_service_recv(&Threads("greeting"), greeting::init, async |server| {
        server.hello("good day");
    });
    let hello = client.expect("a thread can be had").recv_blocking();
    let greeting::Hello::Hello(words) = hello.expect("it speaks");
    assert_eq!(words, "good day");
}

struct Tokio;

impl Spawn for Tokio {
    type Error = Infallible;

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Infallible> {
        tokio::spawn(task);
        Ok(())
    }
}

#[test]
fn a_service_runs_under_any_executor() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build();
    let answer = runtime.expect("a runtime can be had").block_on(async {
        let Ok(client) = spawn_service(&Tokio, doubling::init, double);
        client.number(4).recv().await
    });
    let Answer::Double(n, _) = answer.expect("it answers");
    assert_eq!(n, 8);
}

/// Has no threads left.
struct Full;

impl Spawn for Full {
    type Error = &'static str;

    fn spawn(&self, _: impl Future<Output = ()> + Send + 'static) -> Result<(), &'static str> {
        Err("full")
    }
}

#[test]
fn a_service_that_cannot_be_begun_is_an_error() {
    let refused = spawn_service(&Full, doubling::init, double);
    assert_eq!(refused.expect_err("nothing runs it"), "full");
}

#[test]
fn a_service_that_panics_is_reported() {
    let client = serve("greeting", greeting::init, |_server| {
        panic!("as the test wants it")
    });
    let told = client.expect("a thread can be had").recv_blocking();
    assert_eq!(told.expect_err("it panicked").why, Why::Panicked);
}

#[test]
fn the_halves_of_a_duplex_can_be_parted_and_joined() {
    let (here, mut there) = duplex::<u8, char>(2);
    let (mut sender, receiver) = here.split();
    sender.try_send(1).expect("there is room");
    assert_eq!(there.try_recv(), Ok(1));
    let mut here = Duplex::join(sender, receiver);
    block_on(there.send('a')).expect("there is room");
    assert_eq!(block_on(here.recv()), Ok('a'));
    let (sender, receiver) = here.both();
    assert_eq!((sender.len(), receiver.len()), (0, 0));
    drop(here);
    assert!(there.try_send('b').is_err() && there.recv_blocking().is_err());
}
