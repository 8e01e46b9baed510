//! UNSUBSCRIBE: what a client no longer wants.

use crate::{property::Properties, qos::PacketId};

/// A client ends subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Of the UNSUBACK to come.
    pub packet_id: PacketId,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// At least one when decoded.
    pub filters: TopicFilters<'a>,
}

/// Filters: bytes of a decoded packet, or a list to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicFilters<'a>(List<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List<'a> {
    Given(&'a [&'a str]),
}

impl<'a> TopicFilters<'a> {
    /// A list to be encoded.
    pub const fn new(list: &'a [&'a str]) -> Self {
        Self(List::Given(list))
    }

    /// The filters, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let List::Given(list) = self.0;
        list.iter().copied()
    }
}
