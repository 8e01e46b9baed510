//! Whose lane it is that a publisher stamps itself.
//!
//! ```text
//! first message of a lane -> judged here, LaneClaimed to the shard of the lane
//!                              free, or this client's: it is its owner
//!                              another's: LaneHeld -> not judged here, its messages are intrusions
//! the owner's session ends -> LaneReleased -> free; LaneFree to those that were refused it
//! ```
//!
//! A stamp says which lane a message is of, and any client can write one. So a lane is bound to the
//! client, and the user, that opened it, whatever the epoch. What others send of it says nothing
//! about it, be it a message, a checkpoint, a directory or a drop record: the sender is named, and
//! the owner's verdict stays as it is. The id of a producer that sends directories is bound in the
//! same way, as that of a lane would be: a directory may list no lane at all.
//!
//! The shard of the lane decides between two claims by when each client's message was read, not by
//! when the claim came: messages of two shards overtake one another. The ingress lane of a client
//! whose stamps the broker forwards is claimed as well. Its id follows from the client id, so this
//! claim goes before that of a client that came earlier.
//!
//! Invariants:
//! - A lane has one owner at a time, over all shards. Until the shard of the lane has answered, two
//!   shards may judge it, each what its own client sends.
//! - A lane stays its owner's while the owner's session lasts, so a producer that reconnects goes
//!   on with it. Then it is free, and another client that opens it is named as the new owner.
//!
//! Deliberately absent: a proof of who owns a lane. The first to open it does; a lane's id is drawn
//! at random, and its receivers know it only once it is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use unbroken_merkle_log::{Epoch, LaneId};

use super::Audit;
use super::json::Object;
use super::known::KnownEpochs;
use super::lane::lane_of;
use super::watch::Watch;
use crate::durability::LaneUser;
use crate::ids::ShardId;
use crate::limits::{INTRUSIONS_TOLD_MAX, LANES_CLOSED_MAX, VERIFIED_LANES_MAX};
use crate::placement;
use crate::reason::Sent;
use crate::telemetry::{Event, Telemetry};

/// The client that a message came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sender {
    pub(crate) client_id: Arc<str>,
    pub(crate) user: LaneUser,
}

impl Sender {
    /// Whether this may be the one that another message came from.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.client_id == other.client_id
            && (!self.user.differs(&other.user) || self.user.passes_to(&other.user))
    }
}

/// Owners of lanes: of those that belong to this shard, and of those that its clients were refused.
#[derive(Debug, Default)]
pub(crate) struct LaneOwners {
    claims: BTreeMap<LaneId, Claim>,
    /// Lanes whose owner's session has ended, the oldest first; some may be open again.
    closed: VecDeque<LaneId>,
    /// Lanes of clients of other shards of which clients here have sent something.
    elsewhere: BTreeMap<LaneId, Sender>,
    /// Ingress lanes of sessions here that receivers get stamps of.
    forwarded: BTreeMap<LaneId, Arc<str>>,
    /// Producers whose directories clients here send.
    pub(super) producers: BTreeMap<LaneId, Arc<str>>,
    pub(super) known: KnownEpochs,
}

#[derive(Debug)]
struct Claim {
    owner: Sender,
    shard: ShardId,
    /// When its shard read the message that opened the lane.
    at: Instant,
    is_open: bool,
    /// Shards to whose clients it was refused.
    refused: BTreeSet<ShardId>,
}

impl Claim {
    /// Of two claims of a lane the smaller counts.
    fn rank(lane: LaneId, client_id: &str, at: Instant) -> (bool, Instant) {
        (lane_of(client_id) != lane, at)
    }
}

/// A client has opened a lane.
#[derive(Debug)]
pub(crate) struct NewClaim {
    lane: LaneId,
    owner: Sender,
    /// When its shard read the message that opened it.
    at: Instant,
}

/// A place in a lane: that of a message, of the first in a drop record, or the size that a
/// checkpoint names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(super) lane: LaneId,
    pub(super) epoch: Epoch,
    pub(super) number: u64,
}

/// What a client says of lanes in their owners' place.
#[derive(Debug)]
pub(crate) struct Spoken {
    sender: Sender,
    sent: Sent,
    spots: Vec<Spot>,
}

/// What one client has sent of a lane of another's, and how much of it was not yet reported.
#[derive(Debug)]
pub(super) struct Intrusion {
    owner: Arc<str>,
    epoch: Epoch,
    number: u64,
    unreported: u64,
}

impl LaneOwners {
    /// Whose lane this is, if no publisher here has opened it.
    pub(super) fn owner(&self, lane: LaneId) -> Option<&Arc<str>> {
        let forwarded = self.forwarded.get(&lane);
        let here = forwarded.or_else(|| self.producers.get(&lane));
        here.or_else(|| Some(&self.elsewhere.get(&lane)?.client_id))
    }

