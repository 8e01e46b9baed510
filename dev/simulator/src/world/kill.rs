//! The end of a broker that nobody has asked to end, and another one on what it has left on disk.
//!
//! All shards and what is on its way between them vanish, with what they have asked for and the
//! disk has not committed. Connections end; what the broker had written may still reach its
//! clients, or some of it. The next broker may have another number of shards, so that what was on
//! one is on another.

use std::io;

use unbroken_broker_core::{DropReason, Input, Shard};
use unbroken_persist::Restored;
use unbroken_store::{Fault, On};

use super::{At, World, new_shards};
use crate::client::Client;

/// What earlier brokers of this run have counted.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) kills: u64,
    pub(crate) epochs_cut: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: [u64; DropReason::ALL.len()],
    /// Of the dropped: what they had not told yet.
    pub(crate) untold: [u64; DropReason::ALL.len()],
}

impl World {
    /// Maybe not for long.
    pub(super) fn live_on(&mut self) {
        match &mut self.dying {
            Some(0) => return self.kill(),
            Some(left) => {
                *left -= 1;
                return;
            }
            None => {}
        }
        let kills = u64::from(self.options.kills);
        if kills == 0 || self.rng.next() % u64::from(self.options.steps) >= kills {
            return;
        }
        if self.options.disk_fails && self.rng.percent(50) {
            let part = self.rng.below(4);
            let mut on = self.rng.pick(&[On::Commit(part), On::Sync]);
            let kind = self
                .rng
                .pick(&[io::ErrorKind::StorageFull, io::ErrorKind::Other]);
            if self.options.reads_fail && self.rng.percent(30) {
                on = On::Read;
            }
            self.note(|| format!("the disk fails: {on:?} {kind}"));
            self.storage.fail(on, kind);
            let longest = if self.options.read_only { 400 } else { 60 };
            self.dying = Some(self.rng.number(1, longest));
        } else {
            self.kill();
        }
    }

    /// What is not going to last does not.
    pub(crate) fn die_if_dying(&mut self) {
        if self.dying.is_some() {
            self.kill();
        }
    }

    fn kill(&mut self) {
        let uncommitted = self.storage.uncommitted();
        let commits = self.rng.below(uncommitted + 1);
        self.note(|| {
            format!("the broker is killed; of what {uncommitted} inputs led to, {commits} are kept")
        });
        if self.options.reshards {
            self.options.shards = self.rng.pick(&[1, 2, 3, 8]);
        }
        let count = usize::from(self.options.shards);
        self.storage
            .crash(self.now, commits, count, &mut self.oracle);
        self.vanish();
        let restored = self.restore();
        self.note(|| format!("it begins again with {restored:?}"));
        let heard: Vec<_> = self.clients.iter().map(Client::heard).collect();
        self.oracle.restarted(self.now, &restored, &heard);
        self.begin_with(restored);
    }

    /// Nothing of the broker is left but its disk, and the next one has not begun.
    fn vanish(&mut self) {
        let count = usize::from(self.options.shards);
        self.dying = None;
        self.break_links();
        self.remember();
        self.messages.clear();
        self.moves.clear();
        self.admissions.clear();
        self.dirty.clear();
        self.tables = vec![Vec::new(); count];
        self.clocks = vec![self.now; count];
        self.admitting = None;
        self.failed = vec![false; count];
        self.used = 0;
        (self.shards, self.totals) = new_shards(&self.options, self.start);
        self.begin_rights();
    }

    /// What is on disk, read once without a fault: what goes before may be half done.
    fn restore(&mut self) -> Restored {
        if self.options.reads_fail && self.rng.percent(50) {
            let part = self.rng.below(2);
            let fault = Fault {
                on: self
                    .rng
                    .pick(&[On::Read, On::Read, On::Commit(part), On::Sync]),
                after: self.rng.next() % 20,
                kind: io::ErrorKind::Other,
            };
            let begun = self.storage.restore_with(fault, self.now);
            self.note(|| format!("{fault:?} while it began: it began {begun}"));
        }
        self.storage.restore(self.now, &mut self.oracle)
    }

    /// The end of the machine where commits are not synced, and another broker on what it has left.
    /// What it had written is lost on its way.
    pub(crate) fn lose_power(&mut self) {
        let unsynced = self.storage.unsynced();
        let kept = self.rng.below(unsynced + 1);
        self.note(|| format!("the power is cut; of {unsynced} changes {kept} are kept"));
        if self.options.reshards_at_cut {
            self.options.shards = self.rng.pick(&[1, 2, 3, 8]);
        }
        let count = usize::from(self.options.shards);
        self.storage
            .lose_power(self.now, kept, count, &mut self.oracle);
        self.oracle.power_was_cut();
        self.vanish();
        for link in &mut self.links {
            link.down.clear();
        }
        for client in &mut self.clients {
            if self.rng.percent(50) {
                client.outbound.go_on_behind(0); // ids come round to those that it had before
            }
        }
        let restored = self.storage.restore(self.now, &mut self.oracle);
        self.power_cuts += 1;
        self.note(|| format!("it begins again with {restored:?}"));
        self.oracle.check_power_cut(&restored);
        self.oracle.goes_on_behind(self.now, &restored);
        self.begin_with(restored);
    }

    fn break_links(&mut self) {
        for link in &self.live {
            let link = &mut self.links[*link];
            if link.at == At::Gone {
                continue;
            }
            link.at = At::Gone;
            link.up.clear();
            link.partial.clear();
            link.packets.clear();
            link.published.clear();
            if self.rng.percent(50) {
                let arrives = self.rng.below(link.down.len() + 1);
                link.down.truncate(arrives);
            }
        }
    }

    /// Nothing comes in before the shards know what the others want.
    fn begin_with(&mut self, restored: Restored) {
        let homes = self.clients.iter().map(|client| {
            let is_home = |shard: &Shard| shard.is_home_of(&client.id);
            self.shards.iter().position(is_home).unwrap_or_default()
        });
        self.oracle.moved(homes);
        let done = restored.distribute(self.now, &mut self.shards);
        done.unwrap_or_else(|error| panic!("{error}"));
        for shard in 0..self.shards.len() {
            let heard = self.now;
            self.input(shard, Input::Timeout { heard });
        }
        while self.carry_message() {}
    }

    fn remember(&mut self) {
        for stats in self.shards.iter().map(Shard::stats) {
            self.past.received += stats.audit.received;
            self.past.sent += stats.publishes_written();
            for (sum, dropped) in self.past.dropped.iter_mut().zip(stats.dropped) {
                *sum += dropped;
            }
        }
        for reason in DropReason::ALL {
            let at = reason as usize;
            self.past.untold[at] = self.past.dropped[at] - self.oracle.told_for(reason);
        }
        self.past.kills += 1;
    }

    /// How much was dropped for this reason, in all.
    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        let at = reason as usize;
        let now: u64 = self
            .shards
            .iter()
            .map(|shard| shard.stats().dropped[at])
            .sum();
        self.past.dropped[at] + now
    }

    /// Sessions and retained messages that have ended are not on disk either.
    pub(crate) fn check_disk(&self) {
        if self.options.kills > 0 {
            let keys = self.storage.keys();
            assert!(keys.is_empty(), "left on disk: {keys:?}");
        }
    }
}
