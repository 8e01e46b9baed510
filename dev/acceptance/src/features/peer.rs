//! A client of a scenario: raw bytes, or a program on top of somebody else's library.

use crate::Client;
use crate::raw::{Publish, Subscribe};

use crate::program::Program;

/// A connected client.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Ours, byte by byte.
    Raw(Client),
    /// Somebody else's.
    Program(Program),
}

impl From<Client> for Peer {
    fn from(client: Client) -> Self {
        Self::Raw(client)
    }
}

impl From<Program> for Peer {
    fn from(program: Program) -> Self {
        Self::Program(program)
    }
}

impl Peer {
    /// Subscribes and gives the codes.
    pub(crate) fn subscribe(&mut self, subscribe: &Subscribe) -> Vec<u8> {
        match self {
            Self::Raw(client) => client.subscribe(subscribe),
            Self::Program(program) => subscribe
                .filters
                .iter()
                .map(|(filter, options)| program.subscribe(filter, options & 3))
                .collect(),
        }
    }

    /// Unsubscribes.
    pub(crate) fn unsubscribe(&mut self, filter: &str) {
        match self {
            Self::Raw(client) => {
                client.unsubscribe(&[filter]);
            }
            Self::Program(program) => program.unsubscribe(filter),
        }
    }

    /// Publishes and gives the reason in the acknowledgement.
    pub(crate) fn publish(&mut self, message: Publish) -> u8 {
        match self {
            Self::Raw(client) => client.publish(message),
            Self::Program(program) => {
                program.publish(&message);
                0
            }
        }
    }

    /// The next message, acknowledged.
    pub(crate) fn receive(&mut self) -> Publish {
        match self {
            Self::Raw(client) => {
                let message = client.expect_publish();
                client.complete(&message);
                message
            }
            Self::Program(program) => program.message(),
        }
    }

    /// Whether the broker had the session.
    pub(crate) fn session_present(&self) -> bool {
        match self {
            Self::Raw(client) => client.session_present(),
            Self::Program(program) => program.session_present(),
        }
    }

    /// Ends normally.
    pub(crate) fn disconnect(self) {
        match self {
            Self::Raw(client) => client.disconnect(),
            Self::Program(mut program) => program.disconnect(),
        }
    }

    /// Goes without a word.
    pub(crate) fn vanish(self) {
        match self {
            Self::Raw(client) => client.vanish(),
            Self::Program(program) => program.kill(),
        }
    }
}
