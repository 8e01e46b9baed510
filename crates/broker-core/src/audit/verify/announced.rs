//! Lanes that their publisher announces: a directory that lists an epoch with no messages opens it,
//! so that its first message is missed if it does not come.
//!
//! Invariant: a directory opens no lane of another client, and only within the shares of lanes.

use unbroken_merkle_log::{Directory, Xxh3};

use crate::audit::known::Origin;
use crate::audit::owners::Sender;
use crate::message::Publication;
use crate::shard::Shard;

impl Shard {
    /// Takes a directory of a publisher. One that cannot be read, or needs a key, says nothing.
    pub(super) fn verify_directory(&mut self, sender: &Sender, publication: &Publication<'_>) {
        let Some(directory) = Directory::parse(publication.payload)
            .ok()
            .and_then(|sealed| sealed.open(&Xxh3).ok())
        else {
            return;
        };
        for open in directory.lanes.iter().filter(|open| open.size == 0) {
            let owner = self.publishers.other_owner(open.lane, sender, &self.owners);
            if owner.is_none() {
                self.open_lane((open.lane, open.epoch), sender, Origin::Begins);
            }
        }
    }
}
