//! Carries out requests of a handle.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use unbroken_broker_core::{Input, Operation, Shard};

use super::traces;
use crate::driver::{Driver, input, renew_rates};
use crate::request::Request;

/// Carries out one request. An answer has room, unless the requesting thread has given up.
pub(super) fn carry_out(shard: &mut Shard, driver: &mut Driver, now: Instant, request: Request) {
    match request {
        Request::Look(look) => look.carry_out(shard),
        Request::Counters(answer) => {
            let _ = answer.try_send(shard.stats().clone());
        }
        Request::Disconnect { client_id, answer } => {
            let is_here = shard.is_connected(&client_id);
            operate(shard, driver, now, Operation::Disconnect { client_id });
            let _ = answer.try_send(is_here);
        }
        Request::Publish(message, charge, answer) => {
            let refused = shard.refuses(&message);
            operate(shard, driver, now, Operation::Publish(message));
            drop(charge);
            let (done, stored) = channel();
            driver.notify_when_stored(done);
            let _ = answer.try_send(refused.map_or(Ok(stored), Err));
        }
        Request::Forget { what, done } => {
            operate(shard, driver, now, Operation::Forget(what));
            driver.notify_when_stored(done);
        }
        Request::Ban { clients, answer } => {
            operate(shard, driver, now, Operation::Ban(clients));
            let _ = answer.try_send(());
        }
        Request::Watch(watch) => driver.watches.push(watch),
        Request::Trace { filter, watch } => traces::begin(shard, driver, filter, watch),
        Request::EndTrace(number) => traces::end(shard, driver, number),
        Request::SetAccess { policy, answer } => {
            input(shard, driver, now, Input::PolicyReplaced(policy));
            let rates = Arc::clone(&driver.auth_rules.rates);
            renew_rates(shard, driver, now, &rates);
            let _ = answer.try_send(());
        }
    }
}

fn operate(shard: &mut Shard, driver: &mut Driver, now: Instant, operation: Operation) {
    input(shard, driver, now, Input::Operator(operation));
}
