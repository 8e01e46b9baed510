//! What a receiver finds, piece by piece, as views and logs take it.

use std::ops::Range;

use unbroken_client::audit::{Absence, AuditedMessage, AuditedSubscriber, Delivery};
use unbroken_merkle_log::ledger::{Event, LaneLedger, Presence, State, Verdict};
use unbroken_merkle_log::{Digest as _, DropRecord, DropRun, Epoch, LaneId};

use crate::contradiction::Contradiction;
use crate::doubt::Doubt;
use crate::fault::{Fault, Kind, Place};

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The broker sends it what comes from now on.
    Listening,
    /// Something is wrong with a message.
    Fault {
        /// What.
        fault: Fault,
        /// With one of the messages that come here. Otherwise with one that they were made from.
        own: bool,
    },
    /// A message came late while others are still missing. It or what has overtaken it moved;
    /// which, is a fault that is told when nothing is missing any more.
    Overtaken {
        /// The late one.
        place: Place,
        /// How many with higher numbers have come before it.
        by: u64,
        /// As of a fault.
        own: bool,
    },
    /// Something of a lane is in doubt, or is no longer.
    Doubt {
        /// Of which lane.
        lane: LaneId,
        /// What.
        doubt: Doubt,
        /// As of a fault.
        own: bool,
    },
    /// The same is wrong with many messages: those behind the first ones, which are named singly,
    /// or all of a loss of which there is more to say.
    ManyFaults {
        /// What.
        kind: Kind,
        /// The first of them.
        first: Place,
        /// Behind the last of them.
        end: u64,
        /// As of a fault.
        own: bool,
        /// What else is known of it.
        behind: Behind,
    },
    /// These do not come, as a drop record says.
    Undelivered {
        /// The first of them.
        first: Place,
        /// Behind the last of them.
        end: u64,
        /// Why not.
        reason: String,
        /// The record is for this receiver alone, as the broker's are. Otherwise it is a
        /// processor's.
        by_broker: bool,
    },
    /// One of these fits its stamp and is not the producer's: the root differs. Which one is being
    /// asked for.
    RootDiffers {
        /// The first of them.
        first: Place,
        /// Behind the last of them.
        end: u64,
        /// As of a fault.
        own: bool,
    },
    /// Two messages bear this number and fit their stamps, and differ. The first was handed on;
    /// which of the two is real is not known.
    Conflict(Place),
    /// It is known now which of the two is real.
    Decided {
        /// Which number.
        place: Place,
        /// Otherwise it is the first, which was handed on.
        second_is_real: bool,
    },
    /// This receiver was not connected, and nothing was kept for it.
    Away(Absence),
    /// Parts of a lane that fit cannot be true together.
    Contradiction {
        /// Which lane.
        lane: LaneId,
        /// Which parts.
        contradiction: Contradiction,
        /// As of a fault.
        own: bool,
    },
    /// An expected lane is not there, or is at last.
    Expected {
        /// Which lane.
        lane: LaneId,
        /// Whether it is there.
        presence: Presence,
    },
    /// These were lost long ago, and there is no room to remember them: a copy that still comes
    /// will be called repeated.
    Forgotten {
        /// In which lane.
        lane: LaneId,
        /// Which.
        numbers: Range<u64>,
    },
    /// A good copy came.
    Repaired(Place),
    /// A window ended, or ended differently.
    Window {
        /// In which lane.
        lane: LaneId,
        /// Its numbers.
        numbers: Range<u64>,
        /// What it came to.
        state: State,
    },
    /// Something that came bears no proof, so it is not used.
    LeftAlone {
        /// Its topic.
        topic: String,
        /// What it lacks.
        why: String,
    },
    /// As many epochs of lanes are followed as may be. Messages of one more are used, and nothing
    /// is proven of them. Said once for an epoch.
    NoRoom {
        /// Which lane.
        lane: LaneId,
        /// How many are followed, and what to do.
        why: String,
    },
    /// A line cannot be sent.
    Dropped {
        /// The topic it was for.
        topic: String,
        /// Why, and what to do.
        why: String,
    },
    /// Nothing of a lane fits, because its producer has another key or algorithm. Said once for a
    /// lane.
    OtherKey {
        /// Which lane.
        lane: LaneId,
        /// What does not fit, and what to do.
        why: String,
    },
}

