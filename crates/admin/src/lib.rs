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
//! | `/` | the page for people, in a browser |
//! | `/api/v1/…` | JSON, for callers with an account or a token; `openapi.json` describes it |
//!
//! Invariants:
//! - A shard never waits for this server: it asks through
//!   [`BrokerHandle`](unbroken_broker::BrokerHandle), whose queues are bounded.
//! - Each answer is made of one snapshot of the counters.
//! - One task reads counters and events once a second; what it keeps has a fixed size
//!   (`recorder/`, `delivery/`).
//! - Connections, requests and times are bounded (`limits.rs`).
//! - What is below `/api` is open to callers with credentials only (`identity`); at the unix
//!   socket, its permission is one.
//! - A request that names a host which is not this server's is refused, so that no web page of
//!   another site can read it through a browser (DNS rebinding).

mod api;
mod app;
mod broker;
mod connection;
mod delivery;
mod demonstration;
mod denials;
mod headers;
mod health;
mod hosts;
mod identity;
mod limits;
mod metrics;
mod page;
mod peer;
mod problem;
mod process;
mod recorder;
mod server;
mod time;
mod traces;

pub use self::server::{Admin, Options, SOCKET, StartError};
