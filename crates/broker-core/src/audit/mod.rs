//! The broker's side of the proof: what came in, who was owed it, and what became of it.
//!
//! ```text
//! PUBLISH -> lane: a number and a leaf      route: one delivery owed to each receiver
//!                      |                                        |
//!                 beside the message                account of the session it is owed to
//!                      |                                        |
//!             checked where it changes hands     sent, acknowledged, dropped: each told to it
//! ```
//!
//! - A [`lane`] numbers what one client publishes, and hashes it.
//! - An [`account`] keeps what one session is owed and what it had, and knows the law.
//! - [`letters`] numbers what one shard says to another.
//! - [`totals`] is what all of them come to, [`fault`] the name of what must not happen.
//!
//! Invariants:
//! - A number is given once, in the order in which the messages were accepted.
//! - What must not happen is a named fault, counted and told; it is never a panic, and never
//!   changes what is delivered.
//! - Nothing here allocates once a client has published its first messages.
//!
//! Deliberately absent: JSON for people ([`tell`] makes it), and disk. Until messages are stored,
//! *stored* means accepted into the queue of the session.

pub(crate) mod account;
pub(crate) mod fault;
pub(crate) mod lane;
pub(crate) mod letters;
pub(crate) mod tell;
pub(crate) mod totals;

pub(crate) use account::Account;
pub(crate) use lane::{IngressLane, Lanes, Mark};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::clients::Clients;
use crate::ids::SessionId;
use crate::message::{Message, Publication};
use crate::output::{Event, Output};
use crate::shard::Shard;
use crate::stats::Stats;
use fault::{FaultKind, FaultPlace};

impl Shard {
    /// Numbers an accepted message of this session.
    pub(crate) fn mark(
        &mut self,
        now: Instant,
        session: SessionId,
        publication: &Publication<'_>,
    ) -> Option<Mark> {
        if !self.options.settings.audit.enabled {
            return None;
        }
        let (started_us, start) = (self.options.settings.audit.started_us, self.options.start);
        let session = self.clients.sessions.get_mut(session.index())?;
        let lane = match &mut session.lane {
            Some(lane) => lane,
            none => {
                let second = lane::second(started_us, start, now);
                none.insert(Box::new(self.lanes.open(&session.client_id, second)))
            }
        };
        self.clients.stats.audit.received += 1;
        Some(lane.stamp(publication))
    }

    /// Whole seconds since 1970.
    pub(crate) fn second(&self, now: Instant) -> u32 {
        let started_us = self.options.settings.audit.started_us;
        lane::second(started_us, self.options.start, now)
    }
}

impl Clients {
    /// Looks whether a message that came from another shard is the one that was accepted there.
    pub(crate) fn check_unaltered(&mut self, message: &Message) {
        let publisher = message.publisher();
        check(
            &message.publication(),
            publisher,
            &mut self.stats,
            &mut self.outputs,
        );
    }
}

/// Looks whether a message that lay in memory is still the one that was accepted, and names it if
/// it is not.
pub(crate) fn check(
    publication: &Publication<'_>,
    publisher: Option<&Arc<str>>,
    stats: &mut Stats,
    outputs: &mut VecDeque<Output>,
) {
    let Some(mark) = publication.mark.filter(|mark| !mark.fits(publication)) else {
        return;
    };
    stats.audit.altered += 1;
    outputs.push_back(Output::Event(Event::Fault {
        place: FaultPlace::Lane(publisher.cloned().unwrap_or_default()),
        kind: FaultKind::Altered,
        first: mark.number,
        count: 1,
    }));
}
