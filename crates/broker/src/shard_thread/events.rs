//! What a shard thread does with an event of another thread.

use std::time::Instant;

use unbroken_broker_core::{Input, Shard, ShardId};

use super::requests;
use crate::channel::{DriverEvent, NewPolicy};
use crate::driver::{Driver, decided, input, open, renew_rates};

pub(super) fn handle_event(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    from: Option<ShardId>,
    event: DriverEvent,
) {
    match event {
        DriverEvent::ShardMessage(message) => {
            if let Some(from) = from {
                input(shard, driver, now, Input::ShardMessage { from, message });
            }
        }
        DriverEvent::Connection(incoming) => open(shard, driver, now, *incoming),
        DriverEvent::Admission {
            connection,
            admission,
        } => decided(shard, driver, now, connection, admission),
        DriverEvent::Stored(id, batches) => {
            drop(batches);
            if let Some(store_handle) = &mut driver.store_handle {
                store_handle.stored(id);
            }
            input(shard, driver, now, Input::Stored(id));
        }
        DriverEvent::Read(answer) => input(shard, driver, now, Input::Read(*answer)),
        DriverEvent::StoreSize(size) => input(shard, driver, now, Input::StoreSize(size)),
        DriverEvent::StoreFailed { cause } => {
            if let Some(store_handle) = &mut driver.store_handle {
                store_handle.failed();
            }
            input(shard, driver, now, Input::StoreFailed { cause });
        }
        DriverEvent::Request(request) => requests::carry_out(shard, driver, now, *request),
        DriverEvent::Reconfigured {
            limits,
            auth_rules,
            policy,
            applied,
        } => {
            let client_ids = auth_rules.client_ids();
            let mount_points = auth_rules.mount_points();
            let before = std::mem::replace(&mut driver.auth_rules, auth_rules);
            if let Some(NewPolicy(policy)) = policy {
                input(shard, driver, now, Input::PolicyReplaced(policy));
            }
            input(shard, driver, now, Input::Reconfigured(limits));
            input(shard, driver, now, Input::ClientIdRulesReplaced(client_ids));
            // Behind the policy, with which it decides.
            input(shard, driver, now, Input::MountPointsReplaced(mount_points));
            renew_rates(shard, driver, now, &before.rates);
            drop(applied);
        }
        DriverEvent::Drain { until } => {
            driver.drain_until = Some(until);
            input(shard, driver, now, Input::Drain);
        }
    }
}
