//! Each address's share of the sessions and subscriptions of the broker.
//!
//! A session is in the share of the address that its client connected from last, with all its
//! subscriptions. One that an earlier run has left is in no share until its client comes.

use super::Session;
use crate::filter_size::FilterSize;
use crate::limits::Limits;
use crate::settings::Totals;
use crate::shares::{Full, Network, Shares, Table, Taker};

/// What addresses have of one shard's sessions and subscriptions.
#[derive(Debug)]
pub(crate) struct SessionShares {
    sessions: Shares,
    subscriptions: Shares,
}

impl SessionShares {
    pub(crate) fn new(seed: u64, shards: u8) -> Self {
        Self {
            sessions: Shares::new(seed, shards),
            subscriptions: Shares::new(seed, shards),
        }
    }

    /// Takes the place of a new session, if this address may have one more.
    pub(crate) fn take_session(
        &self,
        address: Option<Network>,
        totals: &Totals,
        limits: &Limits,
    ) -> Result<(), Full> {
        let held = self.sessions.held(Taker::at(address));
        let judge = |table: Table| table.judge(1, held);
        totals.sessions.take(1, limits.sessions_max.into(), judge)
    }

    /// A client has connected from this address, which has its session from now on.
    pub(crate) fn attach(&mut self, session: &mut Session, address: Option<Network>) {
        let subscriptions = session.subscriptions.len() as u64;
        let before = session.set_address(address);
        self.sessions.subtract(Taker::at(before), 1);
        self.sessions.add(Taker::at(address), 1);
        self.subscriptions
            .subtract(Taker::at(before), subscriptions);
        self.subscriptions.add(Taker::at(address), subscriptions);
    }

    /// The session has ended, its subscriptions before it.
    pub(crate) fn end_session(&mut self, session: &Session) {
        let address = Taker::at(session.address());
        self.sessions.subtract(address, 1);
    }

    /// Takes the place of a new subscription with a filter of this size, if its session and that
    /// one's address may have one more.
    pub(crate) fn take_subscription(
        &mut self,
        session: &Session,
        filter: FilterSize,
        totals: &Totals,
        limits: &Limits,
    ) -> Result<(), Full> {
        let address = Taker::at(session.address());
        let mut held = self.subscriptions.held(address);
        held.client = Some(session.subscriptions.len() as u64);
        let judge = |table: Table| table.judge(1, held);
        let max = limits.subscriptions_max.into();
        totals.subscriptions.take(1, max, judge)?;
        if !totals.try_filter(filter, limits) {
            totals.subscriptions.subtract(1);
            return Err(Full::Table);
        }
        self.subscriptions.add(address, 1);
        Ok(())
    }

    /// A subscription of this session has ended.
    pub(crate) fn end_subscription(&mut self, session: &Session) {
        self.subscriptions.subtract(Taker::at(session.address()), 1);
    }
}
