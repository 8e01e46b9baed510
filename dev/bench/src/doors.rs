//! `unbroken-bench doors`: what TLS, WebSocket, access rules and passwords cost the broker, beside
//! its peers.
//!
//! The figure is CPU time of the broker, of a connection or a message, and its ratio to
//! Mosquitto's within a round. Debian's Mosquitto 2.0 has no WebSocket: for rows with it
//! `mosquitto-ws` of the directory of `--peers-dir` takes its place. A connection is counted from
//! its opening until CONNACK; its end is not.
//!
//! The floor is the relay that cuts frames. It speaks plain TCP, so rows with TLS, WebSocket, rules
//! or passwords have none.

mod certificates;
mod handshakes;
mod rows;
mod serve;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use unbroken_load::{Extent, Report, Scenario, Settings, Transport, Unobserved, process::Process};

use self::{
    certificates::{Certificates, HOST},
    rows::{Door, Load, ROWS, Row, Versus},
    serve::{Configure, Setup},
};
use crate::{
    arguments::{Common, Missing, tell},
    error::BenchError,
    figure::{Bar, Figure, Record},
    logins,
    peer::{self, FLASHMQ, FLOOR, MOSQUITTO_WS, NATS, OURS, Peer, Running, YARDSTICK},
    record::Described,
    results::median,
};

/// How much is run, beside whom, and where it is recorded.
#[derive(Debug, Args)]
pub(crate) struct Doors {
    /// Rows by name, separated by commas; all if left out
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Holds `mosquitto-ws` (2.0 with libwebsockets) and `flashmq`, of which no package is at hand
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    /// Measured seconds of a run with messages
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// Connections of a run without
    #[arg(long, default_value_t = 1_000)]
    connections: u32,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    missing: Missing,
}

const NOTES: &str = "each on a broker of its own, in turns. CPU time (user and system) of the broker; \
    ratios are taken within a round, and beside them stand the medians. A bar that is missed by less \
    than twice the spread between the rounds counts as met; then both figures are shown. The relay \
    is the floor of rows over plain TCP.";

const MESSAGES_PER_SECOND: f64 = 2_000.0;
const HANDSHAKES_PER_SECOND: u32 = 500;
/// So many that what the first one brings with it is little of each.
const IDLE_CONNECTIONS: u32 = 5_000;

/// A broker, and how it is configured for a row.
type Contender = (Peer, Configure);

/// What a row gave, by row and peer: the value of each round.
type Values = BTreeMap<(&'static str, &'static str), Vec<f64>>;

impl Doors {
    pub(crate) fn run(self) -> Result<ExitCode, BenchError> {
        let machine = self.common.begin()?;
        let rounds = self.common.rounds();
        let rows = self.chosen()?;
        let contenders = self.contenders()?;
        let certificates = Certificates::make()?;
        let mut values = Values::new();
        for round in 0..rounds {
            writeln!(io::stderr(), "round {} of {rounds}", round + 1)?;
            for row in &rows {
                for contender in contenders.iter().filter(|it| takes_part(&it.0, row)) {
                    let value = self.measure(row, contender, &certificates)?;
                    let (name, peer) = (row.name, contender.0.name);
                    writeln!(io::stderr(), "  {name:<16}{peer:<16}{value:>10.2}")?;
                    values.entry((name, peer)).or_default().push(value);
                }
            }
        }
        let peers: Vec<_> = contenders.into_iter().map(|(peer, _)| peer).collect();
        let record = Record {
            title: "What TLS, WebSocket, access rules and passwords cost",
            notes: NOTES.to_owned(),
            below: "",
            machine,
            rounds,
            peers: Described::all(&peers)?,
            figures: rows.iter().flat_map(|row| figures(row, &values)).collect(),
        };
        if self.common.smoke {
            return Ok(ExitCode::SUCCESS);
        }
        record.write(&self.common.out, "doors")
    }

    fn chosen(&self) -> Result<Vec<Row>, BenchError> {
        if self.rows.is_empty() {
            return Ok(ROWS.to_vec());
        }
        let choose = |name: &String| {
            let found = ROWS.into_iter().find(|row| row.name == name);
            found.ok_or_else(|| BenchError::Unknown {
                what: "row",
                name: name.clone(),
                known: ROWS.map(|row| row.name).join(", "),
            })
        };
        self.rows.iter().map(choose).collect()
    }

