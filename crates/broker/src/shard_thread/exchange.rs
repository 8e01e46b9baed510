//! Messages between shards while no client is connected: before the first connection, and after the
//! last. One thread has all shards then.

use std::time::Instant;

use unbroken_broker_core::Input;

use super::ShardThread;
use crate::batching::Turn;
use crate::driver::input;

/// Restored shards exchange their state before any client connects.
pub(crate) fn exchange_initial(shards: &mut [ShardThread]) {
    let now = Instant::now();
    for thread in &mut *shards {
        let timeout = Input::Timeout { heard: now };
        input(&mut thread.shard, &mut thread.driver, now, timeout);
    }
    exchange(shards, now);
}

/// Until no message is in a channel.
fn exchange(shards: &mut [ShardThread], now: Instant) {
    loop {
        for thread in &mut *shards {
            if let Some(store_handle) = &mut thread.driver.store_handle {
                store_handle.turn(now, &thread.shard);
            }
            thread.driver.flush_channels();
        }
        let messages =
            |thread: &ShardThread| thread.from_shards.iter().flatten().any(|f| !f.is_empty());
        let unsent = |thread: &ShardThread| thread.driver.has_unsent();
        if !shards
            .iter()
            .any(|thread| messages(thread) || unsent(thread))
        {
            return;
        }
        for thread in &mut *shards {
            thread.take_events(now, &mut Turn::default());
        }
    }
}

/// All shards have ended and no client is left: they process the messages that remain between them,
/// so that each lost message is counted under a drop reason.
pub(crate) fn exchange_final(shards: &mut [ShardThread]) {
    let now = Instant::now();
    exchange(shards, now);
    for thread in &mut *shards {
        // Once more, for counts since the last report.
        input(&mut thread.shard, &mut thread.driver, now, Input::Drain);
    }
    exchange(shards, now);
}
