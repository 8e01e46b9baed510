//! A look at a client's packets, for programs that show them.

use std::sync::Arc;

use unbroken_mqtt_proto::Packet;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the broker.
    Sent,
    /// From the broker to the client.
    Received,
}

/// Sees every packet; see [`Options::observer`](crate::Options::observer).
pub(crate) type Observer = Arc<dyn Fn(Direction, &Packet<'_>) + Send + Sync>;
