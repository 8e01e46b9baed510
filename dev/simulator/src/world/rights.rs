//! Access rules of a run: what each client may publish, which stays as it is, and what it may
//! receive, which changes now and then, on one shard after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use unbroken_broker_core::{
    Action, Actions, Ceiling, Effect, Input, Member, Policy, Role, Rule, RuleSet, Shard,
};

use super::World;
use crate::message::{MessageId, SHARED_TOPICS, TOPICS};
use crate::options::Options;
use crate::rng::Rng;

/// What is denied in this run; nothing where it has no rules.
#[derive(Debug, Default)]
pub(super) struct Rights {
    generation: u64,
    /// Client and topic.
    no_publish: BTreeSet<(usize, &'static str)>,
    no_receive: BTreeSet<(usize, &'static str)>,
    policy: Option<Arc<Policy>>,
    /// Shards that have not got the newest policy.
    behind: BTreeSet<usize>,
}

impl Rights {
    pub(super) fn new(options: &Options) -> Self {
        let mut rights = Self::default();
        if options.has_rules() {
            let mut rng = Rng::new(options.seed ^ 0x7269_6768_7473);
            rights.no_publish = some_of(options.clients, &mut rng);
            rights.renew(options.clients, &mut rng);
        }
        rights
    }

    /// Other rules for what is received.
    fn renew(&mut self, clients: usize, rng: &mut Rng) {
        self.generation += 1;
        self.no_receive = some_of(clients, rng);
        let denials = [
            (Action::Publish, &self.no_publish),
            (Action::Receive, &self.no_receive),
        ];
        let denials = denials.into_iter().flat_map(|(action, denied)| {
            denied.iter().map(move |(client, topic)| Role {
                name: "denied".into(),
                members: vec![Member::client(&format!("c{client}"))],
                connect: Effect::Allow,
                ceiling: Ceiling::NONE,
                client_id: None,
                rules: vec![rule(Effect::Deny, action.into(), topic)],
                mount_point: None,
            })
        });
        let everything = ["#", "$audit/#", "$SYS/#"];
        let all = Role {
            name: "all".into(),
            members: vec![Member::ANYBODY],
            connect: Effect::Allow,
            ceiling: Ceiling::NONE,
            client_id: None,
            rules: everything
                .map(|filter| rule(Effect::Allow, Actions::ALL, filter))
                .into(),
            mount_point: None,
        };
        let policy = Policy::compile(
            self.generation,
            vec![RuleSet::of(denials.chain([all]).collect())],
        );
        let policy = policy.unwrap_or_else(|error| panic!("{error}"));
        self.policy = Some(Arc::new(policy));
    }
}

fn rule(effect: Effect, actions: Actions, filter: &str) -> Rule {
    Rule {
        effect,
        actions,
        filter: filter.into(),
        ceiling: Ceiling::NONE,
        origin: "simulator".into(),
    }
}

/// Some clients, each with some topics.
fn some_of(clients: usize, rng: &mut Rng) -> BTreeSet<(usize, &'static str)> {
    let topics = TOPICS.into_iter().chain(SHARED_TOPICS);
    let all = topics.flat_map(|topic| (0..clients).map(move |client| (client, topic)));
    all.filter(|_| rng.percent(15)).collect()
}

impl World {
    /// Whether a client may not publish this.
    pub(crate) fn is_denied(&self, client: usize, message: MessageId) -> bool {
        let topic = self.oracle.messages[message].topic;
        self.rights.no_publish.contains(&(client, topic))
    }

    /// All shards get the newest rules, before they have clients.
    pub(crate) fn begin_rights(&mut self) {
        self.rights.behind = (0..self.shards.len()).collect();
        while let Some(shard) = self.rights.behind.pop_first() {
            self.give_rights(shard);
        }
    }

    /// Maybe one shard gets rules that others have, or that are new.
    pub(super) fn change_rights(&mut self) {
        if self.rights.policy.is_none() || !self.rng.percent(2) {
            return;
        }
        if self.rights.behind.is_empty() {
            self.rights.renew(self.options.clients, &mut self.rng);
            self.rights.behind = (0..self.shards.len()).collect();
        }
        let behind: Vec<_> = self.rights.behind.iter().copied().collect();
        let shard = self.rng.pick(&behind);
        self.rights.behind.remove(&shard);
        self.give_rights(shard);
    }

    fn give_rights(&mut self, shard: usize) {
        let Some(policy) = self.rights.policy.clone() else {
            return;
        };
        let denied = self.rights.no_receive.clone();
        self.note(|| format!("shard {shard} denies from now on: {denied:?}"));
        self.input(shard, Input::PolicyReplaced(Some(policy)));
        for client in 0..self.clients.len() {
            let is_home = |shard: &Shard| shard.is_home_of(&self.clients[client].id);
            if self.shards.get(shard).is_some_and(is_home) {
                let topics = denied.iter().filter(|(of, _)| *of == client);
                let topics = topics.map(|(_, topic)| *topic).collect();
                self.oracle.rights_changed(client, &topics);
            }
        }
    }
}
