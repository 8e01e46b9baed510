//! What outlives the broker: what is asked of the disk, and what waits for it.

mod commit_gate;
mod log_ends;
mod qos2_pending;
mod read;
mod reads;
mod record;
mod recovery_scan;
mod request;
mod retention;
mod wait;

pub use read::{ReadAnswer, ReadRequest};
pub use record::{
    Entry, LaneState, LaneTold, LaneUser, Marker, MaybeSent, Presence, Progress, ReceivedEntry,
    Record, StoredSubscription, Will,
};
pub use request::StoreRequest;
pub use retention::StoreSize;

pub(crate) use commit_gate::CommitGate;
pub(crate) use reads::{LogPart, Purpose};
pub(crate) use record::{HOLDS_ON, NOT_IN_FORCE};
pub(crate) use recovery_scan::RecoveryScan;
pub(crate) use request::Request;
pub(crate) use retention::{Retention, Waiting, is_too_old};
pub(crate) use wait::{WaitFor, Waiter};
