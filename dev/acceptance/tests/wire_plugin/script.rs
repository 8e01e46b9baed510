//! A server that answers out of a table.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use unbroken_acceptance::wire::{self, Answer, Request, Session};

/// A running server, as seen from the scenario.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<String>>>,
    /// Whoever does not answer waits for its end.
    _end: Sender<()>,
}

/// How it answers, shared by its connections.
#[derive(Clone)]
struct Table {
    rows: Arc<[Row]>,
    /// The request that is never answered.
    unanswered: Arc<Mutex<Option<String>>>,
    received: Arc<Mutex<Vec<String>>>,
    end: Arc<Mutex<Receiver<()>>>,
}

struct Row {
    name: String,
    request: Request,
    answer: Answer,
}

/// Makes one request wait for longer than anyone waits.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered(Arc<Mutex<Option<String>>>);

impl Unanswered {
    pub(crate) fn set(&self, name: &str) {
        let mut unanswered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *unanswered = Some(name.to_owned());
    }
}

impl Script {
    /// Starts it. Each row is a request and its answer, in JSON.
    pub(crate) fn start(rows: &[Vec<String>]) -> (Self, Unanswered) {
        let rows: Vec<Row> = rows.iter().map(|row| Row::read(&row[0], &row[1])).collect();
        let (sender, receiver) = mpsc::channel();
        let table = Table {
            rows: rows.into(),
            unanswered: Arc::default(),
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
        let unanswered = Unanswered(Arc::clone(&table.unanswered));
        // It ends with this program.
        thread::spawn(move || wire::serve(&listener, move || table.clone()));
        (script, unanswered)
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
        let unanswered = self.unanswered.lock();
        let unanswered = unanswered.unwrap_or_else(PoisonError::into_inner).clone();
        if unanswered.is_some_and(|name| name == row.name) {
            let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            // The scenario's end is an error here, because nothing is ever sent.
            let _ = end.recv();
        }
        row.answer.clone()
    }
}
