//! `unbroken sessions`: lists sessions and their messages, and removes sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::{Value, json};
use unbroken_broker::control::Who;
use unbroken_store::session::{Head, KeyView, Part, PartView, key, parse_key};
use unbroken_store::{Bounds, LogId, Space, StoreError, View};

use super::pattern::Pattern;
use super::queued::{self, Queued};
use super::session::{self, Session};
use super::{DataArgs, each, failure, human_format, now_ms, record};
use crate::exit::{self, Failure};

/// List and remove the sessions that are kept
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Ls(Ls),
    Rm(Rm),
}

/// List sessions and what they hold
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken sessions ls --data /var/lib/unbroken
  unbroken sessions ls --data /var/lib/unbroken --no-backlog
  unbroken sessions ls --data /var/lib/unbroken --json | jq 'select(.backlog > 1000).client'

EXPIRES is when the session ends if its client does not connect. IN FLIGHT counts messages that were
sent to the client and are not acknowledged. UNRELEASED is the size of QoS 2 messages from the
client that it has not released (PUBREL). BACKLOG is the number of messages that wait for this
session and were not sent yet, and BYTES is their size on disk. They are counted message by message;
with many messages that takes time, and --no-backlog leaves both out.

Exit codes: 0 done; 2 wrong usage; 65 the store is damaged; 66 there is none; 69 another process
has it; 74 reading or writing failed; 77 it is another user's; 78 wrong configuration.")]
struct Ls {
    #[command(flatten)]
    data: DataArgs,
    /// Print each session as one JSON object
    #[arg(long)]
    json: bool,
    /// Leave BACKLOG and BYTES out, which need all that waits to be read
    #[arg(long)]
    no_backlog: bool,
}

/// End sessions, with all that waits for them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken sessions rm --data /var/lib/unbroken --dry-run old-phone
  unbroken sessions rm --data /var/lib/unbroken old-phone older-phone
  unbroken sessions rm --data /var/lib/unbroken --dry-run 'sensor-*'

In CLIENT, * matches any characters, or none, and \\* itself. Subscriptions and queued messages of a
removed session are lost; its client gets a new session at its next connection. Messages that shared
groups gave to it go to other members; without a running broker, at the next start. A running broker
disconnects the client (0x98), publishes its will, and logs the lost messages. Without one, the will
is not published.

Exit codes: 0 all are removed; 1 one of them does not exist, or a pattern matches none, and nothing
is changed; otherwise as `ls`.")]
struct Rm {
    #[command(flatten)]
    data: DataArgs,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Whose session, or a pattern with *
    #[arg(required = true, value_name = "CLIENT")]
    clients: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(args) => list(args),
        Command::Rm(args) => remove(args),
    }
}

