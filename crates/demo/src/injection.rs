//! The faults that a relay can inject, and the record of one that it injected.

use std::fmt;
use std::time::{Duration, Instant};

use unbroken_merkle_log::Property;

/// What is done to one message that carries an audit property, or to two neighbours of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
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

/// A fault that was injected: into which message, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Which.
    pub injection: Injection,
    /// The topic it was on.
    pub topic: String,
    /// The message's stamps before the injection.
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

impl Injection {
    /// What has become of the message.
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

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let participle = self.injection.participle();
        let number = self.message.audit.sequence;
        write!(f, "{participle}: number {number} on {}", self.topic)?;
        match &self.overtaken_by {
            Some(second) => write!(f, ", overtaken by {}", second.audit.sequence),
            None => Ok(()),
        }
    }
}