/// What may be behind a loss beside the way of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The size that tells of it may be forged: the lane has no key, and nothing else tells of it
    /// or something contradicts it.
    pub may_be_forged: bool,
    /// The receiver was away.
    pub absence: Option<Absence>,
}

impl News {
    /// What a delivery of this subscriber says.
    pub fn of(delivery: &Delivery, subscriber: &AuditedSubscriber) -> Vec<Self> {
        match delivery {
            Delivery::Message(message) => Self::of_message(message),
            Delivery::Event { lane, epoch, event } => {
                Self::of_event((*lane, *epoch), event, subscriber)
            }
            Delivery::InputContradicted {
                lane,
                epoch: _,
                number,
            } => vec![Self::Contradiction {
                lane: *lane,
                contradiction: Contradiction::Input(*number),
                own: true,
            }],
            Delivery::Dropped { record, by_broker } => Self::of_drops(record, *by_broker),
            Delivery::Away(absence) => vec![Self::Away(*absence)],
            Delivery::Expected { lane, presence } => vec![Self::Expected {
                lane: *lane,
                presence: *presence,
            }],
            Delivery::Refused { topic, why, .. } => vec![Self::LeftAlone {
                topic: topic.clone(),
                why: why.clone(),
            }],
            Delivery::NoRoomForProducers { producers_max } => vec![Self::LeftAlone {
                topic: "audit/directory".to_owned(),
                why: format!(
                    "directories of {producers_max} producers are known, and none of one more is \
                     taken"
                ),
            }],
            Delivery::NoRoom {
                lane,
                epoch,
                lanes_max,
            } => vec![Self::NoRoom {
                lane: *lane,
                why: format!(
                    "nothing is proven of epoch {epoch} of lane {lane}: {lanes_max} epochs of lanes \
                     are followed, the most that may be, and none is forgotten. Its messages pass \
                     unproven; begin with an empty state, or let producers keep a spool, so that a \
                     start of theirs is no new epoch"
                ),
            }],
            Delivery::OtherKey { lane, why } => vec![Self::OtherKey {
                lane: *lane,
                why: why.clone(),
            }],
            _ => Vec::new(),
        }
    }

    /// What became known of a lane.
    fn of_event(
        (lane, epoch): (LaneId, Epoch),
        event: &Event,
        subscriber: &AuditedSubscriber,
    ) -> Vec<Self> {
        let own = subscriber.hears(lane);
        let place = |number| Place {
            lane,
            epoch,
            number,
        };
        let many = |kind, numbers: Range<u64>| Self::ManyFaults {
            kind,
            first: place(numbers.start),
            end: numbers.end,
            own,
            behind: Behind::default(),
        };
        let named = |kind, numbers: Range<u64>| {
            let singly = numbers.start..numbers.end.min(numbers.start + SINGLY_MAX);
            let others = singly.end..numbers.end;
            let faults = singly.map(|number| Fault {
                kind,
                place: place(number),
            });
            let faults = faults.map(|fault| Self::Fault { fault, own });
            let others = (!others.is_empty()).then(|| many(kind, others));
            faults.chain(others).collect()
        };
        match event {
            Event::Lost { numbers, tail } => {
                match Self::of_loss(place(numbers.start), numbers.end, *tail, subscriber) {
                    Some(loss) => vec![loss],
                    None => named(Kind::Lost, numbers.clone()),
                }
            }
            Event::RootDiffers(numbers) => vec![Self::RootDiffers {
                first: place(numbers.start),
                end: numbers.end,
                own,
            }],
            Event::Decided {
                number,
                second_is_real,
            } => vec![Self::Decided {
                place: place(*number),
                second_is_real: *second_is_real,
            }],
            Event::Overtaken { number, by } => vec![Self::Overtaken {
                place: place(*number),
                by: *by,
                own,
            }],
            Event::Moved(moved) => named(Kind::Reordered, moved.numbers.clone()),
            Event::Forged(numbers) => named(Kind::Forged, numbers.clone()),
            Event::ForgedAmong(numbers) => vec![many(Kind::Forged, numbers.clone())],
            Event::Injected { number, .. } => named(Kind::Injected, *number..*number + 1),
            Event::Forgotten(numbers) => vec![Self::Forgotten {
                lane,
                numbers: numbers.clone(),
            }],
            Event::Window { numbers, state, .. } => vec![Self::Window {
                lane,
                numbers: numbers.clone(),
                state: *state,
            }],
            other => {
                let doubt = Doubt::of(other).into_iter();
                let doubt = doubt.map(|doubt| Self::Doubt { lane, doubt, own });
                let contradiction = Contradiction::of(other).into_iter();
                let contradiction = contradiction.map(|contradiction| Self::Contradiction {
                    lane,
                    contradiction,
                    own,
                });
                doubt.chain(contradiction).collect()
            }
        }
    }

