//! A relay between a client and its broker that knows where packets begin: the test may cut it,
//! and may lose, repeat, swap, change or add packets on their way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use unbroken_client::BindTo;
use unbroken_mqtt_proto::next_frame;

/// What becomes of one packet: the packets that pass in its place, and answers to its sender.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    pub(crate) pass: Vec<Vec<u8>>,
    pub(crate) answer: Vec<Vec<u8>>,
}

impl Fate {
    /// It passes as it is.
    pub(crate) fn pass(packet: &[u8]) -> Self {
        Self {
            pass: vec![packet.to_vec()],
            answer: Vec::new(),
        }
    }
}

/// Decides what becomes of a packet.
pub(crate) type Fault = Box<dyn FnMut(&[u8]) -> Fate + Send>;

/// A relay. Dropping it cuts all connections.
pub(crate) struct Relay {
    address: SocketAddr,
    to_broker: Arc<Mutex<Fault>>,
    to_client: Arc<Mutex<Fault>>,
    /// The number of cuts; connections made before the last one end.
    cuts: watch::Sender<u64>,
    /// Packets in both directions and nothing lost, or no way at all.
    open: watch::Sender<bool>,
}

impl Relay {
    /// Passes everything, to begin with.
    pub(crate) async fn to(broker: SocketAddr) -> Self {
        let listener = TcpListener::bind(BindTo::any_loopback_port().socket_address())
            .await
            .expect("a loopback port is free");
        let address = listener.local_addr().expect("it is bound");
        let all = || -> Arc<Mutex<Fault>> { Arc::new(Mutex::new(Box::new(Fate::pass))) };
        let relay = Self {
            address,
            to_broker: all(),
            to_client: all(),
            cuts: watch::channel(0).0,
            open: watch::channel(true).0,
        };
        let to_broker = Arc::clone(&relay.to_broker);
        let to_client = Arc::clone(&relay.to_client);
        let (cuts, mut open) = (relay.cuts.subscribe(), relay.open.subscribe());
        tokio::spawn(async move {
            loop {
                if open.wait_for(|open| *open).await.is_err() {
                    return;
                }
                let client = tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((client, _)) => client,
                        Err(_) => continue,
                    },
                    changed = open.changed() => if changed.is_err() { return } else { continue },
                };
                let Ok(server) = TcpStream::connect(broker).await else {
                    continue;
                };
                let (from_client, back) = client.into_split();
                let (from_server, forth) = server.into_split();
                let back = Arc::new(tokio::sync::Mutex::new(back));
                let forth = Arc::new(tokio::sync::Mutex::new(forth));
                let pumps = [
                    (
                        from_client,
                        Arc::clone(&forth),
                        Arc::clone(&back),
                        Arc::clone(&to_broker),
                    ),
                    (from_server, back, forth, Arc::clone(&to_client)),
                ];
                for (from, to, answers, injection) in pumps {
                    let mut cuts = cuts.clone();
                    cuts.mark_unchanged();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = pump(from, &to, &answers, &injection) => {}
                            _ = cuts.changed() => {}
                        }
                        // The other side learns it; it may know already.
                        let _ = to.lock().await.shutdown().await;
                        let _ = answers.lock().await.shutdown().await;
                    });
                }
            }
        });
        relay
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What becomes of packets to the broker from now on.
    pub(crate) fn inject_to_broker(&self, injection: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.to_broker.lock().unwrap() = Box::new(injection);
    }

    /// What becomes of packets to the client from now on.
    pub(crate) fn inject_to_client(&self, injection: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.to_client.lock().unwrap() = Box::new(injection);
    }

    /// Ends the connections there are.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends the connections there are and takes no new ones until it is opened.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
        self.cut();
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    to: &tokio::sync::Mutex<OwnedWriteHalf>,
    answers: &tokio::sync::Mutex<OwnedWriteHalf>,
    injection: &Mutex<Fault>,
) {
    let mut input = Vec::new();
    loop {
        let mut fates = VecDeque::new();
        let mut used = 0;
        while let Ok(Some(frame)) = next_frame(&input[used..], u32::MAX) {
            used += frame.bytes.len();
            fates.push_back((injection.lock().unwrap())(frame.bytes));
        }
        input.drain(..used);
        let (mut pass, mut answer) = (Vec::new(), Vec::new());
        for fate in fates {
            pass.extend(fate.pass.concat());
            answer.extend(fate.answer.concat());
        }
        if !answer.is_empty() && answers.lock().await.write_all(&answer).await.is_err() {
            return;
        }
        if !pass.is_empty() && to.lock().await.write_all(&pass).await.is_err() {
            return;
        }
        match from.read_buf(&mut input).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
