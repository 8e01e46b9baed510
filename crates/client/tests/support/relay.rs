//! A relay between a client and its broker: the test may cut it, and may lose, repeat, swap, change
//! or add packets on their way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use unbroken_client::relay::{self, Outputs, Passage, Towards};
use unbroken_mqtt_proto::Frame;

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
    relay: relay::Relay,
    injections: Injections,
}

/// Those of each way, for all connections.
#[derive(Clone)]
struct Injections {
    to_broker: Arc<Mutex<Fault>>,
    to_client: Arc<Mutex<Fault>>,
}

impl Passage for Injections {
    fn handle(&mut self, towards: Towards, packet: Frame<'_>, out: &mut Outputs) {
        let inject = match towards {
            Towards::Broker => &self.to_broker,
            Towards::Clients => &self.to_client,
        };
        let fate = (inject.lock().unwrap())(packet.bytes);
        out.send(towards, &fate.pass.concat());
        out.send(towards.back(), &fate.answer.concat());
    }
}

impl Relay {
    /// Passes everything, to begin with.
    pub(crate) async fn to(broker: SocketAddr) -> Self {
        let all = || -> Arc<Mutex<Fault>> { Arc::new(Mutex::new(Box::new(Fate::pass))) };
        let injections = Injections {
            to_broker: all(),
            to_client: all(),
        };
        let of_each = injections.clone();
        let relay = relay::Relay::start(broker, move || of_each.clone()).await;
        Self {
            relay: relay.expect("a loopback port is free"),
            injections,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.relay.address()
    }

    /// What becomes of packets to the broker from now on.
    pub(crate) fn inject_to_broker(&self, inject: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.injections.to_broker.lock().unwrap() = Box::new(inject);
    }

    /// What becomes of packets to the client from now on.
    pub(crate) fn inject_to_client(&self, inject: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.injections.to_client.lock().unwrap() = Box::new(inject);
    }

    /// Ends the connections there are.
    pub(crate) fn cut(&self) {
        self.relay.cut();
    }

    /// Ends the connections there are, and every new one until it is opened.
    pub(crate) fn close(&self) {
        self.relay.close();
    }

    pub(crate) fn open(&self) {
        self.relay.open();
    }
}
