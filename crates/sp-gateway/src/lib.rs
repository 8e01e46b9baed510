//! A gateway between MQTT and the scalability protocols (SP) of nanomsg and nng, over TCP.
//!
//! It has one SP socket of a kind ([`wire::Protocol`]) and stands beside a broker as an ordinary
//! client, so limits, access rules and the audit apply to it as to any other.
//!
//! | socket | its peers | from SP | to SP |
//! |---|---|---|---|
//! | SUB, PULL | PUB, PUSH | each message is published at QoS 1, numbered by a lane | – |
//! | PUSH | PULL | – | each message goes to one peer; acknowledged when its socket has it |
//! | PUB | SUB | – | each message goes to all peers; a slow one misses messages |
//! | REP | REQ | a request is published with a response topic | the response, to its requester |
//! | REQ | REP | the reply goes to the response topic of its request | a request, to one peer |
//!
//! Invariants: a message that is not passed on is counted under a name ([`Drop`]); each queue has a
//! limit in `limits`; while the broker takes no more, SP peers are not read, and while peers take
//! no more, the broker is sent no acknowledgement.
//!
//! Deliberately absent: other transports than TCP, and the protocols BUS, PAIR and SURVEY.

#![forbid(unsafe_code)]

mod connection;
mod counts;
mod endpoint;
mod error;
mod gateway;
mod inbound;
mod ingress;
mod limits;
mod options;
mod outlets;
mod places;
mod publish;
mod push;
mod reply;
mod request;
mod shared;
mod source;
mod topics;
pub mod wire;

pub use unbroken_client::{BindTo, ConnectTo, RetryDuration, TotalDuration};

pub use self::{
    counts::{Counts, Drop},
    error::GatewayError,
    gateway::Gateway,
    options::{Endpoint, Options},
    topics::Separator,
};
