//! Messages between shards that overtake others.

use unbroken_broker_core::{ShardId, ShardMessage};

use super::Broker;

impl Broker {
    /// All messages that are held arrive, those of the shard that wrote first behind all others.
    pub(crate) fn deliver_messages_of_others_first(&mut self) {
        let first = self.messages.front().map(|(from, ..)| *from);
        let is_of_others = |(from, ..): &(ShardId, ShardId, ShardMessage)| Some(*from) != first;
        let (others, own): (Vec<_>, Vec<_>) = self.messages.drain(..).partition(is_of_others);
        self.messages.extend(others.into_iter().chain(own));
        self.deliver_messages();
    }
}