    fn contenders(&self) -> Result<Vec<Contender>, BenchError> {
        let mut names = vec![OURS, YARDSTICK, FLOOR];
        if !self.common.smoke {
            names.push(NATS);
        }
        if self.peers_dir.is_some() {
            names.extend([MOSQUITTO_WS, FLASHMQ]);
        }
        let names: Vec<_> = names.into_iter().map(String::from).collect();
        let unbroken = self.common.unbroken()?;
        let mut peers = peer::choose(&unbroken, self.peers_dir.as_deref(), &names, false)?;
        tell(&self.missing.take_out(&mut peers))?;
        let configured = |peer: Peer| {
            let configure: Configure = match peer.name {
                OURS => serve::unbroken,
                NATS => serve::nats,
                FLASHMQ => serve::flashmq,
                FLOOR => serve::relay,
                _ => serve::mosquitto,
            };
            (peer, configure)
        };
        Ok(peers.into_iter().map(configured).collect())
    }

    /// One row on a broker that is started for it.
    fn measure(
        &self,
        row: &Row,
        (peer, configure): &Contender,
        certificates: &Certificates,
    ) -> Result<f64, BenchError> {
        let running = peer.start_as(|command, port, directory| {
            let setup = Setup {
                row,
                certificates,
                port,
                directory,
            };
            configure(&setup, command)
        })?;
        let failed = |source| BenchError::Load {
            row: row.name,
            peer: peer.name,
            source: Box::new(source),
        };
        let mut settings = self.settings(row, &running);
        let tls = certificates.client(row.door)?;
        let mut transport = Transport::default();
        if let Some(config) = &tls {
            let over = transport.tls(Arc::clone(config), HOST);
            transport = over.map_err(io::Error::other)?;
        }
        if row.door.is_websocket {
            transport = transport.websocket(running.target.to_string(), "/mqtt");
        }
        settings.transport = transport;
        let load = |settings| unbroken_load::run(settings, &mut Unobserved).map_err(failed);
        let report = match (row.load, tls) {
            (Load::Logins { .. }, _) => return self.logins(row, &running),
            (Load::Storm, Some(config)) => {
                let work = || load(settings);
                handshakes::beside(running.target, &config, HANDSHAKES_PER_SECOND, work)?.0?
            }
            _ => load(settings)?,
        };
        if !report.is_clean() {
            let text = format!("{} on {}: not all arrived", row.name, peer.name);
            return Err(io::Error::other(text).into());
        }
        let value = value(row.load, &report);
        value.ok_or_else(|| io::Error::other("the kernel does not say what a process takes").into())
    }

    fn settings(&self, row: &Row, running: &Running) -> Settings {
        let connections = if self.common.smoke {
            40
        } else {
            self.connections
        };
        let scenario = match row.load {
            Load::Idle if !self.common.smoke => Scenario::Idle {
                connections: IDLE_CONNECTIONS,
            },
            Load::Connect { .. } | Load::Idle | Load::Logins { .. } => {
                Scenario::Idle { connections }
            }
            Load::Pairs { .. } => Scenario::Pairs { connections: 100 },
            Load::Storm => Scenario::Pairs { connections: 20 },
        };
        let mut settings = Settings::new(running.target, scenario);
        settings.pid = Some(running.pid());
        let seconds = if self.common.smoke { 0.2 } else { self.secs };
        settings.extent = Extent::Time(Duration::from_secs_f64(seconds));
        match row.load {
            Load::Connect { at_a_time } => {
                settings.connecting = at_a_time;
                settings.extent = Extent::Time(Duration::ZERO);
            }
            Load::Idle | Load::Logins { .. } => settings.extent = Extent::Time(Duration::ZERO),
            Load::Pairs { payload } => settings.payload = payload,
            Load::Storm => settings.rate = Some(MESSAGES_PER_SECOND),
        }
        settings
    }

