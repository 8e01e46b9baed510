//! The broker's side of the proof: what came in, who was owed it, and what became of it.
//!
//! ```text
//! PUBLISH -> lane: a number and a leaf      route: one delivery owed to each receiver
//!                      |                                        |
//!                 beside the message                account of the session it is owed to
//!                      |                                        |
//!             checked where it changes hands     sent, acknowledged, dropped: each told to it
//! ```
//!
//! - A [`lane`] numbers what one client publishes, and hashes it; a [`beacon`] tells its
//!   checkpoints to those who get its stamps.
//! - An [`account`] keeps what one session is owed and what it had, and knows the law.
//! - [`missed`] tells a session's client what was not delivered to it, and why.
//! - [`statement`] tells the account of one session to whoever asks for it.
//! - [`letters`] numbers what one shard says to another.
//! - [`receipt`] follows single messages, for whoever [`watch`]es their lane.
//! - [`owners`] knows over all shards whose lane one is that a publisher stamps itself.
//! - [`known`] remembers epochs, so that one that begins differs from one that goes on.
//! - [`rule`] says what is stamped; [`verify`] judges publishers that stamp themselves.
//! - [`verdict`] is the sentence over all of it, made for whoever subscribes.
//! - [`AuditTotals`](crate::AuditTotals) is what all of them come to, [`fault`] the name of what
//!   must not happen.
//!
//! Invariants:
//! - A number is given once, in the order in which the messages were accepted.
//! - What must not happen is a named fault, counted and told; it is never a panic, and never
//!   changes what is delivered.
//! - Nothing here allocates once a client has published its first messages.
//! - What one run of the broker has numbered, no other numbers differently: [`rest`]; and what is
//!   stored of it can be proven after a crash: [`so_far`].

pub(crate) mod account;
pub(crate) mod beacon;
pub(crate) mod fault;
pub(crate) mod json;
pub(crate) mod known;
pub(crate) mod lane;
pub(crate) mod letters;
pub(crate) mod missed;
pub(crate) mod owners;
pub(crate) mod receipt;
pub(crate) mod rest;
pub(crate) mod rule;
pub(crate) mod so_far;
pub(crate) mod statement;
pub(crate) mod verdict;
pub(crate) mod verify;
pub(crate) mod watch;

pub(crate) use account::Account;
pub(crate) use lane::{IngressLane, Lanes};

use std::sync::Arc;
use std::time::Instant;

use owners::{Sender, User};
use receipt::News;
use rule::Treatment;
use unbroken_merkle_log::{Epoch, LaneId};
use unbroken_mqtt_proto::PropertyBuf;

use crate::clients::Clients;
use crate::ids::SessionId;
use crate::message::{Mark, Publication};
use crate::reason::{DropReason, FaultKind, FaultPlace};
use crate::settings::AuditAction;
use crate::shard::Shard;

impl Shard {
    /// Numbers an accepted message of this session.
    fn mark(&mut self, now: Instant, id: SessionId, publication: &mut Publication<'_>) {
        let audit = &self.options.settings.audit;
        if !audit.enabled || self.clients.stopping {
            return;
        }
        let (started_us, start) = (audit.started_us, self.options.start);
        let Some(session) = self.clients.sessions.get_mut(id.index()) else {
            return;
        };
        if !session.rules.is_empty()
            && rule::treatment(&session.rules, &audit.rules, publication.topic).action
                == AuditAction::Off
        {
            return;
        }
        let lane = match &mut session.lane {
            Some(lane) => lane,
            none => {
                let second = lane::second(started_us, start, now);
                none.insert(Box::new(self.lanes.open(&session.client_id, second)))
            }
        };
        let totals = self.clients.telemetry.audit();
        totals.received += 1;
        if self.clients.home.topics.is_aside(publication.topic) {
            totals.aside.received += 1;
        }
        let mark = publication.mark.insert(lane.stamp(publication));
        lane.tell_full_window(&mut self.clients.home);
        if self.clients.home.watching > 0 {
            lane.look(&mut self.router);
            if lane.wants.any() {
                mark.tracked = true;
                let new = lane.tracking.is_none();
                lane.follow(mark, publication.topic, &mut self.clients.home);
                if new {
                    self.follow(now, id);
                }
            }
        }
    }

