//! Bytes between clients and shards.

use super::{At, Link, World};
use crate::client::Hearing;
use std::collections::BTreeSet;
use unbroken_broker_core::ConnectionId;

impl World {
    pub(super) fn some_link(&mut self, fits: impl Fn(usize, &Link) -> bool) -> Option<usize> {
        let links = &self.links;
        self.live.retain(|link| {
            let link = &links[*link];
            link.used || link.at != At::Gone
        });
        let fitting: Vec<_> = self
            .live
            .iter()
            .copied()
            .filter(|link| fits(*link, &links[*link]))
            .collect();
        (!fitting.is_empty()).then(|| self.rng.pick(&fitting))
    }

    pub(super) fn carry_up(&mut self) -> bool {
        let shards = &self.shards;
        let wanting: BTreeSet<_> = self
            .live
            .iter()
            .copied()
            .filter(|link| match self.links[*link].at {
                At::Shard(shard, connection) => shards[shard].wants_input(connection),
                _ => false,
            })
            .collect();
        let Some(link) =
            self.some_link(|number, link| !link.up.is_empty() && wanting.contains(&number))
        else {
            return false;
        };
        let count = self.links[link].up.len();
        let count = self.rng.part(count);
        let bytes: Vec<_> = self.links[link].up.drain(..count).collect();
        self.feed(link, &bytes);
        true
    }

    pub(super) fn carry_down(&mut self) -> bool {
        let fits = |_, link: &Link| link.used && (!link.down.is_empty() || link.at == At::Gone);
        let Some(link) = self.some_link(fits) else {
            return false;
        };
        let client = self.links[link].client;
        let available = self.links[link].down.len();
        let mut open = available > 0;
        if open {
            let count = self.rng.part(available);
            let bytes: Vec<_> = self.links[link].down.drain(..count).collect();
            let mut hearing = Hearing {
                oracle: &mut self.oracle,
                options: &self.options,
                rng: &mut self.rng,
                now: self.now,
            };
            open = self.clients[client].receive(&mut hearing, &bytes);
        }
        if open {
            self.flush(client);
        } else {
            self.note(|| format!("client {client} sees the end of link {link}"));
            self.links[link].used = false;
            self.clients[client].lost();
            self.oracle.excuse(client, link);
            if self.links[link].at != At::Gone {
                self.hang_up(link);
            }
        }
        true
    }

    pub(super) fn write(&mut self) -> bool {
        let room = |link: &Link, pipe: usize| pipe.saturating_sub(link.down.len());
        let ready: Vec<_> = self
            .dirty
            .iter()
            .copied()
            .filter(|link| room(&self.links[*link], self.options.pipe) > 0)
            .collect();
        if ready.is_empty() {
            return false;
        }
        let link = self.rng.pick(&ready);
        let At::Shard(shard, connection) = self.links[link].at else {
            self.dirty.remove(&link);
            return true;
        };
        let now = self.clock(shard);
        let pending = self.shards[shard].pending_output(connection);
        let room = room(&self.links[link], self.options.pipe);
        let count = if pending.is_empty() {
            self.dirty.remove(&link);
            0
        } else {
            self.rng.part(pending.len()).min(room)
        };
        if self.options.durable {
            let pending = pending.to_vec();
            self.check_leaving(link, &pending, count);
        }
        let pending = self.shards[shard].pending_output(connection);
        if self.links[link].used {
            self.links[link].down.extend_from_slice(&pending[..count]);
        }
        self.seal(link, shard, connection, count);
        self.used = self.shards[shard].wrote(now, connection, count).received;
        self.take_packets(link, now);
        self.carry_out(shard, now, Vec::new());
        // What the shard wants done because there is room comes with the timeout that is now due.
        if self.shards[shard]
            .next_timeout()
            .is_some_and(|at| at <= now)
        {
            self.run_timers(shard, now);
        }
        true
    }

    /// Seals some of what is not written, as a transport with records does: it must leave as it is.
    /// `count`: bytes that are written now.
    fn seal(&mut self, link: usize, shard: usize, connection: ConnectionId, count: usize) {
        let sealed = std::mem::take(&mut self.links[link].sealed);
        let Some(rng) = &mut self.sealing else {
            return;
        };
        let pending = self.shards[shard].pending_output(connection);
        assert!(
            pending.starts_with(&sealed),
            "link {link}: something came between bytes that were sealed"
        );
        let until = rng.between(count.max(sealed.len()), pending.len());
        self.links[link].sealed = pending[count..until].to_vec();
        self.shards[shard].note_sealed(connection, until);
    }
}
