//! The Unbroken MQTT broker as a library: shard threads, sockets, configuration.

pub mod config;
pub mod passwords;
