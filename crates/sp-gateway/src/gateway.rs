//! One gateway from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use unbroken_client::{Client, ConnectTo, Event, Events, Limits, Session};

use crate::counts::{Counts, Drop};
use crate::endpoint::{self, Role};
use crate::error::GatewayError;
use crate::inbound::Inbound;
use crate::ingress::Ingress;
use crate::limits::{
    PACKET_BYTES_BESIDE, QOS0_WAITING_MAX, REPORT_INTERVAL, SESSION_EXPIRY_S, STOP_TIMEOUT,
    UNACKNOWLEDGED_MAX,
};
use crate::options::{Endpoint, Options};
use crate::outlets::Outlets;
use crate::publish::{self, Publish};
use crate::push::Push;
use crate::reply::{self, Reply};
use crate::request::{self, Request, Requests};
use crate::shared::Shared;
use crate::source::{Source, subscribe};
use crate::wire::Protocol;

/// A running gateway. Dropping it ends it; [`stop`](Self::stop) lets the broker acknowledge first.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use unbroken_sp_gateway::wire::Protocol;
/// use unbroken_sp_gateway::{ConnectTo, Endpoint, Gateway, Options, RetryDuration, TotalDuration};
///
/// let peer: ConnectTo = "worker:5555".parse()?;
/// let mqtt = unbroken_client::Options::new("localhost:1883".parse()?);
/// let options = Options::new("jobs", Protocol::Push, Endpoint::Connect(peer), mqtt)
///     .filter("plant/jobs")
///     .retry(RetryDuration(Duration::from_secs(5)))
///     .total(TotalDuration(Duration::from_hours(1)));
/// let gateway = Gateway::start(options).await?;
/// println!("{}", gateway.counts());
/// gateway.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gateway {
    address: Option<SocketAddr>,
    counts: Arc<Counts>,
    stop: watch::Sender<bool>,
    running: JoinHandle<Result<(), GatewayError>>,
}

