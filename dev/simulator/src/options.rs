//! What a run is like, drawn from its seed: each run switches features on and off, so that rare
//! combinations come up and common ones do not hide them.

use std::time::Duration;

use unbroken_broker_core::{AuditRule, Limits, QueueFull, Settings, StoreFull};
use unbroken_store::Durability;

use crate::rng::Rng;

/// The options of one run. Their `Debug` text is part of every failure.
#[derive(Clone, Debug)]
pub struct Options {
    /// What all else follows from.
    pub seed: u64,
    pub(crate) shards: u8,
    /// Each restart draws their number anew.
    pub(crate) reshards: bool,
    /// And so does the one after a power cut.
    pub(crate) reshards_at_cut: bool,
    pub(crate) clients: usize,
    pub(crate) steps: u32,
    /// Percent of the clients that speak 5.0; the others speak 3.1.1.
    pub(crate) v5: u32,
    /// Percent of the connections whose session outlives them.
    pub(crate) staying: u32,
    /// Percent of the reconnects that want a new session.
    pub(crate) clean_starts: u32,
    /// Relative frequency of carrying a message from shard to shard; small is slow.
    pub(crate) message_weight: u32,
    /// The same for clients doing something.
    pub(crate) action_weight: u32,
    /// Most messages a client publishes in one action.
    pub(crate) burst: usize,
    pub(crate) cuts: bool,
    /// The broker learns late, or never, that a connection was cut.
    pub(crate) half_open: bool,
    pub(crate) goodbyes: bool,
    /// Bytes a connection holds between broker and client.
    pub(crate) pipe: usize,
    pub(crate) unsubscribes: bool,
    /// Clients change the terms of subscriptions that they have.
    pub(crate) wavers: bool,
    /// Nobody asks for some filters at QoS 1 or 2: [`is_meek`](crate::message::is_meek).
    pub(crate) meek: bool,
    pub(crate) shared: bool,
    /// Groups whose members stay, and want every message for certain.
    pub(crate) loyal: bool,
    /// The same, but sessions end, of a broker that is killed: what they were given goes to others.
    pub(crate) heirs: bool,
    pub(crate) retained: bool,
    pub(crate) clears: bool,
    pub(crate) wills: bool,
    pub(crate) message_expiry: bool,
    pub(crate) session_expiry: bool,
    /// Now and then a long time passes.
    pub(crate) leaps: bool,
    pub(crate) durable: bool,
    /// How often the broker is killed, about, and begins again with what it has on disk.
    pub(crate) kills: u32,
    /// Some of it because the disk fails.
    pub(crate) disk_fails: bool,
    /// Then the broker goes on for those who need no disk, until it is killed.
    pub(crate) read_only: bool,
    /// Reads fail as well: while the broker runs, and when it begins again.
    pub(crate) reads_fail: bool,
    /// Logs are trimmed.
    pub(crate) trims: bool,
    /// What the store keeps when the machine ends, as it does at the end of the run.
    pub(crate) durability: Durability,
    pub(crate) late_admission: bool,
    /// Clients send behind CONNECT without waiting for CONNACK.
    pub(crate) eager: bool,
    pub(crate) lazy_acks: bool,
    pub(crate) refusals: bool,
    pub(crate) aliases: bool,
    pub(crate) identifiers: bool,
    pub(crate) small_packets: bool,
    pub(crate) keep_alive: bool,
    /// Some subscribe to the receipts of all lanes.
    pub(crate) watched: bool,
    /// Stamps are forwarded, and those subscribe to checkpoints instead.
    pub(crate) forwards: bool,
    /// A shard's clock stands still for the length of a turn, as in the real driver.
    pub(crate) turns: bool,
    pub(crate) window: u16,
    pub(crate) queue_messages: u32,
    pub(crate) queue_bytes: u64,
    /// Seconds; `u32::MAX`: what waits has no age.
    pub(crate) queue_age_s: u32,
    pub(crate) store_bytes: u64,
    /// That is what the disk has room for, at most times, and no limit is set.
    pub(crate) disk_fills: bool,
    /// Publishers are refused what a full session that stays would have to keep.
    pub(crate) refuses: bool,
    /// Percent of the times at which the size of a full store is said: letting go would not help,
    /// as values alone fill it, or all of it stays on the disk. If that may be, messages are let go
    /// of at the others.
    pub(crate) values_fill: u32,
    pub(crate) output_bytes: u32,
    pub(crate) retained_messages: u32,
    /// A message with more receivers on a shard goes to one a turn.
    pub(crate) at_once: u32,
    pub(crate) hasten_bytes: u64,
}