    /// CPU time of the first login of each user.
    fn logins(&self, row: &Row, running: &Running) -> Result<f64, BenchError> {
        let hash = serve::hash(row.load).expect("a row of logins has a hash");
        let count = if self.common.smoke {
            3
        } else {
            serve::USERS / 5
        };
        let process = Process::new(running.pid());
        let before = process.usage()?;
        for number in 0..count {
            if !logins::succeeds(running.target, hash, number) {
                let text = format!("{}: the login of user {number} failed", row.name);
                return Err(io::Error::other(text).into());
            }
        }
        let cpu = process.usage()?.cpu.saturating_sub(before.cpu);
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        Ok(cpu.as_secs_f64() * 1e6 / count as f64)
    }
}

/// Debian's Mosquitto has no WebSocket, and the one that has it is only for that.
fn takes_part(peer: &Peer, row: &Row) -> bool {
    match peer.name {
        YARDSTICK => !row.door.is_websocket,
        MOSQUITTO_WS => row.door.is_websocket,
        FLASHMQ => !has_tickets_for_certificates(row.door),
        FLOOR => has_floor(row),
        NATS => row.rules == rows::Rules::None && !matches!(row.load, Load::Logins { .. }),
        _ => true,
    }
}

/// The relay forwards frames over plain TCP, and does nothing else.
fn has_floor(row: &Row) -> bool {
    let is_its_load = matches!(row.load, Load::Connect { .. } | Load::Pairs { .. });
    row.door == Door::default() && row.rules == rows::Rules::None && is_its_load
}

/// FlashMQ 1.26 refuses every resumption with a client certificate: OpenSSL asks such a server for
/// a session id context, and it sets none.
fn has_tickets_for_certificates(door: Door) -> bool {
    (door.tls()).is_some_and(|tls| tls.resumes && tls.has_client_certificate)
}

/// Microseconds, or kilobytes.
fn value(load: Load, report: &Report) -> Option<f64> {
    let connecting = &report.connecting;
    match load {
        Load::Connect { .. } | Load::Logins { .. } => connecting.broker_cpu_us,
        Load::Idle => connecting.broker_bytes.map(|bytes| bytes / 1000.0),
        Load::Pairs { .. } | Load::Storm => {
            let figures = report.figures.as_ref()?;
            figures.broker.map(|broker| broker.cpu_us)
        }
    }
}

/// What is said of a row.
fn figures(row: &Row, values: &Values) -> Vec<Figure> {
    let of = |name, peer| values.get(&(name, peer)).map_or(&[][..], Vec::as_slice);
    let ours = of(row.name, OURS);
    let unit = if row.load == Load::Idle { "kB" } else { "µs" };
    let shown: Vec<_> = [OURS, YARDSTICK, MOSQUITTO_WS, NATS, FLASHMQ, FLOOR]
        .into_iter()
        .filter_map(|peer| Some((peer, median(of(row.name, peer).to_vec())?)))
        .map(|(peer, value)| format!("{peer} {value:.2} {unit}"))
        .collect();
    let shown = format!("{}: {}", row.what, shown.join(", "));
    let yardstick = if row.door.is_websocket {
        MOSQUITTO_WS
    } else {
        YARDSTICK
    };
    let other = of(row.name, yardstick);
    let made = |name, unit, title: String, bar, values: Vec<f64>| {
        let figure = Figure::new(name, "", unit, bar).titled(title);
        let mut figure = figure.within_spread();
        for value in values {
            figure.add(value);
        }
        figure
    };
    let ratio = |others: &[f64]| {
        ours.iter()
            .zip(others)
            .map(|(one, other)| one / other)
            .collect()
    };
    let against = |bar: Option<Bar>| {
        let title = format!("{shown}; ours to {yardstick}'s");
        made(row.name, "ratio", title, bar, ratio(other))
    };
    match row.versus {
        Versus::Yardstick(bar) => vec![against(bar)],
        Versus::Itself(bar) => vec![made(row.name, unit, shown, Some(bar), ours.to_vec())],
        Versus::Ratio(base, bar) => {
            let title = format!("{shown}; ours to ours without");
            let without = of(base, OURS);
            vec![made(row.name, "ratio", title, Some(bar), ratio(without))]
        }
        Versus::OnTop(bar, base, on_top) => {
            let more = ours
                .iter()
                .zip(of(base, OURS))
                .map(|(one, other)| one - other);
            let title = format!("{}: more than in plain", row.what);
            vec![
                against(Some(bar)),
                made(row.name, "µs", title, on_top, more.collect()),
            ]
        }
    }
}