impl Gateway {
    /// Opens the listener, if there is one, and starts the rest. Must be called within a tokio
    /// runtime with timers and sockets.
    pub async fn start(options: Options) -> Result<Self, GatewayError> {
        let (peers, address) = match &options.endpoint {
            Endpoint::Connect(to) => (Peers::Connect(to.clone()), None),
            Endpoint::Listen(to) => {
                let address = to.socket_address();
                let bound = TcpListener::bind(address).await;
                let listener = bound.map_err(|source| GatewayError::Bind {
                    address,
                    source: Arc::new(source),
                })?;
                let address = listener.local_addr().ok();
                (Peers::Accept(listener), address)
            }
        };
        let (name, bytes_max) = (Arc::clone(&options.name), options.message_bytes_max);
        let shared = Arc::new(Shared::new(name, options.protocol, bytes_max));
        let counts = Arc::clone(&shared.counts);
        let (stop, stopping) = watch::channel(false);
        let running = tokio::spawn(run(options, peers, shared, stopping));
        Ok(Self {
            address,
            counts,
            stop,
            running,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> Result<(), GatewayError> {
        let ended = (&mut self.running).await;
        ended.unwrap_or_else(|error| Err(GatewayError::Panicked(error.to_string())))
    }

    /// Takes nothing more from SP peers, waits up to 2 s for the broker's acknowledgements and as
    /// long until it has taken DISCONNECT, and ends.
    pub async fn stop(mut self) -> Result<(), GatewayError> {
        // It may have ended by itself.
        let _ = self.stop.send(true);
        self.ended().await
    }
}

/// Where connections come from.
enum Peers {
    Connect(ConnectTo),
    Accept(TcpListener),
}

struct Parts {
    shared: Arc<Shared>,
    peers: Peers,
    options: Options,
}

async fn run(
    options: Options,
    peers: Peers,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), GatewayError> {
    let client = client(&options);
    let parts = Parts {
        shared: Arc::clone(&shared),
        peers,
        options,
    };
    let ended = tokio::select! {
        ended = serve(parts, &client, &mut stopping) => ended,
        why = watch_client(client.events(), &shared) => Err(why),
        () = report(&shared) => Ok(()),
    };
    let counts = &shared.counts;
    match &ended {
        Ok(()) => tracing::info!(gateway = %shared.name, %counts, "sp gateway stopped"),
        Err(error) => {
            tracing::error!(gateway = %shared.name, %error, %counts, "sp gateway ended");
        }
    }
    // A broker that stands still takes no farewell.
    if timeout(STOP_TIMEOUT, client.disconnect()).await.is_err() {
        tracing::warn!(gateway = %shared.name, "sp gateway: the broker takes no DISCONNECT; left without");
    }
    ended
}

fn client(options: &Options) -> Client {
    let mut limits = Limits::default();
    limits.receive_maximum = UNACKNOWLEDGED_MAX;
    limits.qos0_waiting_max = QOS0_WAITING_MAX;
    let packet = options
        .message_bytes_max
        .saturating_add(PACKET_BYTES_BESIDE);
    limits.packet_bytes_max = u32::try_from(packet).unwrap_or(u32::MAX);
    let session = if options.is_session_kept() {
        let expiry_s = SESSION_EXPIRY_S;
        Session::Kept { expiry_s }
    } else {
        Session::WhileRunning { expiry_s: 300 }
    };
    let mqtt = options.mqtt.clone().limits(limits).session(session);
    mqtt.client_id(options.client_id()).start()
}

/// Until it is asked to stop, or cannot go on.
async fn serve(
    parts: Parts,
    client: &Client,
    stopping: &mut watch::Receiver<bool>,
) -> Result<(), GatewayError> {
    let (shared, options) = (&Arc::clone(&parts.shared), &parts.options.clone());
    let mapping = options.mapping.clone();
    match options.protocol {
        Protocol::Push => {
            let source = Source::open(client, &options.filter, mapping, shared).await?;
            let role = Push {
                shared: Arc::clone(shared),
                source,
            };
            parts.peers(role, None, stopping).await
        }
        Protocol::Pub => {
            let subscription = subscribe(client, &options.filter).await?;
            let peers = Arc::new(Outlets::new(Arc::clone(shared)));
            let role = Publish {
                peers: Arc::clone(&peers),
            };
            let feed = publish::distribute(subscription, mapping, peers, Arc::clone(shared));
            tokio::select! {
                ended = parts.peers(role, None, stopping) => ended,
                error = feed => Err(error),
            }
        }
        Protocol::Sub | Protocol::Pull => {
            let (ingress, answers) = Ingress::open(options, client, shared).await?;
            let ingress = Arc::new(ingress);
            let role = Inbound {
                shared: Arc::clone(shared),
                mapping,
                ingress: Arc::clone(&ingress),
            };
            let answers = tokio::spawn(answers);
            parts.peers(role, Some((ingress, answers)), stopping).await
        }
        Protocol::Rep => {
            let topic = options.reply_topic();
            let responses = subscribe(client, &topic).await?;
            let (ingress, answers) = Ingress::open(options, client, shared).await?;
            let ingress = Arc::new(ingress);
            let peers = Arc::new(Outlets::new(Arc::clone(shared)));
            let role = Reply {
                shared: Arc::clone(shared),
                mapping,
                ingress: Arc::clone(&ingress),
                topic,
                peers: Arc::clone(&peers),
            };
            let feed = reply::distribute(responses, peers, Arc::clone(shared));
            let answers = tokio::spawn(answers);
            tokio::select! {
                ended = parts.peers(role, Some((ingress, answers)), stopping) => ended,
                error = feed => Err(error),
            }
        }
        Protocol::Req => {
            let source = Source::open(client, &options.filter, mapping, shared).await?;
            let (ingress, answers) = Ingress::open(options, client, shared).await?;
            let ingress = Arc::new(ingress);
            let requests = Requests::new(Arc::clone(shared), source, Arc::clone(&ingress))?;
            let requests = Arc::new(requests);
            tokio::spawn(request::expire(Arc::downgrade(&requests), options.reply));
            let role = Request {
                requests,
                reply: options.reply,
                next_peer: AtomicU64::new(0),
            };
            let answers = tokio::spawn(answers);
            parts.peers(role, Some((ingress, answers)), stopping).await
        }
    }
}

impl Parts {
    /// Serves peers until it is asked to stop, then lets the broker acknowledge.
    async fn peers<R: Role>(
        self,
        role: R,
        ingress: Option<(Arc<Ingress>, JoinHandle<()>)>,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), GatewayError> {
        let Self {
            shared,
            peers,
            options,
        } = self;
        tracing::info!(gateway = %shared.name, "sp gateway ready");
        let role = Arc::new(role);
        let stop = async {
            // It also ends when the handle is dropped.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let ended = match peers {
            Peers::Accept(listener) => endpoint::listen(listener, role, shared, stop).await,
            Peers::Connect(to) => tokio::select! {
                error = endpoint::connect(to, options.retry, options.total, role, shared) => {
                    Err(error)
                }
                () = stop => Ok(()),
            },
        };
        if let Some((ingress, answers)) = ingress {
            let closing = async {
                let closed = ingress.close().await;
                drop(ingress);
                // A panic in it ends nothing that is not over.
                let _ = answers.await;
                closed
            };
            if let Ok(Err(why)) = timeout(STOP_TIMEOUT, closing).await {
                tracing::warn!(gateway = %options.name, %why, "sp gateway: the lane did not end in order");
            }
        }
        ended
    }
}

/// Until the client ends, or has lost its subscription.
async fn watch_client(mut events: Events, shared: &Shared) -> GatewayError {
    loop {
        match events.next().await {
            Some(Event::Dropped { .. }) => shared.counts.add_drop(Drop::SlowPeer),
            Some(Event::SubscriptionLost { filter, reason }) => {
                return GatewayError::Subscription(format!("{filter:?} again: {reason}"));
            }
            Some(Event::Disconnected { why }) => {
                tracing::warn!(gateway = %shared.name, %why, "sp gateway: the broker is not connected");
            }
            Some(Event::Missed(count)) => {
                tracing::warn!(gateway = %shared.name, count, "sp gateway: events missed");
            }
            Some(Event::Ended { why }) => return GatewayError::Broker(why.to_string()),
            Some(_) => {}
            None => return GatewayError::Broker("it was ended".to_owned()),
        }
    }
}

/// Logs the counts while something goes wrong.
async fn report(shared: &Shared) {
    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = 0;
    loop {
        ticks.tick().await;
        let counts = &shared.counts;
        let trouble = counts.trouble();
        if trouble != reported {
            reported = trouble;
            tracing::warn!(gateway = %shared.name, %counts, "sp gateway");
        }
    }
}
