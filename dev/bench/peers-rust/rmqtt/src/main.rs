//! Serves MQTT with the library rmqtt on a port of the loopback, for `cargo xtask bench brokers`.

use std::{env, error::Error, net::Ipv4Addr, num::NonZeroU16};

use rmqtt::{context::ServerContext, net::Builder, server::MqttServer};

/// As pinned in `Cargo.toml`.
const VERSION: &str = "rmqtt 0.24.0";
/// A limit that nothing here reaches.
const OPEN: usize = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args()
        .nth(1)
        .ok_or("usage: peer-rmqtt PORT | --version")?;
    if argument == "--version" {
        println!("{VERSION}");
        return Ok(());
    }
    let listener = Builder::new()
        .name("tcp")
        .laddr((Ipv4Addr::LOCALHOST, argument.parse()?).into())
        .nodelay(true)
        .max_connections(OPEN)
        .max_handshaking_limit(OPEN)
        .max_inflight(NonZeroU16::MAX)
        .max_mqueue_len(OPEN);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            // On a loaded machine it would let nobody in.
            let context = ServerContext::new().busy_check_enable(false).build().await;
            let listener = listener.bind()?.tcp()?;
            MqttServer::new(context)
                .listener(listener)
                .build()
                .run()
                .await?;
            Ok(())
        })
}
