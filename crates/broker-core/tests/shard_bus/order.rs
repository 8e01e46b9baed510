//! Letters that overtake others.

use unbroken_broker_core::{Mail, ShardId};

use super::Broker;

impl Broker {
    /// All letters that are held arrive, those of the shard that wrote first behind all others.
    pub(crate) fn deliver_mail_of_others_first(&mut self) {
        let first = self.mail.front().map(|(from, ..)| *from);
        let is_of_others = |(from, ..): &(ShardId, ShardId, Mail)| Some(*from) != first;
        let (others, own): (Vec<_>, Vec<_>) = self.mail.drain(..).partition(is_of_others);
        self.mail.extend(others.into_iter().chain(own));
        self.deliver_mail();
    }
}