impl Options {
    /// The options that belong to a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut options = Self::drawn(seed);
        let mut fate = Rng::new(seed ^ 0x6b69_6c6c_732a);
        options.draw_kills(&mut fate);
        options.draw_refusals(seed);
        // None of the seeds that have found something is drawn, so they go on finding it.
        let mut killed = Rng::new(seed ^ 0x6675_6c6c_6b69_290e);
        if options.kills > 0 && !(options.loyal || options.heirs) && killed.percent(25) {
            options.refuse_between_kills(&mut killed);
        }
        let mut values = Rng::new(seed ^ 0x7661_6c75_6573);
        if !options.loyal && values.percent(3) {
            options.fill_with_values(&mut values);
        }
        options.heirs &= !options.loyal && options.values_fill == 0;
        if options.heirs {
            options = options.for_heirs(fate.pick(&[3, 10]));
        }
        options.draw_limits(seed);
        if options.retained && options.retains_few() {
            // An older client is cut each time it sends again what is refused.
            options.v5 = 100;
        }
        // Drawn last, and from numbers of their own: what else a seed means stays as it was.
        let cut = options.reshards && options.durability != Durability::Strict;
        options.reshards_at_cut = cut && Rng::new(seed ^ 0x0063_7574_7300).percent(70);
        let mut room = Rng::new(seed ^ 0x726f_6f6d);
        options.disk_fills = options.store_fills() && room.percent(40);
        if options.loyal {
            (options.clean_starts, options.session_expiry) = (0, false);
        }
        if options.loyal || options.heirs {
            (options.staying, options.unsubscribes) = (100, false);
            (options.refusals, options.small_packets) = (false, false);
            options.queue_messages = ENOUGH_MESSAGES;
            options.shared = true;
        }
        options
    }

    /// The options that do not depend on each other.
    fn drawn(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0070_7469_6f6e_7300);
        let r = &mut rng;
        Self {
            seed,
            shards: r.pick(&[1, 2, 2, 3, 3, 8]),
            reshards: Rng::new(seed ^ 0x7265_7368_6172_6473).percent(50),
            reshards_at_cut: false,
            clients: r.between(2, 9),
            steps: r.pick(&[200, 500, 1_000, 2_000]),
            v5: r.pick(&[0, 50, 70, 100]),
            staying: r.pick(&[0, 30, 70, 100]),
            clean_starts: r.pick(&[0, 0, 20, 60]),
            message_weight: r.pick(&[2, 10, 30, 60]),
            action_weight: r.pick(&[5, 15, 30]),
            burst: r.pick(&[1, 3, 20]),
            cuts: r.percent(60),
            half_open: r.percent(50),
            goodbyes: r.percent(40),
            pipe: r.pick(&[60, 500, usize::MAX, usize::MAX]),
            unsubscribes: r.percent(50),
            wavers: Rng::new(seed ^ 0x0077_6176_6572_0330).percent(20),
            meek: Rng::new(seed ^ 0x006d_6565_6b00_00c0).percent(15),
            shared: r.percent(40),
            loyal: Rng::new(seed ^ 0x0067_726f_7570).percent(12),
            heirs: Rng::new(seed ^ 0x656e_6473).percent(8),
            retained: r.percent(50),
            clears: r.percent(40),
            wills: r.percent(35),
            message_expiry: r.percent(25),
            session_expiry: r.percent(40),
            leaps: r.percent(40),
            durable: r.percent(40),
            kills: 0,
            disk_fails: Rng::new(seed ^ 0x6469_736b).percent(40),
            read_only: false,
            reads_fail: false,
            trims: false,
            durability: Durability::Strict,
            late_admission: r.percent(40),
            eager: r.percent(30),
            lazy_acks: r.percent(50),
            refusals: r.percent(15),
            aliases: r.percent(30),
            identifiers: r.percent(40),
            small_packets: r.percent(15),
            keep_alive: r.percent(20),
            watched: Rng::new(seed ^ 0x0061_7564_6974).percent(25),
            forwards: Rng::new(seed ^ 0x0061_7564_6974).percent(25)
                && Rng::new(seed ^ 0x7374_616d_7073).percent(50),
            turns: r.percent(50),
            window: r.pick(&[1, 2, 5, 1_024, 1_024]),
            queue_messages: r.pick(&[3, 20, ENOUGH_MESSAGES, ENOUGH_MESSAGES, ENOUGH_MESSAGES]),
            queue_bytes: ENOUGH_BYTES,
            queue_age_s: u32::MAX,
            store_bytes: ENOUGH_BYTES,
            disk_fills: false,
            refuses: false,
            values_fill: 0,
            output_bytes: r.pick(&[150, 1_000, 1_000_000, 1_000_000, 1_000_000]),
            retained_messages: r.pick(&[2, 1_000, 1_000, 1_000]),
            at_once: Rng::new(seed ^ 0x0073_7072_6561_6400).pick(&[0, 1, 2, 4_096, 4_096]),
            hasten_bytes: Rng::new(seed ^ 0x6861_7374_656e_0000).pick(&[0, 1, 100, 1 << 20]),
        }
    }

    fn draw_kills(&mut self, fate: &mut Rng) {
        if self.durable && fate.percent(60) {
            self.kills = fate.pick(&[1, 3, 10]);
            self.read_only = fate.percent(40);
            self.reads_fail = fate.percent(40);
            self.trims = fate.percent(50);
            self.durability = fate.pick(&[
                Durability::Strict,
                Durability::Strict,
                Durability::Relaxed,
                Durability::Off,
            ]);
        }
    }

    /// Publishers are refused when a session or the store is full.
    fn draw_refusals(&mut self, seed: u64) {
        if self.durable
            && self.queue_messages < ENOUGH_MESSAGES
            && !self.loyal
            // What was refused is known as long as the answer arrives.
            && !(self.cuts || self.half_open || self.kills > 0)
            && Rng::new(seed ^ 0x7265_6675_7365).percent(80)
        {
            self.refuses = true;
            // An older client that is full itself may be cut each time before it takes what waits.
            self.v5 = 100;
            // Nobody is told that a will, or what is retained, was refused.
            (self.retained, self.clears, self.wills) = (false, false, false);
            let mut full = Rng::new(seed ^ 0x0066_756c_6c00);
            if full.percent(40) {
                self.store_bytes = full.pick(&[200, 2_000]);
                self.trims = true; // the size is said with that
            }
        }
    }

    /// Sessions of groups end, and leave their messages to other members.
    fn for_heirs(self, kills: u32) -> Self {
        let mut options = self.with_kills(kills);
        options.shards = options.shards.max(2);
        (options.steps, options.message_weight) = (2_000, options.message_weight.min(10));
        // They come back as new ones, with what they had not yet acknowledged.
        (options.clean_starts, options.v5) = (60, options.v5.max(50));
        (options.cuts, options.lazy_acks) = (true, true);
        options.message_expiry = false;
        options
    }

    fn draw_limits(&mut self, seed: u64) {
        let mut limits = Rng::new(seed ^ 0x006c_696d_6974_7300);
        if self.durable && !self.loyal && !self.heirs && !self.refuses && limits.percent(40) {
            self.queue_bytes = limits.pick(&[100, 500, ENOUGH_BYTES]);
            let may_be_several = self.reshards && self.kills > 0;
            if self.retained && (self.shards > 1 || may_be_several) {
                // What is to be retained is refused as well when too much of it is not released.
                self.queue_bytes = ENOUGH_BYTES;
            }
            self.queue_age_s = limits.pick(&[20, 200, u32::MAX]);
            self.store_bytes = limits.pick(&[200, 2_000, ENOUGH_BYTES]);
            // The size is said with that.
            self.trims |= self.store_fills();
        }
    }

    /// A store whose values fill it: publishers are refused, of what waits nothing is let go.
    fn fill_with_values(&mut self, rng: &mut Rng) {
        (self.durable, self.refuses, self.trims) = (true, true, true);
        self.values_fill = rng.pick(&[40, 100, 100]);
        self.store_bytes = rng.pick(&[200, 2_000]);
        self.queue_messages = rng.pick(&[20, ENOUGH_MESSAGES]);
        (self.staying, self.v5) = (rng.pick(&[70, 100]), 100);
        // As with all who are refused: it is known, and somebody is told.
        (self.cuts, self.half_open, self.goodbyes, self.kills) = (false, false, false, 0);
        self.keep_alive = false;
        (self.retained, self.clears, self.wills) = (false, false, false);
        (self.read_only, self.reads_fail) = (false, false);
        self.durability = Durability::Strict;
    }

    /// A store that is full is so again when the broker begins again.
    fn refuse_between_kills(&mut self, rng: &mut Rng) {
        (self.refuses, self.trims) = (true, true);
        self.store_bytes = rng.pick(&[200, 2_000]);
        self.queue_messages = rng.pick(&[20, ENOUGH_MESSAGES, ENOUGH_MESSAGES]);
        self.staying = rng.pick(&[70, 100]);
        // As with all who are refused: it is known, and somebody is told; unless the broker dies.
        self.v5 = 100;
        (self.cuts, self.half_open) = (false, false);
        (self.retained, self.clears, self.wills) = (false, false, false);
    }

    /// The same, but the broker has a disk and is killed about so often. Nothing is made more of
    /// that: what a seed found with so many kills it finds again.
    #[must_use]
    pub fn with_kills(mut self, kills: u32) -> Self {
        self.kills = kills;
        self.durable = true;
        (self.wills, self.refuses) = (false, false);
        (self.read_only, self.reads_fail, self.trims) = (false, false, false);
        (self.queue_bytes, self.store_bytes) = (ENOUGH_BYTES, ENOUGH_BYTES);
        (self.values_fill, self.disk_fills) = (0, false);
        self.queue_age_s = u32::MAX;
        (self.durability, self.reshards_at_cut) = (Durability::Strict, false);
        self
    }

    /// The limits of the broker in this run.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.inflight_max = self.window;
        limits.receive_maximum = self.window.max(2);
        limits.queue_messages_max = self.queue_messages;
        limits.queue_bytes_max = self.queue_bytes;
        limits.queue_age_max_s = self.queue_age_s;
        if !self.disk_fills {
            limits.store_bytes_max = self.store_bytes;
        }
        if self.refuses {
            limits.queue_full = QueueFull::Refuse;
            if self.values_fill == 0 {
                limits.store_full = StoreFull::Refuse;
            }
        }
        limits.output_bytes_max = self.output_bytes;
        limits.retained_messages_max = self.retained_messages;
        limits.connect_timeout = Duration::from_hours(1);
        limits
    }

    /// What waits is never too much.
    pub(crate) fn queues_fit(&self) -> bool {
        self.queue_messages >= ENOUGH_MESSAGES && self.queue_bytes >= ENOUGH_BYTES
    }

    /// Retained messages may be at their limit.
    pub(crate) fn retains_few(&self) -> bool {
        self.retained_messages < 1_000
    }

    /// The store may be at its limit.
    pub(crate) fn store_fills(&self) -> bool {
        self.store_bytes < ENOUGH_BYTES
    }

    /// No connection ends before its client has read the answers to what it has sent.
    pub(crate) fn answers_arrive(&self) -> bool {
        let lost = self.cuts || self.half_open || self.goodbyes || self.keep_alive;
        !lost && self.kills == 0
    }

    /// Nothing that was taken in is let go of to make room in the store.
    pub(crate) fn store_keeps(&self) -> bool {
        !self.store_fills() || self.refuses && matches!(self.values_fill, 0 | 100)
    }

    /// What waits is let go for no reason but that its session ends.
    pub(crate) fn queues_keep(&self) -> bool {
        self.queues_fit() && self.queue_age_s == u32::MAX && !self.store_fills()
    }

    /// Clients have access rules, which change while they run.
    pub(crate) fn has_rules(&self) -> bool {
        let all_are_owed = self.refuses || self.loyal || self.heirs;
        !all_are_owed && Rng::new(self.seed ^ 0x7275_6c65_7300).percent(12)
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.sys_interval = None;
        settings.durable = self.durable;
        settings.at_once = self.at_once;
        settings.hasten_bytes = self.hasten_bytes;
        if self.forwards {
            let mut rule = AuditRule::any();
            rule.forward_stamp = true;
            settings.audit.rules = vec![rule];
        }
        settings
    }

    /// Sessions may end, or leave groups, before the end of the run: what waited in them is dropped
    /// or goes to others.
    pub(crate) fn members_leave(&self) -> bool {
        let sessions_end = self.staying < 100 || self.clean_starts > 0 || self.session_expiry;
        sessions_end || self.shared && self.unsubscribes
    }
}

/// More than a run can have.
const ENOUGH_MESSAGES: u32 = 100_000;
const ENOUGH_BYTES: u64 = 1024 * 1024 * 1024;
