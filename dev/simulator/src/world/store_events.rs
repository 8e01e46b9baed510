//! Answers of the store to the shards.

use super::{TOLD_WITHIN, World};
use unbroken_broker_core::{Input, ReadRequest, StoreSize};

impl World {
    pub(super) fn answer_store(&mut self) -> bool {
        let shards = self.storage.shards_waiting();
        if shards.is_empty() {
            return false;
        }
        let shard = self.rng.pick(&shards);
        let count = self.rng.part(self.storage.unanswered(shard));
        let Some(last) = self.storage.answer(shard, count, &mut self.oracle) else {
            return false;
        };
        self.input(shard, Input::Stored(last));
        true
    }

    /// Part of what is there.
    pub(super) fn answer_read(&mut self) -> bool {
        let shards = self.storage.shards_reading();
        if shards.is_empty() {
            return false;
        }
        let shard = self.rng.pick(&shards);
        let Some(request) = self.storage.next_read(shard, &mut self.oracle) else {
            return false;
        };
        let unread = usize::try_from(request.last - request.after).expect("it fits in memory");
        let count = self.rng.part(unread);
        let part = ReadRequest {
            last: request.after + count as u64,
            bytes_max: if self.options.kills > 0 {
                self.rng.pick(&[1, 300, usize::MAX])
            } else {
                usize::MAX
            },
            ..request
        };
        let Some(answer) = self.storage.read(&part) else {
            return false;
        };
        self.note(|| format!("shard {shard} reads {answer:?}"));
        self.input(shard, Input::Read(answer));
        true
    }

    /// A shard says what it needs, and what no shard needs is trimmed. Since it last said so it has
    /// told the disk how far its sessions are.
    pub(super) fn trim(&mut self) -> bool {
        let shard = self.rng.below(self.shards.len());
        self.pass_time(TOLD_WITHIN);
        if self.shards[shard]
            .next_timeout()
            .is_some_and(|at| at <= self.now)
        {
            self.run_timers(shard, self.now);
        }
        self.storage.needs(shard, self.shards[shard].needed());
        let Some((mut bytes, needed)) = self.storage.trim() else {
            return false;
        };
        // Who is refused because of it is not told of wills and what is retained, so it is nothing
        // where there are such.
        let mut staying = 0;
        let (often, max) = (self.options.values_fill, self.options.store_bytes);
        if often > 0 && bytes > 0 {
            let fill = self.rng.percent(often);
            staying = if fill { max } else { max.min(bytes) / 2 };
            bytes = bytes.max(staying);
        }
        let (mut values, mut room) = (staying, u64::MAX);
        if self.options.disk_fills {
            // Others use the disk, too, and may remove something.
            values /= 2;
            room = if self.rng.percent(80) { max } else { u64::MAX };
        }
        self.note(|| {
            format!(
                "logs are trimmed up to {needed:?}; {bytes} bytes, {values} of values, {staying} \
                 stay, room for {room}"
            )
        });
        for shard in 0..self.shards.len() {
            let needed = needed.clone();
            let size = StoreSize {
                bytes,
                values,
                staying,
                room,
                needed,
                left_out: Vec::new(),
                commits: None,
            };
            self.input(shard, Input::StoreSize(size));
            if self.options.disk_fills && self.options.refuses {
                let lacks = self.rng.percent(20);
                self.note(|| format!("shard {shard}: the disk lacks space: {lacks}"));
                self.input(shard, Input::DiskLacksSpace(lacks));
            }
        }
        true
    }

    /// A shard learns that the disk has failed.
    pub(super) fn tell_failed(&mut self) -> bool {
        let shards = 0..self.shards.len();
        let untold: Vec<_> = shards.filter(|shard| !self.failed[*shard]).collect();
        if !self.storage.is_dead() || untold.is_empty() {
            return false;
        }
        let shard = self.rng.pick(&untold);
        self.note(|| format!("shard {shard} is told that the disk has failed"));
        self.failed[shard] = true;
        let cause = "it is full".into();
        self.input(shard, Input::StoreFailed { cause });
        true
    }
}
