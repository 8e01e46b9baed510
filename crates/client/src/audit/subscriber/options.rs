//! How a subscriber is to audit, and how it begins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use unbroken_merkle_log::ledger::{Join, Ledger, LedgerLimits};
use unbroken_merkle_log::{Hasher, LaneId};

use super::super::asking::{Asking, token};
use super::super::error::OpenError;
use super::super::taken::read_position;
use super::super::{Clock, Names, check_version, heard};
use super::away::Away;
use super::{AuditedSubscriber, Running};
#[cfg(doc)]
use super::{Delivery, Saved};
use crate::{Acknowledging, Client, Filter};

/// What of its lanes a subscriber sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of each, from number 0 on: it subscribes before the producers begin.
    FromBeginning,
    /// All of each from some time on. The first window that begins after it joined is in scope.
    #[default]
    FromNow,
    /// A part: a member of a shared group, or a subscriber to some of a lane's topics. Nothing is
    /// said to be missing; everything stays unproven unless the members' ledgers are merged. With a
    /// filter that begins with `$share/` it is this, whatever was asked for.
    Part,
}

/// How to audit what is received. Everything but the filters has a default.
#[derive(Clone, Debug)]
pub struct SubscriberOptions {
    filters: Vec<Filter>,
    prefix: String,
    hasher: Hasher,
    scope: Scope,
    limits: LedgerLimits,
    expected: Expected,
    acknowledging: Acknowledging,
    asks: bool,
    judges_origins: bool,
    crosses_mounts: bool,
    saved: Option<Vec<u8>>,
}

/// The lanes that must come; others may come too.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) lanes: BTreeSet<LaneId>,
    /// Every lane that a directory lists.
    pub(super) listed: bool,
}

impl SubscriberOptions {
    /// These filters, from now on, XXH3-128, topics under `audit/`; the subscriber acknowledges
    /// what its ledger has taken, and asks for what is lost.
    pub fn new(filters: Vec<Filter>) -> Self {
        Self {
            filters,
            prefix: Names::DEFAULT_PREFIX.to_owned(),
            hasher: Hasher::xxh3(),
            scope: Scope::default(),
            limits: LedgerLimits::default(),
            expected: Expected::default(),
            acknowledging: Acknowledging::Automatic,
            asks: true,
            judges_origins: true,
            crosses_mounts: false,
            saved: None,
        }
    }

    /// Another algorithm, or a key: that of the producers.
    #[must_use]
    pub fn hasher(mut self, hasher: Hasher) -> Self {
        self.hasher = hasher;
        self
    }

    /// Other topics for checkpoints and repair; the same for all who take part.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// What of its lanes it sees.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// How much is held, and how late is lost. Of messages that turn out to be forged, several in
    /// one group of 32, only [`LedgerLimits::hold_leaves`] tells which they are; without it others
    /// of the group are repaired, too, and [new](super::super::AuditedMessage::is_new) a second
    /// time.
    #[must_use]
    pub fn limits(mut self, limits: LedgerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// A lane that is to come. It is missed from its first message on, though nothing of it comes,
    /// as far as its producer's checkpoints and directories tell; from where it is, if it was there
    /// before this subscriber and the scope is not [`Scope::FromBeginning`]. Of one of which there
    /// is no sign at all, [`Delivery::Expected`] says so.
    #[must_use]
    pub fn expect(mut self, lane: LaneId) -> Self {
        self.expected.lanes.insert(lane);
        self
    }

    /// It takes every lane of every producer under the prefix, so each that a directory lists is to
    /// come. With [`Scope::FromBeginning`] it has heard all directories, and nothing else may come:
    /// a message of a lane that none lists is injected. Not for who hears one hop of a line, whose
    /// lanes before and behind it are listed like any.
    #[must_use]
    pub fn expect_listed(mut self) -> Self {
        self.expected.listed = true;
        self
    }

    /// The owner acknowledges each message, once it and the ledger's state are saved.
    #[must_use]
    pub fn acknowledged_by_hand(mut self) -> Self {
        self.acknowledging = Acknowledging::ByHand;
        self
    }

    /// Without a way back to the producers: nothing is asked for.
    #[must_use]
    pub fn one_way(mut self) -> Self {
        self.asks = false;
        self
    }

    /// Judges lanes only where it hears them itself, and not by what others were made of: for who
    /// watches several hops of a line at once.
    #[must_use]
    pub fn without_origins(mut self) -> Self {
        self.judges_origins = false;
        self
    }

    /// The broker gives clients mount points, and the producers know their topics by other names
    /// than this subscriber: with or without what stands in front. A message is judged by the topic
    /// in its user property `audit-topic`, if one of the two topics ends with the other, behind a
    /// `/`. What stands in front of that is then the broker's word, which no stamp covers.
    #[must_use]
    pub fn across_mounts(mut self) -> Self {
        self.crosses_mounts = true;
        self
    }

    /// Goes on from the [bytes](Saved::bytes) that [`AuditedSubscriber::save`] gave.
    #[must_use]
    pub fn restore(mut self, saved: Vec<u8>) -> Self {
        self.saved = Some(saved);
        self
    }

    /// Subscribes.
    pub async fn open(self, client: &Client) -> Result<AuditedSubscriber, OpenError> {
        check_version(client)?;
        let names = Names::new(&self.prefix);
        let token = token(client.client_id(), &self.filters);
        let kinds = ["checkpoint", "drop", "directory"].map(|kind| names.filter(kind));
        // A member of a group that expected all would call lost what others have.
        let scope = if self.filters.iter().any(Filter::is_shared) {
            Scope::Part
        } else {
            self.scope
        };
        let mut filters = self.filters.clone();
        for text in kinds.into_iter().chain([names.answer(&token)]) {
            filters.push(heard(text)?);
        }
        let join = match scope {
            Scope::FromBeginning => Join::Beginning,
            Scope::FromNow => Join::Late,
            Scope::Part => Join::Member,
        };
        let (ledger, position) = match &self.saved {
            Some(saved) => Ledger::restore(saved, self.hasher.clone(), self.limits.clone(), join)?,
            None => (
                Ledger::new(self.hasher.clone(), self.limits.clone(), join),
                Vec::new(),
            ),
        };
        let (direct, origins, position) = read_position(&position);
        let messages = client.subscribe_all(filters, Acknowledging::ByHand).await?;
        let mut subscriber = AuditedSubscriber {
            client: client.clone(),
            names,
            filters: self.filters,
            hasher: self.hasher,
            ledger,
            join,
            limits: self.limits,
            clock: Clock::start(),
            messages,
            acknowledging: self.acknowledging,
            token,
            direct,
            come: BTreeSet::new(),
            origins,
            expected: self.expected,
            ready: VecDeque::new(),
            running: Running::Stands,
            away: Away::new(client),
            strangers: BTreeMap::new(),
            no_room: BTreeSet::new(),
            is_full_of_producers: false,
            at_most_once: BTreeSet::new(),
            asking: self.asks.then(Asking::default),
            judges_origins: self.judges_origins,
            crosses_mounts: self.crosses_mounts,
            early: Vec::new(),
            next_look: Duration::ZERO,
            next_poll: Duration::ZERO,
            position,
            releases: None,
            unsaved: None,
        };
        subscriber.expect();
        Ok(subscriber)
    }
}
