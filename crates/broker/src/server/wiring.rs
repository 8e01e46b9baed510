//! Channels and polls of the shard threads, while they are connected.

use std::io;
use std::sync::Arc;

use mio::Poll;
use unbroken_broker_core::ShardId;

use crate::authenticator::{Authenticator, Verifier, authenticator, verifier_threads};
use crate::bans::Bans;
use crate::bounds::CHANNEL_MESSAGES;
use crate::channel::{
    EventReceiver, EventSender, ShardSender, ThreadWaker, event_channel, shard_channel,
};
use crate::shard_thread::WAKER;

/// The endpoints of all shard threads.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(super) endpoints: Vec<Endpoints>,
}

/// The poll of one shard thread, and its ends of the channels.
#[derive(Debug)]
pub(crate) struct Endpoints {
    pub(crate) id: ShardId,
    pub(crate) poll: Poll,
    pub(crate) thread_waker: Arc<ThreadWaker>,
    /// From each shard in turn, `None` for this one.
    pub(crate) from_shards: Vec<Option<EventReceiver>>,
    /// To each shard in turn, `None` for this one.
    pub(crate) to_shards: Vec<Option<ShardSender>>,
    /// From the authenticator, the disk and the server.
    pub(crate) from_others: Vec<EventReceiver>,
}

impl Wiring {
    /// Connects each shard with every other.
    pub(super) fn new(shards: u8) -> io::Result<Self> {
        let mut endpoints = Vec::with_capacity(usize::from(shards));
        for id in (0..shards).map(ShardId) {
            let poll = Poll::new()?;
            let thread_waker = ThreadWaker::new(poll.registry(), WAKER)?;
            endpoints.push(Endpoints {
                id,
                poll,
                thread_waker,
                from_shards: (0..shards).map(|_| None).collect(),
                to_shards: (0..shards).map(|_| None).collect(),
                from_others: Vec::new(),
            });
        }
        for from in 0..endpoints.len() {
            for to in (0..endpoints.len()).filter(|to| *to != from) {
                let (sender, receiver) = shard_channel(CHANNEL_MESSAGES);
                endpoints[from].to_shards[to] = Some(sender);
                endpoints[to].from_shards[from] = Some(receiver);
            }
        }
        Ok(Self { endpoints })
    }

    /// A channel to each shard from a thread that is not a shard.
    pub(super) fn event_channels(&mut self) -> Vec<EventSender> {
        self.event_channels_with(event_channel)
    }

    /// For each shard, and for each thread that verifies.
    pub(super) fn authenticators(
        &mut self,
        bans: &Arc<Bans>,
    ) -> io::Result<(Vec<Authenticator>, Vec<Verifier>)> {
        let mut boot_key = [0; 32];
        getrandom::fill(&mut boot_key).map_err(io::Error::other)?;
        Ok(authenticator(
            self.event_channels(),
            boot_key,
            verifier_threads(),
            bans,
        ))
    }

    pub(super) fn event_channels_with(
        &mut self,
        channel: impl Fn() -> (EventSender, EventReceiver),
    ) -> Vec<EventSender> {
        let senders = self.endpoints.iter_mut().map(|endpoints| {
            let (sender, receiver) = channel();
            endpoints.from_others.push(receiver);
            sender
        });
        senders.collect()
    }
}
