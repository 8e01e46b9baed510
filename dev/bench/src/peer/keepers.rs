//! Who takes part in `unbroken-bench durability`: brokers that keep messages on disk, and ours in
//! memory beside them.

use std::{fs, io, path::Path, process::Command};

use super::{
    Peer,
    brokers::{OURS, YARDSTICK, choose_one, peers, serve_mosquitto, serve_unbroken},
};
use crate::error::BenchError;

/// Names of [`keepers`].
pub(crate) const STRICT: &str = "strict";
pub(crate) const RELAXED: &str = "relaxed";
pub(crate) const MEMORY: &str = "in-memory";
pub(crate) const EACH_CHANGE: &str = "mosquitto-1";
pub(crate) const HALF_HOUR: &str = "mosquitto-1800";
pub(crate) const NATS: &str = "nats";

/// As `cargo xtask bench` installs it.
pub(super) const NATS_VERSION: &str = "2.15.2";

/// Who is compared when messages are to be kept: we in three ways, Mosquitto in two, and NATS.
pub(crate) fn keepers(unbroken: &Path) -> Result<Vec<Peer>, BenchError> {
    let all = peers(unbroken, None)?;
    let named = |name| choose_one(&all, name);
    let (ours, mosquitto) = (named(OURS)?, named(YARDSTICK)?);
    Ok(vec![
        Peer {
            name: STRICT,
            setup: "`unbroken serve -p PORT --data DIR`: nothing is acknowledged before it is synced",
            ..ours.clone()
        },
        Peer {
            name: RELAXED,
            setup: "the same with `durability = \"relaxed\"`: synced every second",
            serve: |command, port, dir| {
                command.env("UNBROKEN__STORAGE__DURABILITY", "relaxed");
                serve_unbroken(command, port, dir, &[]);
                Ok(())
            },
            ..ours.clone()
        },
        Peer {
            name: MEMORY,
            setup: "`unbroken serve -p PORT --in-memory`",
            serve: |command, port, _| {
                command.args([
                    "serve",
                    "--admin",
                    "off",
                    "-p",
                    &port.to_string(),
                    "--in-memory",
                ]);
                Ok(())
            },
            ..ours
        },
        Peer {
            name: EACH_CHANGE,
            setup: "`persistence true`, `autosave_on_changes true`, `autosave_interval 1`, limits opened",
            serve: |command, port, dir| {
                serve_keeping_mosquitto(
                    command,
                    port,
                    dir,
                    "autosave_on_changes true\nautosave_interval 1\n",
                )
            },
            ..mosquitto.clone()
        },
        Peer {
            name: HALF_HOUR,
            setup: "`persistence true`, `autosave_interval 1800` (its default: nothing is written meanwhile), limits opened",
            serve: |command, port, dir| {
                serve_keeping_mosquitto(command, port, dir, "autosave_interval 1800\n")
            },
            ..mosquitto
        },
        Peer {
            name: NATS,
            setup: "JetStream's file store, synced every two minutes (its default), `max_ack_pending: 32000`",
            program: "nats-server".into(),
            version: &["--version"],
            serve: serve_nats,
            hint: "`cargo xtask install-tools` builds it",
            pin: Some(NATS_VERSION),
            ..mosquitto
        },
    ])
}

/// MQTT in NATS is JetStream; above about 32,000 messages on their way, one session's two
/// subscriptions have more than packet ids. With `sync_interval: always` nothing of this load
/// arrived within the four seconds of a run, so it is not among the peers.
pub(super) fn serve_nats(command: &mut Command, port: u16, dir: &Path) -> io::Result<()> {
    let config = dir.join("nats.conf");
    let store = dir.join("jetstream");
    let store = store.display();
    let text = format!(
        "server_name: bench\n\
         listen: \"127.0.0.1:-1\"\n\
         jetstream {{ store_dir: \"{store}\" }}\n\
         mqtt {{ listen: \"127.0.0.1:{port}\"\nmax_ack_pending: 32000 }}\n"
    );
    fs::write(&config, text)?;
    command.arg("-c").arg(config);
    Ok(())
}

/// Our own, with room for as many messages as one session may wait for in the benchmark.
pub(crate) fn roomy(unbroken: &Path) -> io::Result<Peer> {
    let mut peers = peers(unbroken, None)?;
    let ours = peers.swap_remove(0);
    Ok(Peer {
        setup: "`unbroken serve -p PORT --data DIR`, with queues of any length",
        serve: |command, port, dir| {
            command.env("UNBROKEN__LIMITS__QUEUE_MESSAGES_MAX", "100000000");
            command.env("UNBROKEN__LIMITS__QUEUE_BYTES_MAX", "64GiB");
            serve_unbroken(command, port, dir, &[]);
            Ok(())
        },
        ..ours
    })
}

fn serve_keeping_mosquitto(
    command: &mut Command,
    port: u16,
    dir: &Path,
    saves: &str,
) -> io::Result<()> {
    serve_mosquitto(command, port, dir)?;
    let config = dir.join("mosquitto.conf");
    let text = fs::read_to_string(&config)?;
    // Debian's package gives up its rights when root starts it, and has to write here.
    let keeps = format!(
        "persistence true\npersistence_location {}/\nuser root\n{saves}",
        dir.display()
    );
    fs::write(&config, text.replace("persistence false\n", &keeps))
}
