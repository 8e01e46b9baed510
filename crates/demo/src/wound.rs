//! The wounds that a relay can give a line, and the record of one that it gave.

use std::fmt;
use std::time::{Duration, Instant};

use unbroken_merkle_log::Property;

/// What is done to one message that carries an audit property, or to two neighbours of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wound {
    /// It is not passed on. Its sender is told that it was.
    Lose,
    /// It is passed on, and once more.
    Duplicate,
    /// The next one of its lane overtakes it.
    Swap,
    /// Its payload changes and its digest does not.
    Alter,
    /// Its payload changes, and its digest is made to fit.
    Forge,
    /// It is passed on, and behind it comes another message under its number.
    Inject,
    /// Long after it was passed on it comes once more.
    Replay,
    /// It is held back for this long, while others pass.
    Hold(Duration),
}

/// A wound that was given: to which message, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wounded {
    /// Which.
    pub wound: Wound,
    /// The topic it was on.
    pub topic: String,
    /// Who it was, before the wound.
    pub message: Stamps,
    /// The neighbour that overtook it, of a swap.
    pub overtaken_by: Option<Stamps>,
    /// When it was done.
    pub at: Instant,
}

/// What a message was stamped with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// By whoever published it.
    pub audit: Property,
    /// The stamps of the messages it was made from, oldest first.
    pub origins: Vec<Property>,
}

impl Wound {
    /// What has become of a message that has this wound.
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Lose => "lost",
            Self::Duplicate => "duplicated",
            Self::Swap => "swapped",
            Self::Alter => "altered",
            Self::Forge => "forged",
            Self::Inject => "injected",
            Self::Replay => "replayed",
            Self::Hold(_) => "held",
        }
    }
}

impl fmt::Display for Wounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let participle = self.wound.participle();
        let number = self.message.audit.sequence;
        write!(f, "{participle}: number {number} on {}", self.topic)?;
        match &self.overtaken_by {
            Some(second) => write!(f, ", overtaken by {}", second.audit.sequence),
            None => Ok(()),
        }
    }
}