    /// The client of another shard whose lane this is, if clients here have sent something of it.
    pub(super) fn elsewhere(&self, lane: LaneId) -> Option<&Sender> {
        self.elsewhere.get(&lane)
    }

    /// Whether clients here have sent something of lanes of other shards.
    pub(super) fn knows_others(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Whose ingress lane this is, if that is a session here.
    pub(super) fn forwarded(&self, lane: LaneId) -> Option<&Arc<str>> {
        self.forwarded.get(&lane)
    }

    /// The lane has no owner any more.
    fn note_free(&mut self, lane: LaneId) {
        self.elsewhere.remove(&lane);
    }

    fn close(&mut self, lane: LaneId) {
        if self.closed.len() >= LANES_CLOSED_MAX
            && let Some(oldest) = self.closed.pop_front()
            && self.claims.get(&oldest).is_some_and(|claim| !claim.is_open)
        {
            self.claims.remove(&oldest);
        }
        self.closed.push_back(lane);
    }
}

/// A message from one shard to another about lanes.
#[derive(Debug)]
pub(crate) enum LaneMessage {
    /// A lane that my client stamps is open here; answer `Held` if it is another's.
    Claimed(NewClaim),
    /// It is not any more.
    Released { lane: LaneId },
    /// The lane that you claimed, or spoke of, is this client's.
    Held { lane: LaneId, owner: Sender },
    /// It has no owner any more.
    Free { lane: LaneId },
    /// My client says of these lanes what only their owners say; answer `Held` for those of others.
    SpokenOf(Box<Spoken>),
    /// My client stamps this epoch of a lane.
    EpochOpened { lane: LaneId, epoch: Epoch },
}

impl LaneMessage {
    /// Bytes in it, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Claimed(NewClaim { owner, .. }) | Self::Held { owner, .. } => {
                let user = owner.user.name().map_or(0, |name| name.len());
                (owner.client_id.len() + user) as u64
            }
            Self::SpokenOf(spoken) => size_of_val(spoken.spots.as_slice()) as u64,
            Self::Released { .. } | Self::Free { .. } | Self::EpochOpened { .. } => 0,
        }
    }
}

impl Audit {
    /// Another shard has sent something about lanes.
    pub(crate) fn take_lane_message(
        &mut self,
        telemetry: &mut Telemetry,
        from: ShardId,
        message: LaneMessage,
    ) {
        match message {
            LaneMessage::Claimed(claim) => self.take_claim(telemetry, from, claim),
            LaneMessage::Released { lane } => self.take_release(from, lane),
            LaneMessage::Held { lane, owner } => self.lane_is_held(telemetry, lane, owner),
            LaneMessage::Free { lane } => self.owners.note_free(lane),
            LaneMessage::SpokenOf(spoken) => self.take_speaker(telemetry, from, &spoken),
            LaneMessage::EpochOpened { lane, epoch } => self.note_opened((lane, epoch)),
        }
    }

    /// A lane was opened here, or restored.
    pub(super) fn claim_lane(
        &mut self,
        telemetry: &mut Telemetry,
        at: Instant,
        lane: LaneId,
        owner: Sender,
    ) {
        let claim = NewClaim { lane, owner, at };
        let home = of_lane(lane, self.shards);
        if home == self.shard {
            self.take_claim(telemetry, home, claim);
        } else {
            self.send(home, LaneMessage::Claimed(claim));
        }
    }

    /// The broker forwards its stamps of this client, or did before it was started again.
    pub(super) fn claim_ingress(&mut self, telemetry: &mut Telemetry, client_id: &Arc<str>) {
        let lane = lane_of(client_id);
        let forwarded = &mut self.owners.forwarded;
        if forwarded.insert(lane, Arc::clone(client_id)).is_none() {
            let owner = Sender {
                client_id: Arc::clone(client_id),
                user: LaneUser::Unknown,
            };
            self.claim_lane(telemetry, self.start, lane, owner);
        }
    }

    /// The session of this client has ended.
    pub(super) fn release_ingress(&mut self, client_id: &str) {
        if !self.owners.forwarded.is_empty() {
            let lane = lane_of(client_id);
            if self.owners.forwarded.remove(&lane).is_some() {
                self.release_lane(lane);
            }
        }
    }

    /// Another shard's client has opened an epoch. Of a lane that is open here its client says
    /// nothing: it will hear that it is not its own.
    fn note_opened(&mut self, key: (LaneId, Epoch)) {
        if !self.publishers.is_open(key.0) {
            self.owners.known.note(key);
        }
    }

