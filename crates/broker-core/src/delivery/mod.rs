//! What leaves to a client: the way of a message to one session, to very many, and what becomes of
//! those that are not delivered.
//!
//! ```text
//! Item:      one message in delivery for all its receivers: copied once, stored once
//! deliver:   to one session now, or behind what waits        fan_out: to very many, over turns
//! pump:      what waits, as the window and the output allow  backlog: counted, read from the log
//! hold:      behind answers, and ids to be stored            drops:   what is not delivered
//! acks:      what the client answers                         outstayed: what may not wait longer
//! frames:    the bytes, encoded once per layout
//! ```
//!
//! [`Deliveries`] is the part, and owns what deliveries share. A [`Deliverer`] is that part at work
//! on the others that it needs, for the time of one input.
//!
//! Deliberately absent: who receives a message, which is [`crate::routing`]'s.

mod acks;
mod backlog;
mod deliver;
mod drops;
mod fan_out;
mod frames;
mod hand_back;
mod hold;
mod item;
mod outstayed;
mod pump;

use std::sync::Arc;
use std::time::Instant;

use self::fan_out::FanOuts;
use self::frames::Frames;
pub(crate) use self::item::{Item, Storing};
use crate::audit::Audit;
use crate::connection::Connections;
use crate::durability::CommitGate;
use crate::limits::Limits;
use crate::memory::Budget;
use crate::message::{Message, MessagePool};
use crate::policy::AccessControl;
use crate::retained::Retained;
use crate::session::Sessions;
use crate::telemetry::Telemetry;

/// What all deliveries of one shard share.
#[derive(Debug)]
pub(crate) struct Deliveries {
    pool: MessagePool,
    /// Of the message that is being delivered.
    frames: Frames,
    fan_outs: FanOuts,
}

/// The part at work, with the others that it needs.
pub(crate) struct Deliverer<'a> {
    pub(crate) now: Instant,
    /// The broker is stopping: nothing that has to wait will be delivered, but what is on disk.
    pub(crate) stopping: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) access: &'a mut AccessControl,
    pub(crate) connections: &'a mut Connections,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) telemetry: &'a mut Telemetry,
    pub(crate) retained: &'a mut Retained,
    pub(crate) gate: &'a mut CommitGate,
    pub(crate) audit: &'a mut Audit,
    pub(crate) deliveries: &'a mut Deliveries,
}

impl Deliveries {
    /// `at_once`: to so many receivers a message goes in one turn.
    /// `memory`: the budget of messages that wait.
    pub(crate) fn new(at_once: u32, memory: &Arc<Budget>) -> Self {
        Self {
            pool: MessagePool::new(memory),
            frames: Frames::default(),
            fan_outs: FanOuts::new(at_once),
        }
    }

    /// Gives back a message that is not needed here any more.
    pub(crate) fn release(&mut self, message: Arc<Message>) {
        self.pool.release(message);
    }

    /// Whether a message is on its way to very many.
    #[inline]
    pub(crate) fn has_fan_outs(&self) -> bool {
        !self.fan_outs.is_empty()
    }

    /// Whether a turn is to be asked for, in which what is on its way to very many goes on.
    pub(crate) fn schedule_fan_outs(&mut self) -> bool {
        self.fan_outs.schedule()
    }

    /// Takes what was waited for until all receivers of a message had it.
    pub(crate) fn pop_settled(&mut self) -> Option<u64> {
        self.fan_outs.pop_settled()
    }
}
