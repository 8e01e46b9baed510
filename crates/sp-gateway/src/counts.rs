//! What a gateway has done with messages: each that came was passed on, waits, or was dropped
//! under a name.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a message was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// To SUB peers, while none was connected.
    NoPeer,
    /// The peer takes its messages too slowly; or messages of QoS 0 came faster than peers took
    /// them.
    SlowPeer,
    /// The connection of its peer ended before the socket took it.
    PeerGone,
    /// Larger than the limit.
    TooLarge,
    /// A body from which no topic can be made.
    BadTopic,
    /// A body without a request id.
    BadRequest,
    /// The broker did not take it.
    Refused,
    /// The connection of its peer, or the gateway, ended before the broker had room for it.
    Unpublished,
    /// A request from MQTT that does not say where the reply should go.
    NoResponseTopic,
    /// A request that no client of the broker receives.
    NoResponder,
    /// A request without a reply in time.
    NoReply,
    /// A reply to no request, or to one that was given up.
    LateReply,
}

impl Drop {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoPeer,
        Self::SlowPeer,
        Self::PeerGone,
        Self::TooLarge,
        Self::BadTopic,
        Self::BadRequest,
        Self::Refused,
        Self::Unpublished,
        Self::NoResponseTopic,
        Self::NoResponder,
        Self::NoReply,
        Self::LateReply,
    ];

    /// The name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPeer => "no-peer",
            Self::SlowPeer => "slow-peer",
            Self::PeerGone => "peer-gone",
            Self::TooLarge => "too-large",
            Self::BadTopic => "bad-topic",
            Self::BadRequest => "bad-request",
            Self::Refused => "refused",
            Self::Unpublished => "unpublished",
            Self::NoResponseTopic => "no-response-topic",
            Self::NoResponder => "no-responder",
            Self::NoReply => "no-reply",
            Self::LateReply => "late-reply",
        }
    }
}

/// Counts since the start of a gateway.
#[derive(Debug, Default)]
pub struct Counts {
    /// Messages that came from SP peers.
    received: AtomicU64,
    /// Of those, and of replies, what the broker has acknowledged.
    published: AtomicU64,
    /// Messages that sockets of SP peers took; one to several SUB peers counts for each.
    sent: AtomicU64,
    /// Connections that were ended because the peer broke the protocol, or took nothing for long.
    faults: AtomicU64,
    /// Connections that were refused because there are too many, of all or of one address.
    turned_away: AtomicU64,
    drops: [AtomicU64; Drop::ALL.len()],
}

impl Counts {
    pub(crate) fn add_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_published(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_drops(&self, why: Drop, count: u64) {
        self.drops[why as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_drop(&self, why: Drop) {
        self.add_drops(why, 1);
    }

    /// Messages from SP peers.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Messages that the broker has acknowledged.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Messages that sockets of SP peers took.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Connections that were ended because the peer broke the protocol, or took nothing for long.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Connections that were refused because there are too many, of all or of one address.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Messages that were dropped for this reason.
    pub fn dropped(&self, why: Drop) -> u64 {
        self.drops[why as usize].load(Ordering::Relaxed)
    }

    /// Everything that should be rare: drops, faults, refused connections.
    pub(crate) fn trouble(&self) -> u64 {
        let drops: u64 = Drop::ALL.iter().map(|why| self.dropped(*why)).sum();
        drops + self.faults() + self.turned_away()
    }
}

/// As `received=2 published=2 sent=0 too-large=1`: counts of drops that are 0 are left out.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (received, published, sent) = (self.received(), self.published(), self.sent());
        write!(f, "received={received} published={published} sent={sent}")?;
        let drops = Drop::ALL.map(|why| (why.name(), self.dropped(why)));
        let others = [
            ("faults", self.faults()),
            ("turned-away", self.turned_away()),
        ];
        for (name, count) in drops.into_iter().chain(others) {
            if count > 0 {
                write!(f, " {name}={count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let counts = Counts::default();
        for (count, why) in (1..).zip(Drop::ALL) {
            counts.add_drops(why, count);
        }
        for (count, why) in (1..).zip(Drop::ALL) {
            assert_eq!(counts.dropped(why), count, "{}", why.name());
        }
        assert_eq!(counts.trouble(), 78);
        let text = counts.to_string();
        assert!(
            text.starts_with("received=0 published=0 sent=0 no-peer=1 slow-peer=2"),
            "{text}"
        );
    }
}
