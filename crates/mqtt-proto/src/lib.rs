//! MQTT 3.1, 3.1.1 and 5.0: bytes to packets and back, topics, connection and session state. No
//! I/O, no clock.
//!
//! From the bytes up:
//!
//! - [`next_frame`] finds one packet in a buffer, [`Packet::decode`] makes a borrowed view of it,
//!   [`Packet::encode`] writes it. The view serves all three versions; what differs between them is
//!   in `version`.
//! - What is wrong with received bytes is a [`DecodeError`], which knows the [`ReasonCode`] that
//!   the peer is told.
//!
//! Invariants: decoding allocates nothing and panics at nothing; what `encode` writes, `decode`
//! accepts.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

pub mod connection;
mod deframer;
mod error;
mod escaped;
pub mod packet;
mod primitive;
pub mod property;
mod qos;
mod reason;
pub mod session;
pub mod topic;
mod version;

pub use self::{
    deframer::{Frame, frame_length, next_frame},
    error::{DecodeError, EncodeError, Field},
    escaped::Escaped,
    packet::{
        Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketType, PropertySection, Publish,
        RetainHandling, SubAck, Subscribe, SubscriptionOptions, Subscriptions, TopicFilters,
        UnsubAck, Unsubscribe, Will, publish,
    },
    primitive::MAX_VARINT,
    property::{Properties, Property, PropertyBuf, PropertyId},
    qos::{InvalidQoS, PacketId, QoS},
    reason::{ReasonCode, UnknownReasonCode},
    topic::{SubscriptionFilter, TopicError, TopicFilter, TopicName},
    version::Version,
};
