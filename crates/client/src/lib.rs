//! An async MQTT client, 5.0 and 3.1.1, and what proves delivery with it.
//!
//! - A [`Client`] publishes ([`Client::publish`] resolves when the broker has acknowledged,
//!   [`Client::try_send`] never waits) and subscribes ([`Subscription::recv`]). It connects again
//!   on its own, subscribes again when the broker has lost the session, and sends again what was
//!   not acknowledged. [`Options`] says how.
//!
//! - [`audit`]: an [`AuditedPublisher`](audit::AuditedPublisher) numbers its messages and remembers
//!   them on disk; an [`AuditedSubscriber`](audit::AuditedSubscriber) names each that was lost,
//!   duplicated, reordered, altered or injected, gets it again, and proves that the list is
//!   complete; a [`Processor`](audit::Processor) between them keeps the proof whole.
//!
//! - [`relay`]: a bad network between clients and a broker, for tests and demonstrations.
//!
//! Invariants: one task owns the connection, and its state is a value without I/O (`engine`); every
//! queue has a limit in [`Limits`]; a message that is not delivered is told to somebody: to its
//! publisher as an error, as an [`Event`], or by coming again.
//!
//! Deliberately absent: enhanced authentication.

#![forbid(unsafe_code)]

mod address;
pub mod audit;
mod client;

mod driver;
mod durations;
mod engine;
mod error;
mod event;
mod inbox;
mod limits;
mod message;
mod observer;
mod options;
pub mod relay;
mod subscription;
mod transport;

pub use unbroken_mqtt_proto::{
    EncodeError, Packet, PacketId, Properties, Property, QoS, ReasonCode, RetainHandling,
    SubscriptionOptions, TopicError, Version,
};

pub use self::{
    address::{AddressError, BindTo, ConnectTo},
    client::{Acknowledged, Answer, Client, Receipt, Receipts},
    durations::{RetryDuration, TotalDuration},
    error::{BrokerFault, ConnectError, PublishError, SubscribeError, TrySendError},
    event::{Event, Events},
    inbox::Acknowledgement,
    limits::Limits,
    message::{Message, Received},
    observer::Direction,
    options::{Options, Retries, Session, TakenOver},
    subscription::{Acknowledging, Filter, Subscription, Unclaimed},
    transport::{Tls, TlsError, TlsOptions, TlsVersion, Transport},
};