    /// Gives an accepted message its number, and its stamp where that is forwarded: then `stamped`
    /// holds its properties.
    pub(crate) fn put_mark<'a>(
        &mut self,
        now: Instant,
        id: SessionId,
        publication: &mut Publication<'a>,
        stamped: &'a mut PropertyBuf,
    ) {
        self.mark(now, id, publication);
        let Some(mark) = &publication.mark else {
            return;
        };
        if !self.treatment(id, publication.topic).forward_stamp {
            return;
        }
        publication.properties = mark.add_to(publication.properties, stamped);
        let session = self.clients.sessions.get_mut(id.index());
        let lane = session.and_then(|session| session.lane.as_deref_mut());
        if lane.is_some_and(IngressLane::begin_telling) {
            self.follow(now, id);
            if let Some(session) = self.clients.sessions.get(id.index()) {
                let client_id = Arc::clone(&session.client_id);
                self.claim_ingress(&client_id);
            }
        }
    }

    /// What the rules say of a message of this session.
    #[inline]
    pub(crate) fn treatment(&self, id: SessionId, topic: &str) -> Treatment {
        match self.clients.sessions.get(id.index()) {
            Some(session) if !session.rules.is_empty() => {
                let rules = &self.options.settings.audit.rules;
                rule::treatment(&session.rules, rules, topic)
            }
            _ => Treatment::DEFAULT,
        }
    }

    /// Looks at what a publisher that stamps itself says about its message, and at checkpoints.
    /// Answers in whose ledger the message is.
    pub(crate) fn verify_publisher(
        &mut self,
        now: Instant,
        id: SessionId,
        again: bool,
        publication: &Publication<'_>,
    ) -> Option<(LaneId, Epoch)> {
        let says_something =
            !publication.properties.is_empty() || self.is_word_of_a_lane(publication.topic);
        if !says_something || !self.options.settings.audit.enabled {
            return None;
        }
        let sender = self.sender(id)?;
        match self.treatment(id, publication.topic).action {
            AuditAction::Verify => self.verify(now, &sender, again, publication),
            AuditAction::Stamp | AuditAction::Off => {
                self.leave_out(&sender, publication);
                None
            }
        }
    }

    /// The client of this session, and the user as whom it was let in.
    fn sender(&self, id: SessionId) -> Option<Sender> {
        let session = self.clients.sessions.get(id.index())?;
        let connection = session
            .connection
            .and_then(|index| self.clients.connections.at(index));
        Some(Sender {
            client_id: Arc::clone(&session.client_id),
            user: match connection.map(|connection| &connection.identity().user) {
                None => User::Unknown,
                Some(None) => User::Anonymous,
                Some(Some(name)) => User::Named(Arc::clone(name)),
            },
        })
    }

    /// A message is not taken in: of a publisher that stamps itself it is not lost, it is refused.
    #[cold]
    pub(crate) fn note_refused(
        &mut self,
        id: SessionId,
        publication: &Publication<'_>,
        reason: DropReason,
    ) {
        let Some(sender) = self.sender(id) else {
            return;
        };
        match self.treatment(id, publication.topic).action {
            AuditAction::Verify => self.refused(&sender, publication, reason),
            AuditAction::Stamp | AuditAction::Off => self.leave_out(&sender, publication),
        }
    }

    /// Whether this may be a checkpoint, a directory or a drop record.
    fn is_word_of_a_lane(&self, topic: &str) -> bool {
        let topics = &self.clients.home.topics;
        let words = [&topics.checkpoints, &topics.directories, &topics.drops];
        words.into_iter().any(|word| topic.starts_with(word))
    }

    /// Whole seconds since 1970.
    pub(crate) fn second(&self, now: Instant) -> u32 {
        let started_us = self.options.settings.audit.started_us;
        lane::second(started_us, self.options.start, now)
    }
}

impl Clients {
    /// Looks whether a message that came from another shard is the one that was accepted there.
    pub(crate) fn check_unaltered(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) {
        let Some(mark) = publication.mark.filter(|mark| !mark.fits(publication)) else {
            return;
        };
        self.name_altered(&mark, publisher);
    }

    #[cold]
    pub(crate) fn name_altered(&mut self, mark: &Mark, publisher: Option<&Arc<str>>) {
        let Some(publisher) = publisher else {
            return;
        };
        let place = FaultPlace::Lane(Arc::clone(publisher));
        self.fault(place, FaultKind::Altered, mark.number, 1);
        if mark.tracked {
            self.send_news(mark, publisher, News::Altered);
        }
    }
}
