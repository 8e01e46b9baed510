//! What shards have to say to each other while no client is served: before the first comes, and
//! when the last has gone. One thread has them all then.

use std::time::Instant;

use unbroken_broker_core::Input;

use super::ShardThread;
use crate::batching::Turn;
use crate::driver::input;

/// Shards that were restored have something to say to each other. They read it before any client
/// comes.
pub(crate) fn introduce(shards: &mut [ShardThread]) {
    let now = Instant::now();
    for thread in &mut *shards {
        let timeout = Input::Timeout { heard: now };
        input(&mut thread.shard, &mut thread.driver, now, timeout);
    }
    exchange(shards, now);
}

/// Until nothing is on its way between them.
fn exchange(shards: &mut [ShardThread], now: Instant) {
    loop {
        for thread in &mut *shards {
            if let Some(desk) = &mut thread.driver.desk {
                desk.turn(now, &thread.shard);
            }
            thread.driver.flush_feeds();
        }
        let letters =
            |thread: &ShardThread| thread.from_shards.iter().flatten().any(|f| !f.is_empty());
        let unsent = |thread: &ShardThread| thread.driver.has_unsent();
        if !shards
            .iter()
            .any(|thread| letters(thread) || unsent(thread))
        {
            return;
        }
        for thread in &mut *shards {
            thread.take_parcels(now, &mut Turn::default());
        }
    }
}

/// All shards have ended, and no client is left: lets them read what they have written to each
/// other since, so that each message in it is named.
pub(crate) fn settle(shards: &mut [ShardThread]) {
    let now = Instant::now();
    exchange(shards, now);
    for thread in &mut *shards {
        // Once more, for what was counted since it was last told.
        input(&mut thread.shard, &mut thread.driver, now, Input::Drain);
    }
    exchange(shards, now);
}