    /// An epoch was opened here, or restored. Every shard notes it, since its lane may come back on
    /// any of them.
    pub(super) fn note_epoch(&mut self, (lane, epoch): (LaneId, Epoch)) {
        self.owners.known.note((lane, epoch));
        for shard in (0..self.shards).map(ShardId) {
            if shard != self.shard {
                self.send(shard, LaneMessage::EpochOpened { lane, epoch });
            }
        }
    }

    /// The last epoch of a lane has ended here with its owner's session.
    pub(super) fn release_lane(&mut self, lane: LaneId) {
        let home = of_lane(lane, self.shards);
        if home == self.shard {
            self.take_release(home, lane);
        } else {
            self.send(home, LaneMessage::Released { lane });
        }
    }

    fn take_claim(&mut self, telemetry: &mut Telemetry, from: ShardId, claim: NewClaim) {
        let NewClaim { lane, owner, at } = claim;
        let Some(claim) = self.owners.claims.get_mut(&lane) else {
            let claim = Claim {
                owner,
                shard: from,
                at,
                is_open: true,
                refused: BTreeSet::new(),
            };
            self.owners.claims.insert(lane, claim);
            return;
        };
        let is_same = claim.owner.client_id == owner.client_id;
        let known = Claim::rank(lane, &claim.owner.client_id, claim.at);
        if claim.is_open && !is_same && Claim::rank(lane, &owner.client_id, at) < known {
            // The client whose claim came before is an intruder.
            claim
                .refused
                .insert(std::mem::replace(&mut claim.shard, from));
            claim.at = at;
            claim.owner = owner.clone();
            for shard in claim.refused.clone() {
                self.refuse_claim(telemetry, shard, lane, owner.clone());
            }
            return;
        }
        if claim.is_open && !is_same {
            claim.refused.insert(from);
            let owner = claim.owner.clone();
            return self.refuse_claim(telemetry, from, lane, owner);
        }
        claim.at = if claim.is_open { claim.at.min(at) } else { at };
        (claim.shard, claim.is_open) = (from, true);
        let client_id = Arc::clone(&owner.client_id);
        let before = std::mem::replace(&mut claim.owner, owner);
        if !is_same {
            self.report_owner(telemetry, lane, client_id, before.client_id);
        }
    }

    fn take_release(&mut self, from: ShardId, lane: LaneId) {
        let claim = self.owners.claims.get_mut(&lane);
        let Some(claim) = claim.filter(|claim| claim.is_open && claim.shard == from) else {
            return;
        };
        claim.is_open = false;
        for shard in std::mem::take(&mut claim.refused) {
            if shard == self.shard {
                self.owners.note_free(lane);
            } else {
                self.send(shard, LaneMessage::Free { lane });
            }
        }
        self.owners.close(lane);
    }

    fn refuse_claim(
        &mut self,
        telemetry: &mut Telemetry,
        from: ShardId,
        lane: LaneId,
        owner: Sender,
    ) {
        if from == self.shard {
            self.lane_is_held(telemetry, lane, owner);
        } else {
            self.send(from, LaneMessage::Held { lane, owner });
        }
    }

    /// A lane that was opened here, or spoken of, is another client's.
    fn lane_is_held(&mut self, telemetry: &mut Telemetry, lane: LaneId, owner: Sender) {
        self.owners.producers.remove(&lane);
        let client_id = Arc::clone(&owner.client_id);
        if self.owners.elsewhere.len() < VERIFIED_LANES_MAX {
            self.owners.elsewhere.insert(lane, owner);
        }
        if let Some((sender, spot)) = self.publishers.drop_lane(lane) {
            self.intrude(telemetry, &sender, spot, (Sent::Message, None), client_id);
        }
    }

    /// Whether this message is of a lane of another client than its sender, who is named then.
    pub(super) fn intrudes(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        spot: Spot,
        topic: &str,
    ) -> bool {
        let owner = self.publishers.other_owner(spot.lane, sender, &self.owners);
        let is_other = owner.is_some();
        if let Some(owner) = owner {
            self.intrude(telemetry, sender, spot, (Sent::Message, Some(topic)), owner);
        }
        is_other
    }

    /// A client says of lanes what only their owners say. Whose they are may be known on another
    /// shard.
    pub(super) fn note_speaker(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        sent: Sent,
        spots: &[Spot],
    ) {
        let mut asked: BTreeMap<ShardId, Vec<Spot>> = BTreeMap::new();
        for spot in spots {
            if let Some(owner) = self.publishers.other_owner(spot.lane, sender, &self.owners) {
                self.intrude(telemetry, sender, *spot, (sent, None), owner);
            } else if !self.publishers.is_open(spot.lane) {
                let home = of_lane(spot.lane, self.shards);
                asked.entry(home).or_default().push(*spot);
            }
        }
        for (home, spots) in asked {
            let sender = sender.clone();
            let spoken = Box::new(Spoken {
                sender,
                sent,
                spots,
            });
            if home == self.shard {
                self.take_speaker(telemetry, home, &spoken);
            } else {
                self.send(home, LaneMessage::SpokenOf(spoken));
            }
        }
    }

