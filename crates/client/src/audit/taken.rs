//! Which inputs have their output: what the spool of a processor's lane knows of its other side, so
//! that after a restart no input is lost and none is worked on twice.
//!
//! It is a ledger in which an input arrives when its output gets its number, or when it is said to
//! be dropped, and not when it came. What a crash interrupts is missing in it, and welcome when it
//! comes again.
//!
//! Invariants: it never knows more than the spool: each change goes into the same frame as the
//! output that it is about; what it takes in is flagged re-sent, so that the order in which a
//! processor finishes is not mistaken for the order of a lane.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unbroken_merkle_log::ledger::{Join, Ledger, LedgerLimits, StateError};
use unbroken_merkle_log::{Checkpoint, DropRecord, Hasher, LaneId, Parents, Property};

use super::{ORIGIN, PARENTS};
use crate::Message;

/// Shared by the task that writes the spool and the processor that begins on it.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTaken(Arc<Mutex<Taken>>);

/// What a processor knows of its inputs.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) ledger: Ledger<Hasher>,
    /// Lanes whose messages are inputs themselves.
    pub(super) direct: BTreeSet<LaneId>,
    /// Lanes of what those were made of.
    pub(super) origins: BTreeSet<LaneId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// `None` until a processor begins: other publishers have no inputs.
    ledger: Option<Ledger<Hasher>>,
    join: Option<Join>,
    /// Lanes whose messages are inputs themselves.
    direct: BTreeSet<LaneId>,
    /// Those, and the lanes of what they were made of.
    lanes: BTreeSet<LaneId>,
    /// The spool does not have it as it began.
    is_new: bool,
}

impl SharedTaken {
    pub(super) fn new(taken: Taken) -> Self {
        Self(Arc::new(Mutex::new(taken)))
    }

    /// No code that can panic runs under the lock, so what it holds is whole.
    pub(super) fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Reads what [`save`](Self::save) wrote.
    pub(super) fn restore(saved: &[u8], hasher: &Hasher) -> Result<Self, StateError> {
        let (join, saved) = saved.split_first().ok_or(StateError::Tag)?;
        let join = match join {
            0 => Join::Beginning,
            1 => Join::Late,
            _ => Join::Member,
        };
        let limits = LedgerLimits::default();
        let (ledger, position) = Ledger::restore(saved, hasher.clone(), limits, join)?;
        let (direct, lanes, _) = read_position(&position);
        Ok(Self {
            ledger: Some(ledger),
            join: Some(join),
            direct,
            lanes,
            is_new: false,
        })
    }

    /// `None` where no processor has begun.
    pub(super) fn save(&mut self) -> Option<Vec<u8>> {
        self.forget_events();
        let (ledger, join) = (self.ledger.as_ref()?, self.join?);
        let mut saved = vec![match join {
            Join::Beginning => 0,
            Join::Late => 1,
            Join::Member => 2,
        }];
        let position = write_position(&self.direct, &self.lanes, &[]);
        // Its clock has never run.
        ledger.save(&position, Duration::ZERO, &mut saved);
        Some(saved)
    }

    /// The same once, when the spool does not have it yet.
    pub(super) fn save_new(&mut self) -> Option<Vec<u8>> {
        let is_new = std::mem::take(&mut self.is_new);
        is_new.then(|| self.save()).flatten()
    }

    /// A processor begins. It goes on with what is returned; where the spool remembers nothing that
    /// is its own.
    pub(super) fn begin(&mut self, own: Heard, join: Join, limits: &LedgerLimits) -> Heard {
        let remembered = self.ledger.take();
        self.is_new = remembered.is_none() || self.join != Some(join);
        self.join = Some(join);
        let Some(ledger) = remembered else {
            self.lanes = own.direct.union(&own.origins).copied().collect();
            self.direct.clone_from(&own.direct);
            self.ledger = Some(own.ledger.clone());
            return own;
        };
        // The limits may be others than the last time.
        let ledger = ledger.with(limits.clone(), join);
        self.ledger = Some(ledger.clone());
        Heard {
            ledger,
            origins: self.lanes.difference(&self.direct).copied().collect(),
            direct: self.direct.clone(),
        }
    }

    /// An output has its number: what it was made of has been seen to.
    pub(super) fn output(&mut self, message: &Message) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let mut input = None;
        for (name, value) in message.properties().user_properties() {
            if name == ORIGIN
                && let Ok(mut origin) = Property::parse_text(value)
            {
                origin.flags.resent = true;
                ledger.origin(&origin, Duration::ZERO);
                self.lanes.insert(origin.lane);
                input = Some(origin.lane);
            } else if name == PARENTS
                && let Ok(parents) = Parents::parse_text(value)
            {
                ledger.parents(&parents, Duration::ZERO);
                self.lanes.extend(parents.lanes().iter().map(|of| of.lane));
            }
        }
        // The last of them is the input itself.
        self.direct.extend(input);
    }

    /// Messages are said to be dropped.
    pub(super) fn dropped(&mut self, record: &DropRecord) {
        if let Some(ledger) = &mut self.ledger {
            ledger.left_out(record, Duration::ZERO);
            self.lanes.insert(record.lane);
        }
    }

    /// A checkpoint was passed on, behind the outputs of all that it covers: what it proves needs
    /// no leaves any more.
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) {
        if let Some(ledger) = &mut self.ledger {
            ledger.checkpoint(checkpoint, Duration::ZERO);
        }
        self.forget_events();
    }

    /// Inputs come in this lane. True: that is new.
    pub(super) fn hears(&mut self, lane: LaneId) -> bool {
        self.ledger.is_some() && self.direct.insert(lane)
    }

    /// The next stage judges for itself.
    fn forget_events(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.take_events().for_each(drop);
        }
    }
}

/// The lanes in front of the owner's position.
pub(super) fn write_position(
    direct: &BTreeSet<LaneId>,
    origins: &BTreeSet<LaneId>,
    position: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for lanes in [direct, origins] {
        let count = u32::try_from(lanes.len()).expect("limited to far fewer lanes");
        bytes.extend_from_slice(&count.to_be_bytes());
        for lane in lanes {
            bytes.extend_from_slice(&lane.value().to_be_bytes());
        }
    }
    bytes.extend_from_slice(position);
    bytes
}

/// What [`write_position`] wrote; the ledger's tag vouches for it.
pub(super) fn read_position(mut bytes: &[u8]) -> (BTreeSet<LaneId>, BTreeSet<LaneId>, Vec<u8>) {
    let mut list = || {
        let mut lanes = BTreeSet::new();
        let Some((count, mut rest)) = bytes.split_first_chunk() else {
            return lanes;
        };
        for _ in 0..u32::from_be_bytes(*count) {
            let Some((lane, behind)) = rest.split_first_chunk() else {
                break;
            };
            lanes.extend(LaneId::new(u64::from_be_bytes(*lane)));
            rest = behind;
        }
        bytes = rest;
        lanes
    };
    let (direct, origins) = (list(), list());
    (direct, origins, bytes.to_vec())
}
