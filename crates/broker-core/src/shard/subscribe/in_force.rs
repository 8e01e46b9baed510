//! From where on what is granted holds in each log, and when it is asked to be stored.
//!
//! ```text
//! own log      from SUBSCRIBE
//! other logs   from where their shard knew of it: its answer to the barrier says so
//! ```
//!
//! Invariant: what a shard has sent for a subscription, and told its publisher of, lies in the
//! range that is stored of that subscription, whichever shard answers last.

use crate::durability::StoredSubscription;
use crate::ids::{LogId, ShardId};
use crate::routing::{Granted, PendingSubAck};
use crate::shard::Shard;

impl Shard {
    /// A shard has reached this barrier, and had reached `before`: it knows of what was granted
    /// between, which holds for what comes in there from now on. What holds everywhere by that is
    /// asked to be stored. Until the last shard has answered the others send what matches already,
    /// and their publishers are told so: a restart is to find it.
    pub(crate) fn begin_in_log_of(&mut self, shard: ShardId, before: u64, barrier: u64) {
        let log = LogId(shard.0.into());
        let Self {
            router,
            sessions,
            gate,
            ..
        } = self;
        for suback in router.subacks().answered_by(before, barrier) {
            for Granted { filter, era, .. } in suback.known(before, barrier) {
                let session = sessions.get_mut(suback.session);
                let session = session.filter(|session| session.serial() == suback.serial);
                let Some(session) = session else { break };
                let Some(kept) = session.kept.as_deref_mut() else {
                    break;
                };
                let held = kept.subscription(filter);
                if held.is_none_or(|held| held.is_in_force() || held.era != *era) {
                    continue;
                }
                let ends = gate.log_ends().all();
                let yielded = kept.come_into_force(filter, Some(log), ends);
                let is_changed = yielded.is_some();
                let held = kept.subscription(filter);
                if held.is_some_and(StoredSubscription::is_in_force) {
                    session.persist_subscription(gate, filter, yielded);
                }
                if is_changed {
                    sessions.touch(suback.session);
                }
            }
        }
    }

    /// Every shard has heard of what is granted, which is asked to be stored. What is left was
    /// asked for again meanwhile, of which not every shard has heard: this waits with that.
    pub(super) fn put_in_force(&mut self, suback: &mut PendingSubAck) {
        let latest = self.mesh.latest_barrier();
        for granted in std::mem::take(&mut suback.filters) {
            let Granted { filter, era, .. } = granted;
            let Self { sessions, gate, .. } = self;
            let session = sessions.get_mut(suback.session);
            let Some(session) = session.filter(|session| session.serial() == suback.serial) else {
                return;
            };
            let Some(kept) = session.kept.as_deref_mut() else {
                continue;
            };
            match kept.subscription(&filter) {
                None => {}
                Some(held) if held.is_in_force() => {
                    // The answer of the last shard has asked for it.
                    suback.stored = session.asked().max(suback.stored);
                }
                Some(held) if held.era != era => suback.filters.push(Granted {
                    filter,
                    era: held.era,
                    barrier: latest,
                }),
                Some(_) => {
                    let yielded = kept.come_into_force(&filter, None, gate.log_ends().all());
                    let is_changed = yielded.is_some();
                    let asked = session.persist_subscription(gate, &filter, yielded);
                    suback.stored = asked.max(suback.stored);
                    if is_changed {
                        sessions.touch(suback.session);
                    }
                }
            }
        }
    }
}
