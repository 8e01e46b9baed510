//! Serves MQTT 3.1.1 with the library rumqttd on a port of the loopback, for
//! `cargo xtask bench brokers`.

use std::{collections::HashMap, env, error::Error, net::Ipv4Addr};

use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};

/// As pinned in `Cargo.toml`: the library does not say.
const VERSION: &str = "rumqttd 0.20.0";

fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args()
        .nth(1)
        .ok_or("usage: peer-rumqttd PORT | --version")?;
    if argument == "--version" {
        println!("{VERSION}");
        return Ok(());
    }
    let server = ServerSettings {
        name: "v4".to_owned(),
        listen: (Ipv4Addr::LOCALHOST, argument.parse()?).into(),
        tls: None,
        next_connection_delay_ms: 0,
        connections: ConnectionSettings {
            connection_timeout_ms: 60_000,
            max_payload_size: 1 << 20,
            max_inflight_count: usize::from(u16::MAX),
            auth: None,
            external_auth: None,
            dynamic_filters: true,
        },
    };
    let mut broker = Broker::new(Config {
        // What a subscriber has not had yet is read from here, and lost when it is overwritten.
        router: RouterConfig {
            max_connections: 100_000,
            max_outgoing_packet_count: 200,
            max_segment_size: 100 << 20,
            max_segment_count: 10,
            ..RouterConfig::default()
        },
        v4: Some(HashMap::from([("1".to_owned(), server)])),
        ..Config::default()
    });
    Ok(broker.start()?)
}
