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
    /// The property that it came with, before the wound.
    pub audit: Property,
    /// Those of the messages it was made from, oldest first.
    pub origins: Vec<Property>,
    /// The neighbour that overtook it, of a swap.
    pub overtaken_by: Option<Property>,
    /// When it was done.
    pub at: Instant,
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
            Self::Hold(_) => "held",
        }
    }
}

impl fmt::Display for Wounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wound,
            topic,
            audit,
            ..
        } = self;
        let participle = wound.participle();
        write!(f, "{participle}: number {} on {topic}", audit.sequence)?;
        match self.overtaken_by {
            Some(second) => write!(f, ", overtaken by {}", second.sequence),
            None => Ok(()),
        }
    }
}
