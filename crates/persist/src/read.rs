//! Part of a log, for a session that is behind.

use std::ops::Range;
use std::sync::Arc;

use unbroken_broker_core::{LogId, ReadAnswer, ReadRequest};
use unbroken_mqtt_proto::TopicFilter;
use unbroken_store::{Log, Selection, StoreError};

use crate::message::message_of;
use crate::position::{behind, last_before, log_of, position_of, shard_log};
use crate::times::Times;

/// Reads what was asked for: on until there is something, or nothing more. In the background, and
/// with many filters, which take long, one piece, also if there is nothing in it, since others wait
/// for the one who reads.
pub fn read(
    store: &dyn Log,
    request: &ReadRequest,
    times: &Times,
) -> Result<ReadAnswer, StoreError> {
    let log = log_of(request.log);
    let filters = request.filters.iter();
    let wanted = Selection::new(filters.filter_map(|filter| TopicFilter::parse(filter).ok()));
    let mut from = behind(request.after);
    let end = store.bounds(log)?.next.min(behind(request.last));
    let reads_on = !request.in_background && wanted.len() <= READ_ON_FILTERS_MAX;
    let mut messages = Vec::new();
    let mut is_first = true;
    while messages.is_empty() && from < end && (is_first || reads_on) {
        is_first = false;
        let chunk = store.read_matching(log, from..end, &wanted, request.bytes_max)?;
        messages.extend(chunk.entries.iter().map(|entry| {
            let position = position_of(log, entry.sequence);
            Arc::new(message_of(&entry.message, position, times))
        }));
        from = chunk.next;
    }
    Ok(ReadAnswer {
        session: request.session,
        token: request.token,
        log: request.log,
        messages,
        through: last_before(from).max(request.after),
    })
}

/// Numbers that no message of a log has, of each log in ascending order.
pub fn left_out(store: &dyn Log) -> Result<Vec<(LogId, Range<u64>)>, StoreError> {
    let mut all = Vec::new();
    for log in store.logs()? {
        let left_out = store.left_out(log)?.into_iter();
        all.extend(left_out.map(|range| (shard_log(log), range.start.0..range.end.0)));
    }
    Ok(all)
}

/// With so many filters one piece is as much of a log as with one: 64 generations.
const READ_ON_FILTERS_MAX: usize = 64;
