//! The broker's side of the proof: which messages came in, which deliveries were expected, and the
//! outcome of each.
//!
//! ```text
//! PUBLISH -> verify, lane: a number and a leaf     route -> ledger of each receiver: one expected
//!                   |                                       delivery
//!          beside the message, compared where       sent, acknowledged, dropped: settled there, a
//!          it changes hands                         finding if the law is broken
//! ```
//!
//! The part returns what is to be done: findings, reports to publish, messages to other shards,
//! records, times. The shard carries that out (`shard/audit.rs`). [`watch`] knows whose lanes and
//! accounts are subscribed to; [`receipt`] follows single messages.
//!
//! Invariants:
//! - A number is given once, in the order in which the messages were accepted. Numbers of one run
//!   of the broker are given to no other message: [`clean_shutdown`], [`crash_recovery`].
//! - What must not happen is a named fault, counted and reported; it is never a panic, and never
//!   changes a delivery.
//! - Nothing here allocates once a client has published its first messages.

pub(crate) mod account;
pub(crate) mod beacon;
pub(crate) mod clean_shutdown;
pub(crate) mod crash_recovery;
pub(crate) mod finding;
pub(crate) mod json;
mod known;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod missed;
mod numbering;
pub(crate) mod owners;
pub(crate) mod receipt;
pub(crate) mod rule;
pub(crate) mod statement;
pub(crate) mod verdict;
pub(crate) mod verify;
pub(crate) mod watch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::FixedState;
use unbroken_merkle_log::Epoch;

use self::crash_recovery::OverEpochs;
use self::finding::Findings;
use self::lane::{IngressLane, Lanes};
use self::owners::{LaneMessage, LaneOwners};
use self::verdict::Verdicts;
use self::verify::Publishers;
use self::watch::{Topics, Watch};
use crate::durability::Record;
use crate::ids::{SessionId, ShardId};
use crate::settings::{AuditSettings, ShardOptions};

/// What the audit of one shard knows, but for the ledger of each session.
#[derive(Debug)]
pub(crate) struct Audit {
    shard: ShardId,
    shards: u8,
    start: Instant,
    settings: AuditSettings,
    lanes: Lanes,
    publishers: Publishers,
    owners: LaneOwners,
    over: OverEpochs,
    /// Lanes of sessions that have ended, while what they published is followed.
    departed: HashMap<(Arc<str>, Epoch), Box<IngressLane>, FixedState>,
    watch: Watch,
    verdicts: Verdicts,
    /// Sessions that the present input has made miss something.
    missing: Vec<SessionId>,
    findings: Findings,
    messages: VecDeque<(ShardId, LaneMessage)>,
    records: VecDeque<Record>,
}

impl Audit {
    pub(crate) fn new(options: &ShardOptions) -> Self {
        Self {
            shard: options.id,
            shards: options.shards,
            start: options.start,
            settings: options.settings.audit.clone(),
            lanes: Lanes::default(),
            publishers: Publishers::default(),
            owners: LaneOwners::default(),
            over: OverEpochs::default(),
            departed: HashMap::with_hasher(FixedState::with_seed(options.seed)),
            watch: Watch::new(options),
            verdicts: Verdicts::default(),
            missing: Vec::new(),
            findings: Findings::default(),
            messages: VecDeque::new(),
            records: VecDeque::new(),
        }
    }

    pub(crate) fn topics(&self) -> &Topics {
        &self.watch.topics
    }

    /// Where findings go until the shard has time for them.
    pub(crate) fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    pub(crate) fn verdicts(&mut self) -> &mut Verdicts {
        &mut self.verdicts
    }

    /// Both at once.
    #[inline]
    pub(crate) fn topics_and_findings(&mut self) -> (&Topics, &mut Findings) {
        (&self.watch.topics, &mut self.findings)
    }

    /// Whether nothing was found and nothing is to be reported.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.findings.is_empty() && self.missing.is_empty() && !self.watch.has_reports()
    }

    /// Takes what another shard is to hear.
    pub(crate) fn take_message(&mut self) -> Option<(ShardId, LaneMessage)> {
        self.messages.pop_front()
    }

    /// Takes what is to be stored.
    pub(crate) fn take_record(&mut self) -> Option<Record> {
        self.records.pop_front()
    }

    fn send(&mut self, to: ShardId, message: LaneMessage) {
        self.messages.push_back((to, message));
    }
}