    /// A loss, and what may be behind it beside the way of the messages.
    fn of_loss(first: Place, end: u64, tail: bool, subscriber: &AuditedSubscriber) -> Option<Self> {
        let Place {
            lane,
            epoch,
            number,
        } = first;
        let known = subscriber.ledger().lane(lane, epoch);
        let is_contradicted = known.is_some_and(LaneLedger::is_contradicted);
        let has_key = subscriber.hasher().algorithm().is_keyed();
        let behind = Behind {
            may_be_forged: !has_key && (tail || is_contradicted),
            absence: subscriber.absence(lane, epoch, &(number..end)),
        };
        (behind != Behind::default()).then(|| Self::ManyFaults {
            kind: Kind::Lost,
            first,
            end,
            own: subscriber.hears(lane),
            behind,
        })
    }

    fn of_drops(record: &DropRecord, by_broker: bool) -> Vec<Self> {
        let runs = record.runs.iter().map(DropRun::numbers);
        let undelivered = runs.map(|numbers| Self::Undelivered {
            first: Place {
                lane: record.lane,
                epoch: record.epoch,
                number: numbers.start,
            },
            end: numbers.end,
            reason: record.reason.to_string(),
            by_broker,
        });
        undelivered.collect()
    }

    /// What a message and its verdict say.
    pub(crate) fn of_message(message: &AuditedMessage) -> Vec<Self> {
        let Some(property) = message.property() else {
            let why = message.no_stamp();
            return vec![Self::LeftAlone {
                topic: message.topic().to_owned(),
                why: why.map(|why| why.to_string()).unwrap_or_default(),
            }];
        };
        let Some(verdict) = message.verdict() else {
            return Vec::new();
        };
        let place = Place::from(property);
        let mut news = Vec::new();
        if let Some(kind) = named(verdict) {
            let fault = Fault { kind, place };
            news.push(Self::Fault { fault, own: true });
        }
        if verdict == Verdict::Conflict {
            news.push(Self::Conflict(place));
        }
        if matches!(verdict, Verdict::Repaired | Verdict::Found) {
            news.push(Self::Repaired(place));
        }
        for (origin, verdict) in message.origins() {
            if let Some(kind) = named(*verdict) {
                let place = Place::from(origin);
                let fault = Fault { kind, place };
                news.push(Self::Fault { fault, own: false });
            }
        }
        news
    }
}

/// Messages of one range that are named singly. A forged checkpoint can tell of 2^63.
pub(crate) const SINGLY_MAX: u64 = 4_096;

/// The fault that a verdict is.
fn named(verdict: Verdict) -> Option<Kind> {
    match verdict {
        Verdict::Duplicate => Some(Kind::Duplicated),
        Verdict::Repeated => Some(Kind::Repeated),
        Verdict::Altered => Some(Kind::Altered),
        Verdict::Injected => Some(Kind::Injected),
        _ => None,
    }
}
