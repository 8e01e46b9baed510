//! What of a session outlives its connection: the acknowledgement state of both directions.
//!
//! [`Outbound`] holds the QoS 1 and QoS 2 messages that this side has begun to send and the other
//! side has not finished acknowledging; [`Inbound`] holds the packet ids of the messages that the
//! other side has begun to send here. The two never meet: packet ids of one direction say nothing
//! about the other, so a client uses the same two values with the roles exchanged.
//!
//! Deliberately absent: the queue behind the window, subscriptions, expiry, time (there are no
//! timed re-sends `[MQTT-4.4.0-1]`), and bytes. The owner sends what the values say, and stores
//! what their documentation says must be stored.

mod inbound;
mod outbound;
mod table;

#[cfg(test)]
mod reference_model;

pub use inbound::{Arrival, Inbound, ReceiveMaximumExceeded};
pub use outbound::{
    AckError, Drained, DuplicateId, Entry, INFLIGHT_MAX, Outbound, PubRec, Resend, Start,
};
