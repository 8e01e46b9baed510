//! SUBSCRIBE: what a client wants to receive.

use crate::{
    property::Properties,
    qos::{PacketId, QoS},
};

/// A client asks for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Of the SUBACK to come.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// At least one when decoded.
    pub filters: Subscriptions<'a>,
}

/// How messages of one subscription are to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// At most this.
    pub qos: QoS,
    /// Not what the same client published.
    pub no_local: bool,
    /// Keep the publisher's retain flag.
    pub retain_as_published: bool,
    /// Whether retained messages come at once.
    pub retain_handling: RetainHandling,
}

/// When retained messages are sent upon a SUBSCRIBE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every SUBSCRIBE.
    #[default]
    SendAlways = 0,
    /// If the subscription did not exist.
    SendIfNew = 1,
    /// Not at all.
    DoNotSend = 2,
}

/// Filters with their options: bytes of a decoded packet, or a list to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriptions<'a>(List<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List<'a> {
    Given(&'a [(&'a str, SubscriptionOptions)]),
}

impl<'a> Subscriptions<'a> {
    /// A list to be encoded.
    pub const fn new(list: &'a [(&'a str, SubscriptionOptions)]) -> Self {
        Self(List::Given(list))
    }

    /// The filters with their options, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, SubscriptionOptions)> + Clone + use<'a> {
        let List::Given(list) = self.0;
        list.iter().copied()
    }
}
