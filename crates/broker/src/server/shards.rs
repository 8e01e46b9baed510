//! The shards of a broker that starts, before they have threads.

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use unbroken_broker_core::{
    Input, Policy, RuleSet, Settings, Shard, ShardId, ShardOptions, Totals,
};

use super::StartError;
use crate::authenticator::AuthRules;
use crate::config::Config;
use crate::disk::OpenedStore;
use crate::handle::AccessInForce;

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

/// The access rules of the configuration, the program and the store, and its users and bans.
pub(super) fn access_in_force(
    config: &Config,
    of_program: Vec<RuleSet>,
    opened: Option<&OpenedStore>,
) -> Result<Arc<AccessInForce>, StartError> {
    let stored = opened.map(OpenedStore::access).transpose()?;
    let of_config = (&*config.listeners, &*config.roles);
    let access = AccessInForce::start(of_config, of_program, stored.unwrap_or_default())?;
    access.bans().set_rules(config.bans);
    Ok(Arc::new(access))
}

pub(super) fn settings(config: &Config, auth_rules: &AuthRules) -> Settings {
    let mut settings = Settings::default();
    // Whole seconds up to 65,535: the configuration allows no more.
    settings.keep_alive_max_s = config
        .mqtt
        .server_keep_alive
        .map(|keep_alive| u16::try_from(keep_alive.as_secs()).unwrap_or(u16::MAX));
    settings.sys_interval = config.broker.sys_interval;
    settings.durable = config.storage.place().is_some();
    settings.client_ids = auth_rules.client_ids();
    settings.mount_points = auth_rules.mount_points();
    settings.audit.enabled = config.audit.stamping;
    settings.audit.rules.clone_from(&config.audit.rules);
    settings.audit.prefix.clone_from(&config.audit.prefix);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    // With a clock before 1970 epochs count from 0.
    let started = since_1970.unwrap_or_default().as_micros();
    settings.audit.started_us = u64::try_from(started).unwrap_or(0);
    settings
}
