//! A relay between MQTT peers that injects faults into messages on one of its two ways, and reports
//! exactly which.
//!
//! It keeps the sessions on both sides alive: whatever an injected fault takes away or adds,
//! acknowledgements still add up for both peers. All that is not injected passes byte for byte,
//! whole packets at a time. It can also cut the network: every connection breaks and none comes
//! about until it is mended.
//!
//! Faults are injected on order ([`Relay::inject`]: into the next message that can have it) or by a
//! script ([`Relay::script`]: the n-th one), and written down as they are given.
//!
//! **Deliberately absent:** TLS on the side of the clients, and faults of messages without an audit
//! property, since no check could name them.

mod injector;
mod orders;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use unbroken_client::Options;
use unbroken_client::relay::{self, Outputs, Passage};
use unbroken_mqtt_proto::{Connect, Frame, Version};

use self::injector::Injector;
use self::orders::Orders;
use crate::injection::{Injected, Injection};

pub use self::orders::TooManyOrders;
pub use unbroken_client::relay::Towards;

/// A relay on a loopback port of its own; it ends when this is dropped.
#[derive(Debug)]
pub struct Relay {
    relay: relay::Relay,
    orders: Arc<Mutex<Orders>>,
}

impl Relay {
    /// Listens, and connects to `broker` for every client; faults are injected into what
    /// goes `towards` one side. Must be called within a runtime.
    pub async fn start(broker: impl Into<Options>, towards: Towards) -> io::Result<Self> {
        let orders: Arc<Mutex<Orders>> = Arc::default();
        let shared = Arc::clone(&orders);
        let faults = move || Faults {
            towards,
            version: None,
            injector: Some(Injector::new()),
            orders: Arc::clone(&shared),
        };
        let relay = relay::Relay::start(broker, faults).await?;
        Ok(Self { relay, orders })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.relay.address()
    }

    /// Injects this fault into the next message that can have it.
    pub fn inject(&self, injection: Injection) -> Result<(), TooManyOrders> {
        held(&self.orders).give(injection)
    }

    /// Injects this fault into the `at`-th audited message (from 0, first copies only), or the
    /// first one behind it that can have it.
    pub fn script(&self, at: u64, injection: Injection) -> Result<(), TooManyOrders> {
        held(&self.orders).schedule(at, injection)
    }

    /// From now on one checkpoint in so many is lost on topics that begin with `prefix`; `None`
    /// stops it.
    pub fn lose_checkpoints(&self, prefix: &str, one_in: Option<NonZeroU32>) {
        held(&self.orders).lose_checkpoints(prefix, one_in);
    }

    /// The faults injected since the last call, in order.
    pub fn take_injected(&self) -> Vec<Injected> {
        held(&self.orders).take_done()
    }

    /// Those of them that nobody saw, since the last call: the connection ended before the receiver
    /// had acknowledged the message, so its sender sends it again. Each is ordered anew.
    pub fn take_undone(&self) -> Vec<Injected> {
        held(&self.orders).take_undone()
    }

    /// Injections ordered and not given yet.
    pub fn pending(&self) -> usize {
        held(&self.orders).pending()
    }

    /// Breaks every connection; none comes about until [`Relay::mend`].
    pub fn cut(&self) {
        self.relay.close();
    }

    /// Lets connections come about again.
    pub fn mend(&self) {
        self.relay.open();
    }
}

/// The faults of one connection.
struct Faults {
    towards: Towards,
    /// As its CONNECT has it.
    version: Option<Version>,
    /// Until the connection ends.
    injector: Option<Injector>,
    orders: Arc<Mutex<Orders>>,
}

impl Passage for Faults {
    fn handle(&mut self, towards: Towards, packet: Frame<'_>, out: &mut Outputs) {
        // Only the way to the broker has a CONNECT.
        self.version = self.version.or_else(|| Connect::claimed_version(packet));
        let Some(injector) = &mut self.injector else {
            return;
        };
        let (mut orders, now) = (held(&self.orders), Instant::now());
        if towards == self.towards {
            let (mut onward, mut back) = (Vec::new(), Vec::new());
            injector.handle(
                packet,
                self.version,
                &mut orders,
                now,
                &mut onward,
                &mut back,
            );
            out.send(towards, &onward);
            out.send(towards.back(), &back);
        } else {
            match injector.acknowledged(packet, self.version, &mut orders, now) {
                Some(second) => out.send(self.towards, &second),
                None => out.send(towards, packet.bytes),
            }
        }
    }

    fn release_at(&self) -> Option<Instant> {
        self.injector.as_ref()?.release_at()
    }

    fn release(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(injector) = &mut self.injector {
            injector.release(&mut held(&self.orders), now, out.to(self.towards));
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        if let Some(injector) = self.injector.take() {
            injector.abandon(&mut held(&self.orders));
        }
    }
}

/// What is locked here is whole after every statement, so a panic elsewhere harms nothing.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