fn list(args: &Ls) -> Result<(), Failure> {
    let data = args.data.open()?;
    let connected = connected(data.broker()?.as_ref());
    let view = data.view()?;
    let bounds = bounds(&*view)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut rows, now_ms) = (Vec::new(), now_ms());
    session::each(&*view, |session| {
        let session = match session {
            Ok(session) => session,
            Err(wrong) => return Err(Failure::new(exit::DATA, wrong)),
        };
        let backlog = if args.no_backlog {
            None
        } else {
            Some(queued::count(&*view, &session, &bounds)?)
        };
        if args.json {
            let object = json(&session, backlog);
            return writeln!(out, "{object}").map_err(|error| Failure::output(&error));
        }
        let backlog = backlog.unwrap_or_default();
        rows.push(row(&session, connected, now_ms, backlog));
        Ok(())
    })?;
    let written = match (args.json, args.no_backlog) {
        (true, _) => Ok(()),
        (false, false) => human_format::table(&mut out, TITLES, &rows),
        (false, true) => {
            let [titles @ .., _, _] = TITLES;
            let uncounted = rows.into_iter().map(|[row @ .., _, _]| row);
            human_format::table(&mut out, titles, &uncounted.collect::<Vec<_>>())
        }
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// The last two are shown where the backlog is counted.
const TITLES: [&str; 8] = [
    "CLIENT",
    "STATE",
    "EXPIRES",
    "SUBSCRIPTIONS",
    "IN FLIGHT",
    "UNRELEASED",
    "BACKLOG",
    "BYTES",
];

fn remove(args: &Rm) -> Result<(), Failure> {
    let data = args.data.open()?;
    let connected = connected(data.broker()?.as_ref());
    let view = data.view()?;
    let mut out = io::stdout().lock();
    for head in meant(&*view, &args.clients)? {
        let client = &head.client_id;
        if !args.dry_run {
            data.remove_session(client)?;
        }
        let done = if args.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let state = state(head.offline_since_ms, connected, now_ms());
        writeln!(out, "{done} {} ({state})", human_format::shown(client))
            .map_err(|error| Failure::output(&error))?;
    }
    Ok(())
}

/// The sessions that are meant by names and patterns, each once. All are looked through only for a
/// pattern.
fn meant(view: &dyn View, clients: &[String]) -> Result<Vec<Head>, Failure> {
    let decoded = |bytes: &[u8]| {
        Head::decode(bytes).map_err(|error| failure(&StoreError::damaged("sessions", error)))
    };
    let (mut meant, mut seen) = (Vec::new(), BTreeSet::new());
    for client in clients {
        let pattern = Pattern::new(client);
        let mut found = Vec::new();
        if let Some(name) = pattern.name() {
            if let Some(value) = view.get(Space::Sessions, &key(name, Part::Head))? {
                found.push(decoded(&value.bytes)?);
            }
        } else {
            each(view, Space::Sessions, |pair| {
                let is_head = |view: KeyView<'_>| matches!(view.part, PartView::Head);
                if parse_key(&pair.key).is_ok_and(is_head) {
                    let head = decoded(&pair.value.bytes)?;
                    found.extend(pattern.matches(&head.client_id).then_some(head));
                }
                Ok::<_, Failure>(())
            })?;
            found.sort_unstable_by(|one, other| one.client_id.cmp(&other.client_id));
        }
        if found.is_empty() {
            let what = match pattern.name() {
                Some(name) => format!("client {name:?} has no session"),
                None => format!("no session is of a client like {client:?}"),
            };
            return Err(Failure::new(1, format_args!("{what}; nothing is changed")));
        }
        found.retain(|head| seen.insert(head.client_id.clone()));
        meant.extend(found);
    }
    Ok(meant)
}

type AllBounds = BTreeMap<LogId, Bounds>;

pub(super) fn bounds(view: &dyn View) -> Result<AllBounds, StoreError> {
    let logs = view.logs()?.into_iter();
    logs.map(|log| Ok((log, view.bounds(log)?))).collect()
}

fn json(session: &Session, backlog: Option<Queued>) -> Value {
    let head = &session.head;
    let kept = session.subscriptions.iter().filter(|held| !held.ended);
    let subscriptions: Vec<_> = kept
        .map(|held| json!({ "filter": held.filter, "qos": u8::from(held.options.qos) }))
        .collect();
    let mut object = json!({
        "client": head.client_id,
        "mount": head.mount,
        "away_since": head.offline_since_ms.map(human_format::time),
        "expiry_s": record::expiry_s(head),
        "expires": session.ends_ms().map(human_format::time),
        "subscriptions": subscriptions,
        "in_flight": session.outbound.len(),
        "unreleased": session.inbound,
        "unreleased_bytes": session.inbound_bytes,
    });
    if let Some(Queued { messages, bytes }) = backlog {
        object["backlog"] = messages.into();
        object["backlog_bytes"] = bytes.into();
    }
    object
}

fn row(
    session: &Session,
    connected: &'static str,
    now_ms: u64,
    backlog: Queued,
) -> [String; TITLES.len()] {
    let head = &session.head;
    let kept = session.subscriptions.iter().filter(|held| !held.ended);
    let expires = match (session.ends_ms(), record::expiry_s(head)) {
        (Some(at), _) if at <= now_ms => "now".to_owned(),
        (Some(at), _) => format!("in {}", human_format::span(at - now_ms)),
        (None, Some(seconds)) => {
            let span = human_format::span(u64::from(seconds) * 1_000);
            format!("{span} after it left")
        }
        (None, None) => "never".to_owned(),
    };
    [
        human_format::shown(&head.client_id),
        state(head.offline_since_ms, connected, now_ms),
        expires,
        kept.count().to_string(),
        session.outbound.len().to_string(),
        human_format::size(session.inbound_bytes),
        backlog.messages.to_string(),
        human_format::size(backlog.bytes),
    ]
}

/// What is to be said of a session that nobody has left: the disk knows no more than that.
pub(super) fn connected(broker: Option<&Who>) -> &'static str {
    match broker {
        None => "connected when the broker ended",
        Some(Who {
            failure: Some(_), ..
        }) => "connected when the store failed",
        Some(_) => "connected",
    }
}

pub(super) fn state(offline_since_ms: Option<u64>, connected: &str, now_ms: u64) -> String {
    match offline_since_ms {
        Some(since) => format!("away {}", human_format::span(now_ms.saturating_sub(since))),
        None => connected.to_owned(),
    }
}
