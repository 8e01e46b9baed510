//! A server that answers out of a table.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use unbroken_acceptance::wire::{self, Answer, Request, Session};

/// A running server, as seen from the scenario.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<String>>>,
    /// Its end ends every wait for an answer.
    _end: Sender<()>,
}

/// How it answers, shared by its connections.
#[derive(Clone)]
struct Table {
    rows: Arc<[Row]>,
    delay: Delay,
    received: Arc<Mutex<Vec<String>>>,
    end: Arc<Mutex<Receiver<()>>>,
}

struct Row {
    name: String,
    request: Request,
    answer: Answer,
}

/// The request that waits for its answer, and how long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delay(Arc<Mutex<Option<(String, Duration)>>>);

impl Delay {
    pub(crate) fn set(&self, name: &str, duration: Duration) {
        let mut delay = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *delay = Some((name.to_owned(), duration));
    }

    fn of(&self, request: &str) -> Option<Duration> {
        let delay = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, duration) = delay.as_ref().filter(|(name, _)| name == request)?;
        Some(*duration)
    }
}

impl Script {
    /// Starts it. Each row is a request and its answer, in JSON.
    pub(crate) fn start(rows: &[Vec<String>]) -> (Self, Delay) {
        let rows: Vec<Row> = rows.iter().map(|row| Row::read(&row[0], &row[1])).collect();
        let (sender, receiver) = mpsc::channel();
        let table = Table {
            rows: rows.into(),
            delay: Delay::default(),
            received: Arc::default(),
            end: Arc::new(Mutex::new(receiver)),
        };
        let listener = wire::listen(0).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let script = Self {
            port: address.port(),
            received: Arc::clone(&table.received),
            _end: sender,
        };
        let delay = table.delay.clone();
        // It ends with this program.
        thread::spawn(move || wire::serve(&listener, move || table.clone()));
        (script, delay)
    }

    /// The names of the requests so far.
    pub(crate) fn received(&self) -> Vec<String> {
        let received = self.received.lock();
        received.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Row {
    fn read(request: &str, answer: &str) -> Self {
        let name: Value = serde_json::from_str(request).expect("a request is JSON");
        let answer: Value = serde_json::from_str(answer).expect("an answer is JSON");
        Self {
            name: name[0].as_str().expect("a request has a name").to_owned(),
            request: Request::parse(request.as_bytes()).expect("we know it"),
            answer: answer.into(),
        }
    }
}

impl Session for Table {
    fn answer(&mut self, request: &Request) -> Answer {
        let Some(row) = self.rows.iter().find(|row| row.request == *request) else {
            return Answer::fail(format!("Not understood: {request:?}"));
        };
        let lock = self.received.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
            .push(row.name.clone());
        if let Some(delay) = self.delay.of(&row.name) {
            // Nothing is ever sent, so this is the time to wait, or the scenario's end.
            let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = end.recv_timeout(delay);
        }
        row.answer.clone()
    }
}