    /// A client of that shard has spoken of lanes whose owners are known here.
    fn take_speaker(&mut self, telemetry: &mut Telemetry, from: ShardId, spoken: &Spoken) {
        let Spoken {
            sender,
            sent,
            spots,
        } = spoken;
        for spot in spots {
            let claim = self.owners.claims.get_mut(&spot.lane);
            let Some(claim) =
                claim.filter(|claim| claim.is_open && claim.owner.client_id != sender.client_id)
            else {
                continue;
            };
            let owner = claim.owner.clone();
            if from != claim.shard && claim.refused.insert(from) {
                self.refuse_claim(telemetry, from, spot.lane, owner.clone());
            }
            self.intrude(telemetry, sender, *spot, (*sent, None), owner.client_id);
        }
    }

    /// A client has sent something of a lane that is another's. The first is reported at once, what
    /// follows of the same kind from the same client in the same lane once a second. `sent`: what,
    /// and its topic if that is known.
    #[cold]
    pub(super) fn intrude(
        &mut self,
        telemetry: &mut Telemetry,
        sender: &Sender,
        spot: Spot,
        (sent, topic): (Sent, Option<&str>),
        owner: Arc<str>,
    ) {
        telemetry.audit().publishers.intruded += 1;
        let Spot {
            lane,
            epoch,
            number,
        } = spot;
        let intrusions = &mut self.publishers.intrusions;
        let key = (lane, sent, sender.clone());
        if let Some(intrusion) = intrusions.get_mut(&key) {
            if intrusion.unreported == 0 {
                (intrusion.epoch, intrusion.number) = (epoch, number);
            }
            intrusion.unreported += 1;
        } else if intrusions.len() < INTRUSIONS_TOLD_MAX {
            let mut new = Intrusion {
                owner,
                epoch,
                number,
                unreported: 1,
            };
            new.report(&key, topic, &mut self.watch, telemetry);
            self.publishers.intrusions.insert(key, new);
        }
    }
}

impl Intrusion {
    /// Reports what was not reported, and answers whether there was anything.
    pub(super) fn report(
        &mut self,
        (lane, sent, sender): &(LaneId, Sent, Sender),
        topic: Option<&str>,
        watch: &mut Watch,
        telemetry: &mut Telemetry,
    ) -> bool {
        let count = std::mem::take(&mut self.unreported);
        if count == 0 {
            return false;
        }
        let Sender { client_id, user } = sender;
        let Self {
            owner,
            epoch,
            number,
            ..
        } = self;
        let which = words(*sent, *number);
        let words = format!("{which}: sent by another client, in the lane of {owner}");
        let user = user.name().cloned();
        let object = Object::new()
            .text("lane", &lane.to_string())
            .number("epoch", epoch.0)
            .text("kind", "intruded")
            .text("place", "before the broker")
            .text("client", client_id)
            .text_if("user", user.as_deref())
            .text("owner", owner)
            .text("sent", sent.name())
            .number("first", *number)
            .number("count", count)
            .text_if("topic", topic)
            .text("words", &words);
        watch.report_on_lane(*lane, "fault", object);
        telemetry.report(Event::LaneIntruded {
            client_id: Arc::clone(client_id),
            user,
            lane: lane.value(),
            owner: Arc::clone(owner),
            sent: *sent,
            number: *number,
            count,
        });
        true
    }
}

impl Audit {
    fn report_owner(
        &mut self,
        telemetry: &mut Telemetry,
        lane: LaneId,
        client_id: Arc<str>,
        before: Arc<str>,
    ) {
        let words = format!("opened by {client_id}, after the session of {before} had ended");
        let object = Object::new()
            .text("lane", &lane.to_string())
            .text("client", &client_id)
            .text("before", &before)
            .text("words", &words);
        self.watch.report_on_lane(lane, "owner", object);
        telemetry.report(Event::LaneOwner {
            client_id,
            lane: lane.value(),
            before,
        });
    }
}

/// The shard that knows whose lane it is.
fn of_lane(lane: LaneId, shards: u8) -> ShardId {
    placement::of_topic(&lane.to_string(), shards)
}

/// What was sent, and which.
fn words(sent: Sent, number: u64) -> String {
    match sent {
        Sent::Message => format!("number {number}"),
        Sent::Checkpoint => format!("checkpoint of {number} messages"),
        Sent::Directory => format!("directory that tells of {number} messages"),
        Sent::DropRecord => format!("drop record from number {number} on"),
    }
}
