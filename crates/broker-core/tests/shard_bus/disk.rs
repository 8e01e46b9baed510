//! A disk as tests need it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{LogId, Message, ReadAnswer, ReadRequest, Record};

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
