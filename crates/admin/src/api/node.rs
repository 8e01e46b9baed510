//! The broker as a whole, its listeners and its certificates.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::Serialize;
use unbroken_broker::handle::Stats;
use unbroken_broker::{Expiry, config};
use utoipa::ToSchema;

use super::listing::Page;
use crate::broker::Broker;
use crate::problem::Problem;
use crate::process::Process;
use crate::time;

/// The broker
#[derive(Serialize, ToSchema)]
pub(crate) struct Node {
    /// Of the program
    version: String,
    /// Process id
    process_id: u32,
    /// When the admin server began, right after the broker
    #[schema(format = DateTime)]
    started: String,
    uptime_s: u64,
    /// `linux`, `macos` …
    operating_system: &'static str,
    architecture: &'static str,
    /// Threads that serve clients
    shards: u8,
    /// Processors that the broker may use
    processors: Option<usize>,
    /// The data directory; null: everything is in memory
    data_directory: Option<String>,
    /// `memory`; `ok`; `lacks_space`: messages that need it are refused; `failed`: so are clients
    /// that need it
    store: &'static str,
    store_bytes: u64,
    /// Open connections, those before CONNECT included
    connections: u32,
    clients_connected: u64,
    /// Sessions, connected or not
    sessions: u64,
    subscriptions: u64,
    shared_subscriptions: u64,
    retained_messages: u64,
    retained_bytes: u64,
    /// CPU time of the process, user and system
    cpu_s: Option<f64>,
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    open_files_max: Option<u64>,
    #[schema(format = DateTime)]
    as_of: String,
}

/// An open listener
#[derive(Serialize, ToSchema)]
pub(crate) struct Listener {
    /// Its position in the configuration
    number: u16,
    name: Option<String>,
    /// Address and port, or the path of a unix socket
    address: String,
    /// `mqtt`, `mqtts`, `ws` or `wss`
    protocol: &'static str,
    /// Which clients may connect
    admits: String,
    /// Connections from these networks begin with a PROXY header
    trusted_proxies: Vec<String>,
    /// What its clients' topics begin with for others
    mount_point: Option<String>,
    certificate_files: Vec<String>,
    max_connections: Option<u32>,
}

/// A file with certificates or revocation lists
#[derive(Serialize, ToSchema)]
pub(crate) struct Certificate {
    file: String,
    /// `certificate`, `authority` or `revocation list`
    what: &'static str,
    /// When the first of them expires
    #[schema(format = DateTime)]
    expires: String,
    /// Whole days until then; negative afterwards
    days_left: i64,
}

/// The broker as a whole
#[utoipa::path(get, path = "/node", tag = "node", responses((status = 200, body = Node)))]
pub(crate) async fn show(State(broker): State<Broker>) -> Result<Json<Node>, Problem> {
    let (stats, connections, shards, directory) = broker
        .answer(|handle| {
            let stats = handle.counters(crate::limits::ANSWER_TIMEOUT)?;
            let directory = handle.config().storage.place();
            Ok((stats, handle.connections(), handle.shards(), directory))
        })
        .await?;
    let process = Process::now();
    let uptime = broker.started.elapsed().unwrap_or_default();
    Ok(Json(Node {
        version: broker.version.to_string(),
        process_id: std::process::id(),
        started: time::of_system(broker.started),
        uptime_s: uptime.as_secs(),
        operating_system: std::env::consts::OS,
        architecture: std::env::consts::ARCH,
        shards,
        processors: std::thread::available_parallelism().ok().map(Into::into),
        store: store_state(&stats, directory.is_some()),
        data_directory: directory.map(|path| path.display().to_string()),
        store_bytes: stats.store_bytes,
        connections,
        clients_connected: stats.clients_connected,
        sessions: stats.clients_connected + stats.clients_disconnected,
        subscriptions: stats.subscriptions,
        shared_subscriptions: stats.shared_subscriptions,
        retained_messages: stats.retained_messages,
        retained_bytes: stats.retained_bytes,
        cpu_s: process.cpu.map(|cpu| cpu.as_secs_f64()),
        resident_bytes: process.resident_bytes,
        open_files: process.open_files,
        open_files_max: process.open_files_max,
        as_of: time::now_text(),
    }))
}

/// Open listeners, each once for each of its addresses
#[utoipa::path(
    get, path = "/listeners", tag = "node",
    responses((status = 200, body = Page<Listener>))
)]
pub(crate) async fn listeners(
    State(broker): State<Broker>,
) -> Result<Json<Page<Listener>>, Problem> {
    let listeners = broker.answer(|handle| {
        let rules = handle.config();
        let open = handle.listeners().iter().map(|open| {
            let rule = rules.listeners.get(usize::from(open.number));
            let files = rule.map_or(&[][..], |rule| &rule.tls.certificate_files);
            let mount_point = rule.and_then(|rule| rule.mount_point.as_ref());
            Listener {
                number: open.number,
                name: open.name.clone(),
                address: open.address.to_string(),
                protocol: open.protocol.as_str(),
                admits: rule.map_or_else(|| open.admits.clone(), config::Listener::admits),
                trusted_proxies: open
                    .trusted_proxies
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                mount_point: mount_point.map(|point| point.as_str().to_owned()),
                certificate_files: files.iter().map(|it| it.display().to_string()).collect(),
                max_connections: rule.and_then(|rule| rule.max_connections),
            }
        });
        Ok(open.collect())
    });
    Ok(Json(Page::new(listeners.await?, None)))
}

/// Files with certificates, the first that expires first
#[utoipa::path(
    get, path = "/certificates", tag = "node",
    responses((status = 200, body = Page<Certificate>))
)]
pub(crate) async fn certificates(
    State(broker): State<Broker>,
) -> Result<Json<Page<Certificate>>, Problem> {
    let expiries = broker.answer(|handle| Ok(handle.expiries())).await?;
    let mut seen = HashSet::new();
    let first = expiries
        .iter()
        .filter(|it| seen.insert((it.file.clone(), it.what.name())));
    let certificate = |expiry: &Expiry| Certificate {
        file: expiry.file.display().to_string(),
        what: expiry.what.name(),
        expires: Timestamp::from_second(expiry.not_after)
            .map_or_else(|_| time::of_ms(0), |at| format!("{at:.3}")),
        days_left: expiry.days_left(),
    };
    Ok(Json(Page::new(first.map(certificate).collect(), None)))
}

const fn store_state(stats: &Stats, is_on_disk: bool) -> &'static str {
    if !is_on_disk {
        "memory"
    } else if stats.store_failed > 0 {
        "failed"
    } else if stats.disk_lacks_space > 0 {
        "lacks_space"
    } else {
        "ok"
    }
}
