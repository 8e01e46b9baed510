//! Rates of clients: given to them when they are let in, and again when the rules change.

use std::sync::Arc;
use std::time::Instant;

use unbroken_broker_core::{
    Admission, ConnectionId, Identity, Input, RatePlace, RateRefusal, RateScope, Rates, Shard,
};

use super::{Driver, carry_out, input};
use crate::rates::RateTable;

/// Gives a client that is let in its rates, or refuses it: before a session is taken over.
pub(super) fn admit(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    connection: ConnectionId,
    admission: Admission,
) -> Admission {
    let Admission::Granted(grant) = &admission else {
        return admission;
    };
    if driver.auth_rules.rates.is_empty() {
        return admission;
    }
    // Without a CONNECT it authenticates again, and has its rates.
    let Some(identity) = shard.identity_with(connection, grant) else {
        return admission;
    };
    let scopes = scopes(shard, &driver.auth_rules.rates, &identity, now);
    match enter(shard, &identity, &scopes, now) {
        Ok(places) => {
            let rates = rates_of(places, now);
            carry_out(shard, driver, now, Input::RatesSet { connection, rates });
            admission
        }
        Err(RateRefusal { reason, detail }) => Admission::Refused {
            reason,
            detail: detail.into(),
        },
    }
}

/// The rates or the roles of clients have changed. `before`: the rates until now.
pub(crate) fn renew_rates(
    shard: &mut Shard,
    driver: &mut Driver,
    now: Instant,
    before: &Arc<RateTable>,
) {
    let table = Arc::clone(&driver.auth_rules.rates);
    let is_same = Arc::ptr_eq(before, &table);
    let may_differ = if is_same {
        table.names_roles()
    } else {
        !(before.is_empty() && table.is_empty())
    };
    if !may_differ {
        return;
    }
    for (connection, identity) in shard.identities() {
        let scopes = scopes(shard, &table, &identity, now);
        if is_same && has_these(shard.rates(connection), &scopes) {
            continue;
        }
        let places = scopes.iter().map(RateScope::join).collect();
        let rates = rates_of(places, now);
        input(shard, driver, now, Input::RatesSet { connection, rates });
    }
}

fn scopes(
    shard: &Shard,
    table: &RateTable,
    identity: &Identity,
    now: Instant,
) -> Vec<Arc<RateScope>> {
    let roles = if table.names_roles() {
        shard.roles_of(identity)
    } else {
        Vec::new()
    };
    table.scopes(identity, &roles, now)
}

/// A place in each scope; one that the client's connection before has is still taken.
fn enter(
    shard: &Shard,
    identity: &Identity,
    scopes: &[Arc<RateScope>],
    now: Instant,
) -> Result<Vec<RatePlace>, RateRefusal> {
    let old = shard.rates_of_client(&identity.client_id);
    let is_replaced = |scope| old.is_some_and(|old| old.is_in(scope));
    let places = scopes.iter().map(|scope| scope.enter(is_replaced(scope)));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    for (index, place) in places.iter().enumerate() {
        if let Err(refusal) = place.admit(now) {
            places[..index].iter().for_each(RatePlace::take_back);
            return Err(refusal);
        }
    }
    Ok(places)
}

fn has_these(rates: Option<&Rates>, scopes: &[Arc<RateScope>]) -> bool {
    let rules = rates.into_iter().flat_map(Rates::rules);
    rules.eq(scopes.iter().map(|scope| scope.rule()))
}

fn rates_of(places: Vec<RatePlace>, now: Instant) -> Option<Box<Rates>> {
    (!places.is_empty()).then(|| Box::new(Rates::new(places, now)))
}
