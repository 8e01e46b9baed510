//! REQ: requests of MQTT clients go to one peer each; its reply is published to their response
//! topic.
//!
//! A request is acknowledged once its reply is published, so as many are under way as the broker
//! may send unacknowledged. Those of a peer that is gone go to the next one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::{Instant, interval};
use unbroken_client::{Message, Received, TotalDuration};

use crate::connection::{Connection, PeerError, Reader, Writer};
use crate::counts::Drop;
use crate::endpoint::Role;
use crate::error::GatewayError;
use crate::ingress::Ingress;
use crate::shared::Shared;
use crate::source::Source;
use crate::wire::{self, ID_BYTES};

pub(crate) struct Requests {
    shared: Arc<Shared>,
    source: Source,
    ingress: Arc<Ingress>,
    next: AtomicU32,
    pending: Mutex<HashMap<[u8; ID_BYTES], Pending>>,
}

struct Pending {
    /// The number of the connection that it was sent on, which alone may answer it.
    peer: u64,
    deadline: Instant,
    request: Received,
}

/// Gives back what a peer that is gone has not answered.
struct Asked<'a> {
    requests: &'a Requests,
    peer: u64,
}

impl Requests {
    /// Ids begin at random, so one of an earlier run or of another gateway fits no request here.
    pub(crate) fn new(
        shared: Arc<Shared>,
        source: Source,
        ingress: Arc<Ingress>,
    ) -> Result<Self, GatewayError> {
        let first = getrandom::u32().map_err(|why| GatewayError::Random(why.to_string()))?;
        Ok(Self {
            shared,
            source,
            ingress,
            next: AtomicU32::new(first),
            pending: Mutex::default(),
        })
    }

    /// Gives up requests without a reply in time.
    fn expire(&self, now: Instant) {
        let mut pending = self.lock();
        let late = pending.extract_if(|_, pending| pending.deadline <= now);
        for (_, Pending { request, .. }) in late {
            let topic = request.topic();
            let detail = format_args!("a request on {topic:?} has waited too long for a reply");
            self.shared.drop_message(Drop::NoReply, &detail);
            request.acknowledge();
        }
    }

    async fn ask(&self, peer: u64, reply: TotalDuration, writer: &mut Writer) -> PeerError {
        loop {
            let held = match self.source.take().await {
                Ok(held) => held,
                Err(error) => return error.into(),
            };
            if held.message().properties().response_topic().is_none() {
                let topic = held.message().topic();
                let detail = format_args!("a request on {topic:?}");
                self.shared.drop_message(Drop::NoResponseTopic, &detail);
                held.into_message().acknowledge();
                continue;
            }
            let id = wire::request_id(self.next.fetch_add(1, Ordering::Relaxed));
            let frame = self.source.frame(&id, held.message());
            let pending = Pending {
                peer,
                deadline: Instant::now() + reply.0,
                request: held.into_message(),
            };
            self.lock().insert(id, pending);
            if let Err(error) = writer.write(&frame).await {
                return error;
            }
            self.shared.counts.add_sent();
        }
    }

    /// The request of this id, if it was sent to this peer.
    fn asked(&self, peer: u64, id: [u8; ID_BYTES]) -> Option<Received> {
        match self.lock().entry(id) {
            Entry::Occupied(found) if found.get().peer == peer => Some(found.remove().request),
            _ => None,
        }
    }

    async fn answer(&self, peer: u64, reader: &mut Reader) -> PeerError {
        loop {
            let body = match reader.next().await {
                Ok(body) => body,
                Err(error) => return error,
            };
            self.shared.counts.add_received();
            let Some((id, content)) = body.split_first_chunk::<ID_BYTES>() else {
                return wire::WireError::NoRequestId.into();
            };
            let Some(request) = self.asked(peer, *id) else {
                let detail = "a reply to no request of its peer, or to one that was given up";
                self.shared.drop_message(Drop::LateReply, &detail);
                continue;
            };
            let Some(message) = response(&request, content) else {
                let detail = "its response topic is not a topic";
                self.shared.drop_message(Drop::NoResponseTopic, &detail);
                request.acknowledge();
                continue;
            };
            let request = self.source.hold(request);
            if let Err(error) = self.ingress.publish(message, Some(request)).await {
                return error.into();
            }
        }
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; ID_BYTES], Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives up requests without a reply in time, until no peer asks any more.
pub(crate) async fn expire(requests: Weak<Requests>, reply: TotalDuration) {
    let mut ticks = interval((reply.0 / 8).clamp(TICK_MIN, TICK_MAX));
    loop {
        let now = ticks.tick().await;
        let Some(requests) = requests.upgrade() else {
            return;
        };
        requests.expire(now);
    }
}

/// What answers a request.
fn response(request: &Received, content: &[u8]) -> Option<Message> {
    let properties = request.properties();
    let message = Message::new(properties.response_topic()?, content).ok()?;
    match properties.correlation_data() {
        Some(data) => message.correlation_data(data).ok(),
        None => Some(message),
    }
}

/// How often late requests are looked for: an eighth of the time that they have, within these.
const TICK_MIN: std::time::Duration = std::time::Duration::from_millis(10);
const TICK_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Asks peers, with a time for each reply.
pub(crate) struct Request {
    pub(crate) requests: Arc<Requests>,
    pub(crate) reply: TotalDuration,
    pub(crate) next_peer: std::sync::atomic::AtomicU64,
}

impl Role for Request {
    async fn serve(&self, mut connection: Connection) -> PeerError {
        let requests = &*self.requests;
        let peer = self.next_peer.fetch_add(1, Ordering::Relaxed);
        let _asked = Asked { requests, peer };
        let Connection { reader, writer, .. } = &mut connection;
        tokio::select! {
            error = requests.ask(peer, self.reply, writer) => error,
            error = requests.answer(peer, reader) => error,
        }
    }
}

impl std::ops::Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut pending = self.requests.lock();
        let unanswered = pending.extract_if(|_, pending| pending.peer == self.peer);
        for (_, Pending { request, .. }) in unanswered {
            self.requests.source.give_back(request);
        }
    }
}
