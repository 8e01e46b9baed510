//! The admin server of a running broker, over HTTP: is it healthy, and what has it counted?
//!
//! ```text
//! Prometheus, a probe ──▶ admin thread (async) ──▶ BrokerHandle ──▶ shard threads
//! ```
//!
//! | path | answers |
//! |---|---|
//! | `/healthz` | 200 while the process serves |
//! | `/readyz` | 200 while the broker answers, 503 with the reason otherwise |
//! | `/metrics` | OpenMetrics text |
//!
//! Invariants:
//! - A shard never waits for this server: it asks through
//!   [`BrokerHandle`](unbroken_broker::BrokerHandle), whose queues are bounded.
//! - Each answer is made of one snapshot of the counters.
//! - Connections, requests and times are bounded (`limits.rs`).
//! - A request that names a host which is not this server's is refused, so that no web page of
//!   another site can read it through a browser (DNS rebinding).

mod api;
mod app;
mod broker;
mod health;
mod hosts;
mod identity;
mod limits;
mod metrics;
mod problem;
mod process;
mod server;
mod traces;

pub use self::server::{Admin, Options, StartError};
