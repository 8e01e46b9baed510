//! A byte transform: one protocol between the socket and MQTT, such as TLS or WebSocket.
//!
//! It knows no socket, no time and no connection: bytes go in, bytes come out. What it keeps is its
//! own protocol's state.

use std::fmt;

use unbroken_broker_core::Peer;

use crate::config::Protocol;

/// One protocol of a stack. Its *wire side* is what the layer below carries, its *plain side* what
/// the layer above means.
pub(crate) trait Transform: fmt::Debug + Send {
    /// Opens bytes from the layer below: appends what they mean to `plain`, and what the peer is to
    /// be sent for them (a step of the handshake, a pong, an alert) to `reply`. Bytes it does not
    /// use come again, with more behind them. May be called with no bytes, so that a protocol can
    /// speak first.
    fn open(&mut self, wire: &mut [u8], plain: &mut Vec<u8>, reply: &mut Vec<u8>) -> Opened;

    /// Whether it can seal: its handshake is done, and it has not ended. Before that the layer
    /// above is not called.
    fn is_open(&self) -> bool;

    /// Appends `plain` as one record, or several, to `wire`. If it cannot any more (its keys are
    /// used up), it appends nothing and is not open afterwards.
    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>);

    /// Appends to `wire` what the peer is sent at the end; nothing is sealed after it.
    fn close(&mut self, wire: &mut Vec<u8>);

    /// Memory that it keeps beside itself.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Notes what it knows of the other side, once all layers are open.
    fn identify(&mut self, _peer: &mut Peer) {}

    /// Why it has ended with [`End::Invalid`], as a part of a sentence.
    fn refusal(&self) -> Option<&str> {
        None
    }

    /// The protocols of listeners that its peer may have meant, where it speaks another one.
    fn needs(&self) -> &'static [Protocol] {
        &[]
    }
}

/// What [`Transform::open`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    /// So many bytes, from the front, were used. Those behind them are the beginning of something
    /// longer, or follow the end.
    pub(crate) used: usize,
    /// What follows the used bytes is never looked at.
    pub(crate) end: Option<End>,
}

/// How the stream of a layer has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The peer has closed it, as the protocol says.
    Closed,
    /// The bytes break the protocol.
    Invalid,
}
