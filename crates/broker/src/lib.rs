//! The Unbroken MQTT broker as a library: shard threads, sockets, configuration.
//!
//! [`Server`] is a running broker, [`serve()`] is the command, and [`BrokerHandle`] queries and
//! steers a running broker from other threads. Reading order: `server` (the threads),
//! `shard_thread` (the event loop), `sockets`, `channel`, `batching`; then `disk` and `control`.
//!
//! Invariants:
//! - All answers to clients are decided in `unbroken-broker-core`; this crate has bytes, time,
//!   threads and sockets.
//! - Shard threads share nothing but channels; no lock is taken for a message.
//! - Only threads made for it wait for a client, a disk or the reader of the log.

#![forbid(unsafe_code)]

pub mod access;
mod authenticator;
mod bans;
mod batching;
mod bounds;
mod broker_store;
mod channel;
pub mod config;
pub mod control;
mod cpu_time;
mod disk;
mod driver;
pub mod failure;
mod file_watch;
mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod handle;
mod heap;
mod listener;
pub mod local_socket;
mod log;
mod logging;
mod notice;
mod open_files;
pub mod passwords;
mod proxy;
mod rates;
mod read_watermark;
mod request;
pub mod scram;
mod serve;
mod server;
mod shard_thread;
mod signals;
mod sockets;
mod source;
pub mod stored_access;
mod tls;
pub mod trace;
mod transport;
mod tuning;
mod websocket;

pub use authenticator::{
    HookError, HttpClientError, KeyError, TokenError, check_hook, check_tokens,
};
pub use broker_store::BrokerStore;
pub use disk::{ControlError, DiskError};
pub use handle::{BrokerHandle, ReloadError};
pub use listener::OpenListener;
pub use logging::{LogError, LogEvent, RecentLogs, recent_logs};
pub use serve::{ServeError, serve};
pub use server::{Server, ServerError, ServerOptions, StartError};
pub use tls::{
    CertificateInfo, Expiring, Expiry, ServerTls, TlsError, certificates_of, check_certificates,
};
