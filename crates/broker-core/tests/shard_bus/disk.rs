//! A disk as tests need it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_broker_core::{Input, LogId, Message, ReadAnswer, ReadRequest, Record};

use super::Broker;

/// Where records go, and where logs are read.
pub(crate) trait Disk {
    fn store(&mut self, record: &Record, at: Instant);
    fn read(&mut self, request: &ReadRequest) -> ReadAnswer;
    /// Numbers that no message has.
    fn left_out(&self) -> Vec<(LogId, Range<u64>)> {
        Vec::new()
    }
}

/// The messages of each log, and nothing else.
#[derive(Default)]
pub(super) struct Logs(BTreeMap<LogId, Vec<Arc<Message>>>);

impl Disk for Logs {
    fn store(&mut self, record: &Record, _at: Instant) {
        if let Record::Message { message, .. } = record {
            let position = message.position().unwrap();
            let log = self.0.entry(position.log).or_default();
            log.push(Arc::clone(message));
            assert_eq!(log.len() as u64, position.number);
        }
    }

    fn read(&mut self, request: &ReadRequest) -> ReadAnswer {
        let log = self.0.get(&request.log).map_or(&[][..], Vec::as_slice);
        let after = usize::try_from(request.after).unwrap();
        ReadAnswer {
            session: request.session,
            token: request.token,
            log: request.log,
            messages: log[after..usize::try_from(request.last).unwrap()].to_vec(),
            through: request.last,
        }
    }
}

impl Broker {
    /// Everything that was asked for is stored.
    pub(crate) fn stored(&mut self) {
        // Not while only some of it is.
        let hold_reads = std::mem::replace(&mut self.hold_reads, true);
        for (shard, id, record, at) in std::mem::take(&mut self.stores) {
            self.disk.store(&record, at);
            self.input(shard, Input::Stored(id));
        }
        self.hold_reads = hold_reads;
        self.answer_reads();
        // What a shard asks for because something was written it asks for at the next timeout.
        self.advance(Duration::ZERO);
    }

    /// The oldest request without an answer is stored.
    pub(crate) fn stored_one(&mut self) {
        let (shard, id, record, at) = self.stores.remove(0);
        self.disk.store(&record, at);
        self.input(shard, Input::Stored(id));
        self.advance(Duration::ZERO);
    }

    /// The oldest requests without an answer are stored, as many as there are.
    pub(crate) fn stored_at_most(&mut self, count: usize) {
        for _ in 0..count.min(self.stores.len()) {
            self.stored_one();
        }
    }

    /// Once everything that was asked for before is stored, reads are answered.
    pub(super) fn answer_reads(&mut self) {
        while self.stores.is_empty() && !self.reads.is_empty() && !self.hold_reads {
            let (shard, request) = self.reads.remove(0);
            let answer = self.disk.read(&request);
            self.input(shard, Input::Read(answer));
        }
    }

    /// The oldest read without an answer is answered.
    pub(crate) fn read_one(&mut self) {
        let (shard, request) = self.reads.remove(0);
        let answer = self.disk.read(&request);
        self.input(shard, Input::Read(answer));
        self.advance(Duration::ZERO);
    }

    /// For how many sessions something is read now.
    pub(crate) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Everything is kept there from now on.
    pub(crate) fn keep_on(&mut self, disk: Box<dyn Disk>) {
        self.disk = disk;
    }

    /// What was asked to be stored since this was last called.
    pub(crate) fn take_asked(&mut self) -> Vec<String> {
        std::mem::take(&mut self.asked)
    }
}
