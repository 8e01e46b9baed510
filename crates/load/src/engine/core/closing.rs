//! Connections that are refused, fail or end.

use super::{Core, Outcome, Stage};
use crate::{error::LoadError, greeting::GreetingError, wire};
use std::{io, sync::atomic::Ordering, time::Duration};

impl Core {
    pub(crate) fn end(&mut self) -> Outcome {
        self.publishing = false;
        self.schedule = None;
        self.show();
        let began_ns = self.first_ns.unwrap_or(self.last_ns);
        Outcome {
            tally: self.tally.since(&self.earlier),
            latency: self.latency.clone(),
            acknowledged: self.acknowledged.clone(),
            elapsed: Duration::from_nanos(self.last_ns.saturating_sub(began_ns)),
        }
    }

    pub(crate) fn disconnect(&mut self) {
        for client in &mut self.clients {
            if let Some(mut connection) = client.connection.take() {
                // If it does not leave at once, closing says the same.
                drop(connection.send(&[wire::DISCONNECT << 4, 0]));
            }
        }
    }

    pub(crate) fn refuse_closed(&self, doing: &'static str) -> Result<(), LoadError> {
        if self.count(Stage::Closed) == 0 {
            return Ok(());
        }
        let closed = self
            .clients
            .iter()
            .find(|client| client.stage == Stage::Closed);
        let client = closed
            .map(|client| client.plan.id.clone())
            .unwrap_or_default();
        Err(LoadError::Closed { client, doing })
    }

    pub(crate) fn refuse_stop(&self) -> Result<(), LoadError> {
        if self.common.stop.load(Ordering::Relaxed) {
            Err(LoadError::Stopped)
        } else {
            Ok(())
        }
    }

    #[cold]
    pub(crate) fn cannot_connect(&self, index: usize, source: io::Error) -> LoadError {
        let client = self.clients[index].plan.id.clone();
        LoadError::Connect {
            client,
            target: self.settings().target.clone(),
            source,
        }
    }

    #[cold]
    pub(crate) fn greeting_failed(&self, index: usize, source: GreetingError) -> LoadError {
        LoadError::Greeting {
            client: self.clients[index].plan.id.clone(),
            source,
        }
    }

    #[cold]
    pub(crate) fn close(&mut self, index: usize) {
        if self.clients[index].stage != Stage::Closed {
            self.enter(index, Stage::Closed);
            self.tally.closed += 1;
            let client = &mut self.clients[index];
            client.connection = None;
            if let Some(publisher) = &mut client.publisher {
                self.unacknowledged -= u64::from(std::mem::take(&mut publisher.unacknowledged));
                publisher.sent_ns.clear();
            }
        }
    }
}
