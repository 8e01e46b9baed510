//! The shards of a broker that starts, before they have threads.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{
    Input, Policy, RuleSet, Settings, Shard, ShardId, ShardOptions, Totals,
};

use crate::config::Config;

/// What a broker is started with that no configuration file has.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ServerOptions {
    /// What clients may do, beside what the configuration says.
    /// [`crate::BrokerHandle::set_access`] replaces it.
    pub access: Vec<RuleSet>,
}

pub(super) fn new_shards(
    mut settings: Settings,
    config: &Config,
    count: u8,
    totals: &Arc<Totals>,
    was_killed: bool,
) -> io::Result<Vec<Shard>> {
    let start = Instant::now();
    settings.audit.after_crash = was_killed;
    let shard = |id| {
        Ok(Shard::new(ShardOptions {
            id,
            shards: count,
            limits: config.limits.clone(),
            settings: settings.clone(),
            totals: Arc::clone(totals),
            seed: getrandom::u64().map_err(io::Error::other)?,
            start,
        }))
    };
    (0..count).map(ShardId).map(shard).collect()
}

/// Gives shards that have no clients yet the rules for them.
pub(super) fn put_in_force(policy: Option<&Arc<Policy>>, shards: &mut [Shard]) {
    let Some(policy) = policy else {
        return;
    };
    for shard in shards {
        let input = Input::PolicyReplaced(Some(Arc::clone(policy)));
        let outputs = shard.handle(Instant::now(), input).count();
        debug_assert_eq!(outputs, 0, "there is no client yet");
    }
}
