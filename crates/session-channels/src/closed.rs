//! What is left when a message does not go or come: the reason, and whatever was not used.

use std::fmt;

/// Why the other side takes and sends nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Its endpoint was dropped before the protocol's end.
    Dropped,
    /// Its thread or task panicked while it held the endpoint.
    Panicked,
    /// The protocol has come to its end; seen where ended sessions are gathered, in a set or a
    /// stream.
    Finished,
    /// Nobody closed it: the time that was given ran out and the endpoint was given up. Only made
    /// by `?` on an [`Unreceived::Pending`].
    TimedOut,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dropped => "the other side was dropped",
            Self::Panicked => "the other side panicked",
            Self::Finished => "the other side has finished",
            Self::TimedOut => "the other side did not answer in time",
        })
    }
}

/// The session is over, and not by its protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    at: &'static At,
    /// What became of the other side.
    pub why: Why,
}

/// A state of a protocol, by name. Behind a pointer, so that a result that is not an error stays
/// small.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) protocol: &'static str,
    pub(crate) state: &'static str,
}

impl Closed {
    #[inline]
    pub(crate) const fn new(at: &'static At, why: Why) -> Self {
        Self { at, why }
    }

    /// The protocol's name.
    pub const fn protocol(&self) -> &'static str {
        self.at.protocol
    }

    /// The state this side was in.
    pub const fn state(&self) -> &'static str {
        self.at.state
    }
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed")
            .field("protocol", &self.protocol())
            .field("state", &self.state())
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (protocol, state) = (self.protocol(), self.state());
        write!(f, "`{protocol}` ended in state `{state}`: {}", self.why)
    }
}

impl std::error::Error for Closed {}

/// A message that was not taken, given back.
#[derive(Clone, PartialEq, Eq)]
pub struct Unsent<M> {
    /// Its arguments: `()`, the one, or a tuple.
    pub message: M,
    /// Why it was not taken.
    pub closed: Closed,
}

impl<M> fmt::Debug for Unsent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent")
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Unsent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message was not taken: {}", self.closed)
    }
}

impl<M> std::error::Error for Unsent<M> {}

impl<M> From<Unsent<M>> for Closed {
    fn from(unsent: Unsent<M>) -> Self {
        unsent.closed
    }
}

/// Why a send that does not wait sent nothing.
pub enum TrySend<E, M> {
    /// As many messages as the state allows are on their way; endpoint and message are given back.
    Full(E, M),
    /// The other side is gone.
    Closed(Unsent<M>),
}

impl<E, M> fmt::Debug for TrySend<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(..) => f.write_str("Full"),
            Self::Closed(unsent) => fmt::Debug::fmt(unsent, f),
        }
    }
}

impl<E, M> fmt::Display for TrySend<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(..) => f.write_str("as many messages as may be are on their way"),
            Self::Closed(unsent) => fmt::Display::fmt(unsent, f),
        }
    }
}

impl<E, M> std::error::Error for TrySend<E, M> {}

/// Why a receive that does not wait, or not for ever, brought nothing.
pub enum Unreceived<E> {
    /// Nothing has come yet; the endpoint is given back.
    Pending(E),
    /// The other side is gone.
    Closed(Closed),
}

impl<E> fmt::Debug for Unreceived<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(_) => f.write_str("Pending"),
            Self::Closed(closed) => fmt::Debug::fmt(closed, f),
        }
    }
}

impl<E> fmt::Display for Unreceived<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(_) => f.write_str("nothing has come yet"),
            Self::Closed(closed) => fmt::Display::fmt(closed, f),
        }
    }
}

impl<E> std::error::Error for Unreceived<E> {}

impl<E: crate::Endpoint> From<Unreceived<E>> for Closed {
    /// For `?` in a function that gives up when the time is over: the endpoint is dropped.
    fn from(unreceived: Unreceived<E>) -> Self {
        match unreceived {
            Unreceived::Pending(_) => Self::new(
                const {
                    &At {
                        protocol: E::PROTOCOL,
                        state: E::STATE,
                    }
                },
                Why::TimedOut,
            ),
            Unreceived::Closed(closed) => closed,
        }
    }
}
