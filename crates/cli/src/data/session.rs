//! Sessions assembled from the values in a store.

use std::collections::BTreeMap;

use unbroken_store::session::{
    Cursor, Head, Inbound, MaybeSent, Outbound, PartView, Subscription, Will, parse_key,
};
use unbroken_store::{LogId, RecordError, Sequence, Space, StoreError, View};

/// What is kept of one.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) head: Head,
    /// Also those that have ended and are needed for what waits.
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) cursors: BTreeMap<LogId, Sequence>,
    /// Messages that the client was given and has not done with.
    pub(crate) outbound: Vec<Outbound>,
    /// Messages of QoS 2 from the client that are not released.
    pub(crate) inbound: usize,
    /// Bytes that these take.
    pub(crate) inbound_bytes: u64,
}

impl Session {
    /// Up to where it is in a log: nothing above is wanted from it yet. None if it wants nothing
    /// of that log.
    pub(crate) fn place(&self, log: LogId) -> Option<Sequence> {
        let subscribed = self.subscriptions.iter().filter(|held| {
            let listed = held.ranges.iter().any(|holding| holding.log == log);
            listed || !held.ended
        });
        // Before it was told how far it is, it is where its first subscription began.
        let begun = subscribed
            .map(|held| {
                let holding = held.ranges.iter().find(|holding| holding.log == log);
                holding.map_or(Sequence::BEFORE_ALL, |holding| {
                    Sequence(holding.from.0.saturating_sub(1))
                })
            })
            .min()?;
        Some(self.cursors.get(&log).copied().unwrap_or(begun))
    }

    /// When it ends, if its client does not come; none while it is connected, or without an end.
    pub(crate) fn ends_ms(&self) -> Option<u64> {
        let seconds = super::record::expiry_s(&self.head)?;
        let since = self.head.offline_since_ms?;
        Some(since.saturating_add(u64::from(seconds) * 1_000))
    }
}

/// Calls `take` with every session, in the order of their keys, and with what is wrong with a value
/// that does not read.
pub(crate) fn each<E: From<StoreError>>(
    view: &dyn View,
    mut take: impl FnMut(Result<Session, String>) -> Result<(), E>,
) -> Result<(), E> {
    let mut parts = Parts::default();
    super::each(view, Space::Sessions, |pair| {
        let told = |error: RecordError| {
            let key = pair.key.escape_ascii();
            Err(format!(
                "the value at {key} of sessions cannot be read: {error}"
            ))
        };
        let key = match parse_key(&pair.key) {
            Ok(key) => key,
            Err(error) => return take(told(error)),
        };
        if *parts.client != *key.client {
            let before = std::mem::take(&mut parts);
            parts.client = key.client.to_vec();
            before.finish(&mut take)?;
        }
        match parts.take(key.part, &pair.value.bytes) {
            Ok(()) => Ok(()),
            Err(error) => take(told(error)),
        }
    })?;
    parts.finish(&mut take)
}

#[derive(Default)]
struct Parts {
    client: Vec<u8>,
    head: Option<Head>,
    subscriptions: Vec<Subscription>,
    cursors: BTreeMap<LogId, Sequence>,
    outbound: Vec<Outbound>,
    inbound: usize,
    inbound_bytes: u64,
}

impl Parts {
    fn take(&mut self, part: PartView, value: &[u8]) -> Result<(), RecordError> {
        match part {
            PartView::Head => self.head = Some(Head::decode(value)?),
            PartView::Subscription { .. } => {
                self.subscriptions.push(Subscription::decode(value)?);
            }
            PartView::Cursor(log) => {
                self.cursors.insert(log, Cursor::decode(value)?.through);
            }
            PartView::Outbound(_) => self.outbound.push(Outbound::decode(value)?),
            PartView::Inbound(_) => {
                Inbound::decode(value)?;
                self.inbound += 1;
                self.inbound_bytes += value.len() as u64;
            }
            PartView::Will => {
                Will::decode(value)?;
            }
            PartView::MaybeSent => {
                MaybeSent::decode(value)?;
            }
        }
        Ok(())
    }

    /// One without a head is what is left of a session that ended.
    fn finish<E>(
        self,
        take: &mut impl FnMut(Result<Session, String>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(head) = self.head else { return Ok(()) };
        take(Ok(Session {
            head,
            subscriptions: self.subscriptions,
            cursors: self.cursors,
            outbound: self.outbound,
            inbound: self.inbound,
            inbound_bytes: self.inbound_bytes,
        }))
    }
}
