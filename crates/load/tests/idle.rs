//! Silent connections that a server ends or speaks to while they are watched.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    ops::ControlFlow,
    thread,
    time::Duration,
};
use unbroken_load::{Extent, Observer, Phase, Progress, Report, Scenario, Settings};

const CONNECTIONS: u32 = 3;

/// Greets a client and grants what it asks for.
fn serve(mut client: TcpStream) -> TcpStream {
    let mut answer = |expected: u8| {
        let mut head = [0; 2];
        client.read_exact(&mut head).unwrap();
        assert_eq!(head[0], expected);
        let mut body = vec![0; head[1].into()];
        client.read_exact(&mut body).unwrap();
        let connack: &[u8] = &[0x20, 2, 0, 0];
        let suback: &[u8] = &[0x90, 3, body[0], body[1], 0];
        let answer = if expected == 0x10 { connack } else { suback };
        client.write_all(answer).unwrap();
    };
    answer(0x10);
    answer(0x82);
    client
}

/// Does something to the connections when nobody is waiting for anything any more.
struct WhileIdle<F> {
    clients: Option<thread::JoinHandle<Vec<TcpStream>>>,
    kept: Vec<TcpStream>,
    act: F,
}

impl<F: FnMut(&mut Vec<TcpStream>)> Observer for WhileIdle<F> {
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()> {
        if progress.phase == Phase::Idling
            && let Some(clients) = self.clients.take()
        {
            self.kept = clients.join().unwrap();
            (self.act)(&mut self.kept);
        }
        ControlFlow::Continue(())
    }
}

fn run(act: impl FnMut(&mut Vec<TcpStream>)) -> Report {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let serve_all = move || {
        let accept = |_| {
            let (client, _) = listener.accept().unwrap();
            thread::spawn(move || serve(client))
        };
        let served: Vec<_> = (0..CONNECTIONS).map(accept).collect();
        let served = served.into_iter().map(|client| client.join().unwrap());
        served.collect()
    };
    let mut observer = WhileIdle {
        clients: Some(thread::spawn(serve_all)),
        kept: Vec::new(),
        act,
    };
    let connections = CONNECTIONS;
    let settings = Settings {
        // Long enough that the observer is asked once.
        extent: Extent::Time(Duration::from_millis(300)),
        ..Settings::new(target, Scenario::Idle { connections })
    };
    let report = unbroken_load::run(settings, &mut observer).unwrap();
    assert!(observer.clients.is_none(), "it was never idle");
    report
}

#[test]
fn connections_that_stay_and_hear_nothing_are_clean() {
    let report = run(|_| {});
    assert!(report.is_clean(), "{report}");
}

#[test]
fn connections_that_are_closed_while_they_are_silent_are_no_clean_run() {
    let report = run(|clients| clients.truncate(1));
    assert!(!report.is_clean(), "{report}");
    let closed = "2 connections closed by the broker";
    assert!(report.to_string().contains(closed), "{report}");
}

#[test]
fn bytes_for_a_client_that_asked_for_none_are_no_clean_run() {
    let unasked = [0x30, 3, 0, 1, b'a'];
    let report = run(|clients| clients[0].write_all(&unasked).unwrap());
    assert!(!report.is_clean(), "{report}");
    assert!(report.to_string().contains("1 spoken to"), "{report}");
}
