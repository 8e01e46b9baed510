//! What outlives the broker: what is asked of the disk, and what waits for it.

mod commit_gate;
mod log_ends;
mod qos2_pending;
mod read;
mod record;
mod request;
mod wait;

pub use read::{ReadAnswer, ReadRequest};
pub use record::{
    Entry, LaneState, LaneTold, Marker, MaybeSent, Presence, Progress, ReceivedEntry, Record,
    StoredSubscription, Will,
};
pub use request::StoreRequest;

pub(crate) use commit_gate::CommitGate;
pub(crate) use qos2_pending::Qos2Pending;
pub(crate) use record::{HOLDS_ON, NOT_IN_FORCE};
pub(crate) use request::Request;
pub(crate) use wait::{WaitFor, Waiter};
