//! The Unbroken MQTT broker as a library: shard threads, sockets, configuration.
//!
//! [`Server`] is a running broker, [`serve()`] what the command line makes of it, and
//! [`BrokerHandle`] what other threads ask and steer it with. Reading order:
//! `server` (which threads there are), `shard_thread` (the loop everything happens in), `sockets`,
//! `mailbox`, `batching`; then `disk` and `control`, for what is kept.
//!
//! Invariants:
//! - What clients are told is decided in `unbroken-broker-core`; here are bytes, time, threads and
//!   sockets.
//! - Shard threads share nothing but feeds; no lock is taken for a message.
//! - Nothing here waits for a client, a disk or whoever reads the log, but on a thread made for it.

#![forbid(unsafe_code)]

mod authenticator;
mod batching;
mod bounds;
mod broker_store;
pub mod config;
pub mod control;
mod cpu_time;
mod disk;
mod driver;
pub mod failure;
pub mod handle;
mod hearing;
mod listener;
mod log;
mod logging;
mod mailbox;
mod open_files;
pub mod passwords;
mod request;
mod serve;
mod server;
mod shard_thread;
mod signals;
mod sockets;
mod transport;
mod tuning;

pub use broker_store::BrokerStore;
pub use disk::DiskError;
pub use handle::{BrokerHandle, ReloadError};
pub use logging::LogError;
pub use serve::{ServeError, serve};
pub use server::{OpenListener, Server, ServerError, StartError};
