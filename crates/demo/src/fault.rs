//! Faults as receivers name them, and which injected fault explains which.

use std::fmt;

use unbroken_merkle_log::{Epoch, LaneId, Property};

use crate::injection::{Injected, Injection, Stamps};

/// One message, as its lane numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The lane of whoever published it.
    pub lane: LaneId,
    /// The lane's epoch.
    pub epoch: Epoch,
    /// Its number there.
    pub number: u64,
}

/// What a receiver says is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// With which.
    pub place: Place,
}

/// What may be wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It has not come.
    Lost,
    /// It came again, the same in every byte.
    Duplicated,
    /// Its number came again, and the content of the first message is not known any more.
    Repeated,
    /// It came out of its place.
    Reordered,
    /// It does not fit its digest.
    Altered,
    /// It fits its digest, and the producer issued another.
    Forged,
    /// Another message bears its number.
    Injected,
}

impl Kind {
    /// All of them, in the order in which a sentence tells them.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Duplicated,
        Self::Repeated,
        Self::Reordered,
        Self::Altered,
        Self::Forged,
        Self::Injected,
    ];

    /// As in "3 lost".
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Duplicated => "duplicated",
            Self::Repeated => "repeated",
            Self::Reordered => "reordered",
            Self::Altered => "altered",
            Self::Forged => "forged",
            Self::Injected => "injected",
        }
    }

    /// Whether a good copy has to come before all is well. Of the others the receiver sets one
    /// aside, or puts it in its place.
    pub const fn needs_repair(self) -> bool {
        matches!(self, Self::Lost | Self::Altered | Self::Forged)
    }

    /// Whether a connection that breaks can be the reason: what was on its way comes again, or
    /// later than others. No break changes what is in a message.
    pub const fn comes_of_a_break(self) -> bool {
        matches!(
            self,
            Self::Lost | Self::Duplicated | Self::Repeated | Self::Reordered
        )
    }
}

impl From<&Property> for Place {
    fn from(audit: &Property) -> Self {
        Self {
            lane: audit.lane,
            epoch: audit.epoch,
            number: audit.sequence,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, place } = self;
        write!(
            f,
            "number {} {} (lane {})",
            place.number,
            kind.participle(),
            place.lane
        )
    }
}

impl Injected {
    /// Whether this fault is the injected one by its right name.
    pub fn is_named_by(&self, fault: &Fault) -> bool {
        let is_first = fault.place == Place::from(&self.message.audit);
        let second = self.overtaken_by.as_ref();
        let is_second = second.is_some_and(|second| fault.place == Place::from(&second.audit));
        match self.injection {
            Injection::Lose => is_first && fault.kind == Kind::Lost,
            Injection::Duplicate | Injection::Replay => {
                is_first && matches!(fault.kind, Kind::Duplicated | Kind::Repeated)
            }
            Injection::Alter => is_first && fault.kind == Kind::Altered,
            Injection::Forge => is_first && fault.kind == Kind::Forged,
            Injection::Inject => is_first && fault.kind == Kind::Injected,
            // Which of two neighbours moved is a matter of words.
            Injection::Swap => (is_first || is_second) && fault.kind == Kind::Reordered,
            // Held for longer than the lateness bound it is lost first.
            Injection::Hold(_) => is_first && matches!(fault.kind, Kind::Reordered | Kind::Lost),
        }
    }

    /// Whether this fault is a right name that the injected one has besides its first: held for
    /// longer than the lateness bound a message is lost, and then found out of its place.
    pub fn has_second_name(&self, fault: &Fault) -> bool {
        matches!(self.injection, Injection::Hold(_)) && self.is_named_by(fault)
    }

    /// Whether this fault is of a message that this injection changed, in whatever lane and by
    /// whatever name: a message lost behind a processor is missing in the lanes it was made from,
    /// too.
    pub fn explains(&self, fault: &Fault) -> bool {
        let incident = [Some(&self.message), self.overtaken_by.as_ref()];
        incident
            .into_iter()
            .flatten()
            .any(|stamps| stamps.places().any(|place| place == fault.place))
    }
}

impl Stamps {
    /// Its places in all lanes.
    fn places(&self) -> impl Iterator<Item = Place> {
        let own = std::iter::once(&self.audit);
        own.chain(&self.origins).map(Place::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use unbroken_merkle_log::Hasher;

    fn stamps(number: u64) -> Stamps {
        let stamp = |lane| {
            let lane = LaneId::new(lane).unwrap();
            Property::stamp(&Hasher::xxh3(), lane, Epoch(0), number, b"t", b"p")
        };
        Stamps {
            audit: stamp(2),
            origins: vec![stamp(1)],
        }
    }

    fn fault(kind: Kind, lane: u64, number: u64) -> Fault {
        Fault {
            kind,
            place: Place {
                lane: LaneId::new(lane).unwrap(),
                epoch: Epoch(0),
                number,
            },
        }
    }

    fn injected(injection: Injection) -> Injected {
        Injected {
            injection,
            topic: "t".to_owned(),
            message: stamps(5),
            overtaken_by: (injection == Injection::Swap).then(|| stamps(6)),
            at: Instant::now(),
        }
    }

    #[test]
    fn an_injected_fault_is_named_by_its_own_kind_and_number_only() {
        let injections = [
            (Injection::Lose, &[Kind::Lost][..]),
            (Injection::Duplicate, &[Kind::Duplicated, Kind::Repeated]),
            (Injection::Replay, &[Kind::Duplicated, Kind::Repeated]),
            (Injection::Swap, &[Kind::Reordered]),
            (Injection::Alter, &[Kind::Altered]),
            (Injection::Forge, &[Kind::Forged]),
            (Injection::Inject, &[Kind::Injected]),
        ];
        for (injection, named) in injections {
            let injected = injected(injection);
            for kind in Kind::ALL {
                let is_named = injected.is_named_by(&fault(kind, 2, 5));
                assert_eq!(is_named, named.contains(&kind));
                assert!(!injected.is_named_by(&fault(kind, 2, 7)));
                assert!(!injected.is_named_by(&fault(kind, 1, 5)));
            }
        }
        assert!(injected(Injection::Swap).is_named_by(&fault(Kind::Reordered, 2, 6)));
    }

    #[test]
    fn an_injected_fault_explains_what_is_missed_in_the_lanes_before() {
        let lost = injected(Injection::Lose);
        assert!(lost.explains(&fault(Kind::Lost, 1, 5)));
        assert!(lost.explains(&fault(Kind::Lost, 2, 5)));
        assert!(!lost.explains(&fault(Kind::Lost, 2, 6)));
        assert!(injected(Injection::Swap).explains(&fault(Kind::Reordered, 1, 6)));
    }
}
