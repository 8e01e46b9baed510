//! What an operator is shown of lanes: first those that publishers stamp, then those that the
//! broker numbers for its clients.
//!
//! A page costs a look at [`LOOKS_MAX`] lanes or sessions at most.

use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Epoch, LaneId};

use crate::audit::verify::LaneInfo;
use crate::connection::Connection;
use crate::session::LOOKS_MAX;
use crate::shard::Shard;

/// Which lanes are wanted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LaneFilter {
    /// This one, with all its epochs.
    pub lane: Option<u64>,
    /// Those whose id, client or user has this in it.
    pub text: Option<Arc<str>>,
}

/// A part of the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LanePage {
    /// At most as many as were asked for.
    pub entries: Vec<LaneInfo>,
    /// Where the next page begins; `None` behind the last.
    pub next: Option<LanePlace>,
}

/// Where a page begins. The first one at the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LanePlace {
    /// Behind this lane and epoch of those that publishers stamp, or at the first.
    Stamped(Option<(u64, u32)>),
    /// At this session.
    Session(u64),
}

impl Default for LanePlace {
    fn default() -> Self {
        Self::Stamped(None)
    }
}

impl LaneFilter {
    fn wants(&self, info: &LaneInfo) -> bool {
        let has_text = |text: &str| {
            info.client_id.contains(text)
                || info.user.as_deref().is_some_and(|user| user.contains(text))
                || format!("{:016x}", info.lane).contains(text)
        };
        self.lane.is_none_or(|lane| lane == info.lane) && self.text.as_deref().is_none_or(has_text)
    }
}

impl Shard {
    /// Lanes of this shard's clients.
    pub fn lanes(
        &self,
        now: Instant,
        filter: &LaneFilter,
        from: LanePlace,
        most: usize,
    ) -> LanePage {
        let mut entries = Vec::new();
        let mut looks = LOOKS_MAX;
        let (mut after, mut index) = match from {
            LanePlace::Stamped(after) => (after, None),
            LanePlace::Session(index) => (None, Some(index)),
        };
        while index.is_none() && looks > 0 && entries.len() < most {
            looks -= 1;
            let key = after.and_then(|(lane, epoch)| Some((LaneId::new(lane)?, Epoch(epoch))));
            match self.audit.lane_info(key, now) {
                Some(((lane, epoch), info)) => {
                    after = Some((lane.value(), epoch.0));
                    entries.extend(Some(info).filter(|info| filter.wants(info)));
                }
                None => index = Some(0),
            }
        }
        let Some(mut index) = index else {
            let next = Some(LanePlace::Stamped(after));
            return LanePage { entries, next };
        };
        let end = self.sessions.end() as u64;
        while index < end && looks > 0 && entries.len() < most {
            looks -= 1;
            let info = self.ingress_lane(index);
            entries.extend(info.filter(|info| filter.wants(info)));
            index += 1;
        }
        let next = (index < end).then_some(LanePlace::Session(index));
        LanePage { entries, next }
    }

    fn ingress_lane(&self, index: u64) -> Option<LaneInfo> {
        let session = self.sessions.at(usize::try_from(index).ok()?)?;
        let connection = session.connection();
        let connection = connection.and_then(|index| self.connections.at(index));
        let user = connection.and_then(Connection::user);
        Some(session.ledger.lane()?.info(&session.client_id, user))
    }
}
