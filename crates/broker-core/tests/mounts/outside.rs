//! What lies outside a mount: only rules that are about the client open it.

use super::*;

/// A role of everybody that allows these filters, of clients of one listener.
fn rules_of(listener: u16, filters: &[&str]) -> RuleSet {
    let mut everything = role("all", vec![Member::ANYBODY], None);
    let rule = everything.rules[0].clone();
    let rules = filters.iter().map(|filter| Rule {
        filter: (*filter).into(),
        ..rule.clone()
    });
    everything.rules = rules.collect();
    RuleSet {
        listeners: Some(vec![listener]),
        ..RuleSet::of(vec![everything])
    }
}

fn set_policy(broker: &mut Broker, policy: Option<Policy>) {
    let policy = policy.map(Arc::new);
    for shard in 0..broker.shards.len() {
        broker.input(shard, Input::PolicyReplaced(policy.clone()));
    }
}

#[test]
fn rules_of_another_listener_open_nothing() {
    let mut broker = mounted(1, &["a/"]);
    let rules = rules_of(0, &["#", "$x/#", "$SYS/#"]);
    set_policy(&mut broker, Some(Policy::compile(1, vec![rules]).unwrap()));
    let a = join(&mut broker, 1, "in-a");
    for filter in ["$x/#", "$SYS/#", "$audit/#", "$share/g/$x/#"] {
        subscribe(&mut broker, a, filter, QOS0);
        assert_eq!(broker.take(a), ["SUBACK #1 [87]"], "{filter}");
    }
    subscribe(&mut broker, a, "#", QOS0);
    assert_eq!(broker.take(a), ["SUBACK #1 [00]"]);
    let service = join(&mut broker, 0, "service");
    subscribe(&mut broker, service, "$x/#", QOS0);
    broker.send(service, publish("$x/y", "x", QOS0, 0));
    let taken = ["SUBACK #1 [00]", "PUBLISH $x/y \"x\" q0"];
    assert_eq!(broker.take(service), taken);
    assert_eq!(broker.take(a), NOTHING);
}

/// What rules had opened closes with them, for a client that is away too.
#[test]
fn what_waits_and_what_is_subscribed_to_closes_with_the_rules_that_opened_it() {
    for other in [true, false] {
        let mut broker = mounted(1, &["a/"]);
        let opening = || vec![rules_of(1, &["$x/#", "t"])];
        set_policy(&mut broker, Some(Policy::compile(1, opening()).unwrap()));
        let service = join(&mut broker, 0, "service");
        let (client, _) = stay(&mut broker, 1, "in-a");
        subscribe(&mut broker, client, "$x/#", QoS::AtLeastOnce);
        assert_eq!(broker.take(client), ["SUBACK #1 [01]"]);
        broker.cut(client);
        broker.send(service, publish("$x/y", "x", QoS::AtLeastOnce, 1));
        broker.take(service);
        let elsewhere = || Policy::compile(2, vec![rules_of(0, &["#", "$x/#"])]).unwrap();
        set_policy(&mut broker, other.then(elsewhere));
        let (client, taken) = stay(&mut broker, 1, "in-a");
        assert_eq!(taken, ["CONNACK 1 00"], "{other}");
        let revoked = broker.events.iter().filter_map(|event| match event {
            Event::SubscriptionRevoked { filter, why, .. } => Some((&**filter, *why)),
            _ => None,
        });
        assert_eq!(
            revoked.collect::<Vec<_>>(),
            [("$x/#", Denial::OutsideMount)]
        );
        assert_eq!(dropped(&mut broker), [denied("in-a", "$x/y", 1)]);
        broker.send(service, publish("$x/y", "x", QoS::AtLeastOnce, 2));
        assert_eq!(broker.take(client), NOTHING);
        balances(&broker);
    }
}
