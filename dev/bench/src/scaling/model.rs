//! What larger machines would take, computed from what one shard and two take here.
//!
//! ```text
//! memory(c, s)  = c · (connection + subscription + (s - 1) · announced)
//! cpu(s)        = local + more · (s - 1) / s
//! rate(s)       = s / cpu(s)
//! letters(s)    = 2 · (s - 1)       for each filter that is new to its shard
//! ```
//!
//! A shard tells each of the others a filter that is new to it, which keeps it in its own index
//! and answers; `announced` is what that takes in one of them. A client's shard is where its
//! id hashes to, so of the publishers one in `s` begins on the shard of its subscriber; the others
//! move there, if they do nothing but publish at QoS 0, and `more` is what a message between such
//! pairs takes more all the same. As if all of it came from those that had to move, the larger
//! part with more shards, it grows by `(s - 1) / s`. Deliberately absent: anything that shards
//! share, that is the memory's bandwidth, caches, and the kernel; the rate is an upper bound.

use super::memory::Bytes;
use crate::figure::Figure;

/// What the computation begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) one: Bytes,
    pub(super) two: Bytes,
    /// For each message, with one shard and with two.
    pub(super) cpu_us: [f64; 2],
}

/// The parts that the formulas have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    connection: f64,
    own_filter: f64,
    shared_filter: f64,
    /// What a filter takes at every shard but its own.
    announced: f64,
    local_us: f64,
    /// What a message costs more when its publisher is not where it began.
    more_us: f64,
}

/// Each with one shard for two cores, as `unbroken serve` has by itself.
const MACHINES: [(u32, f64); 2] = [(16, 8.0), (64, 32.0)];
const CONNECTIONS: f64 = 1e7;
/// How long all of them may take to come back after a restart, in seconds.
const RETURN_S: f64 = 600.0;

impl Model {
    pub(super) fn of(measured: &Measured) -> Self {
        let Measured { one, two, cpu_us } = measured;
        Self {
            connection: one.connection,
            own_filter: one.own_filter,
            shared_filter: one.shared_filter,
            announced: (two.own_filter - one.own_filter).max(0.0),
            local_us: cpu_us[0],
            // With two shards every second publisher has moved.
            more_us: 2.0 * (cpu_us[1] - cpu_us[0]).max(0.0),
        }
    }

    /// Bytes with so many connections, each subscribed to a filter of its own.
    fn own_filters(&self, connections: f64, shards: f64) -> f64 {
        connections * (self.connection + self.own_filter + (shards - 1.0) * self.announced)
    }

    /// The same, all subscribed to one filter.
    fn one_filter(&self, connections: f64) -> f64 {
        connections * (self.connection + self.shared_filter)
    }

    fn cpu_us(&self, shards: f64) -> f64 {
        self.local_us + self.more_us * (shards - 1.0) / shards
    }

    /// Messages a second, in millions, if every shard has a core and nothing else is in the way.
    fn rate(&self, shards: f64) -> f64 {
        shards / self.cpu_us(shards)
    }

    /// Letters a second between shards while all connections come back.
    fn letters(connections: f64, shards: f64) -> f64 {
        connections / RETURN_S * 2.0 * (shards - 1.0)
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (cores, shards) in MACHINES {
            let mut computed = |name, of: &str, unit, value| {
                let title = format!("computed, {cores} cores, {shards} shards: {of}");
                figures.push(Figure::new(name, "", unit, None).titled(title).with(value));
            };
            let memory = self.own_filters(CONNECTIONS, shards) / 1e9;
            computed(
                "memory-own",
                "10 million connections, each with a filter of its own",
                "GB",
                memory,
            );
            let memory = self.one_filter(CONNECTIONS) / 1e9;
            computed("memory-one", "the same, all with one filter", "GB", memory);
            let letters = Self::letters(CONNECTIONS, shards) / 1e6;
            computed(
                "interest",
                "letters about filters while they come back within 10 minutes",
                "M/s",
                letters,
            );
            computed(
                "cpu",
                "CPU time per message between pairs",
                "µs",
                self.cpu_us(shards),
            );
            computed(
                "rate",
                "messages between pairs, at most",
                "M/s",
                self.rate(shards),
            );
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let one = Bytes {
            connection: 1_000.0,
            own_filter: 300.0,
            shared_filter: 50.0,
        };
        let two = Bytes {
            own_filter: 500.0,
            ..one
        };
        Model::of(&Measured {
            one,
            two,
            cpu_us: [2.0, 2.5],
        })
    }

    #[track_caller]
    fn check(computed: f64, expected: f64) {
        assert!(
            (computed / expected - 1.0).abs() < 1e-9,
            "{computed}, not {expected}"
        );
    }

    #[test]
    fn one_shard_and_two_come_out_as_they_were_measured() {
        check(model().own_filters(1.0, 1.0), 1_300.0);
        check(model().own_filters(1.0, 2.0), 1_500.0);
        check(model().cpu_us(1.0), 2.0);
        check(model().cpu_us(2.0), 2.5);
    }

    #[test]
    fn a_filter_of_its_own_is_kept_by_every_shard_and_a_common_one_is_not() {
        check(
            model().own_filters(10.0, 8.0),
            10.0 * (1_300.0 + 7.0 * 200.0),
        );
        check(model().one_filter(10.0), 10_500.0);
    }

    #[test]
    fn a_message_costs_no_more_than_one_that_always_changes_shards() {
        check(model().cpu_us(1e9), 3.0);
        check(model().rate(4.0), 4.0 / 2.75);
    }

    #[test]
    fn every_new_filter_is_announced_to_all_other_shards_and_answered() {
        check(Model::letters(600.0, 8.0), 14.0);
    }
}
