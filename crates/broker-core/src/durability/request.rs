//! What a shard asks of the store.

use super::{ReadRequest, Record};
use crate::ids::StoreId;
use crate::position::Frontier;

/// One request, in the order in which the shard makes them.
#[derive(Debug)]
pub(crate) enum Request {
    Store(StoreRequest),
    /// After all that was asked to be stored before.
    Read(ReadRequest),
    /// When all is on disk that was asked for before, the logs may be trimmed up to there.
    Trim(Frontier),
}

/// What must be on disk before something may leave.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    /// Answered by [`crate::Input::Stored`] with this or a later number.
    pub id: StoreId,
    /// What is to be stored.
    pub record: Record,
}
