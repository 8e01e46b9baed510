//! `unbroken sessions`: whose sessions are kept, what they hold, and the end of those that nobody
//! will come for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;

use serde_json::{Value, json};
use unbroken_broker::control::Who;
use unbroken_store::session::{Head, KeyView, Part, PartView, key, parse_key};
use unbroken_store::{Bounds, LogId, Sequence, Space, StoreError, View};

use super::pattern::Pattern;
use super::queued::{self, Queued};
use super::session::{self, Session};
use super::{DataArgs, each, failure, now_ms, person, record};
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
  unbroken sessions ls --data /var/lib/unbroken --count
  unbroken sessions ls --data /var/lib/unbroken --json | jq 'select(.behind > 1000).client'

UNDER WAY are messages that the client was given and has not done with. UNRELEASED is what messages
at QoS 2 from it take that it has not released (PUBREL). BEHIND are all that came in
after the place up to which it was given all, for whomever they are: at most so many wait for it,
and as long as it has not come for them they stay on disk. QUEUED, with --count, are those of them
that wait for it, and BYTES is what they take on disk.

Exit codes: 0 done; 2 wrong usage; 65 the store is damaged; 66 there is none; 69 another process
has it; 74 reading or writing failed; 77 it is another user's; 78 wrong configuration.")]
struct Ls {
    #[command(flatten)]
    data: DataArgs,
    /// Print each session as one JSON object
    #[arg(long)]
    json: bool,
    /// Count what waits for each session: reads all of it
    #[arg(long)]
    count: bool,
}

/// End sessions, with all that waits for them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken sessions rm --data /var/lib/unbroken --dry-run old-phone
  unbroken sessions rm --data /var/lib/unbroken old-phone older-phone
  unbroken sessions rm --data /var/lib/unbroken --dry-run 'sensor-*'

In CLIENT a * stands for any characters, also for none, and \\* for itself. Of sessions that are
removed, subscriptions and what waits are gone; their clients, when they come again, are new.
What shared groups gave them goes to other members; without a broker, when one is started.
A running broker disconnects them (0x98), publishes their wills, and names what they lose.
Without one, a will is not published.

Exit codes: 0 all are removed; 1 one of them is not there, or no session is like a pattern, and
nothing is changed; otherwise as `ls`.")]
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
    let (bounds, left_out) = (bounds(&*view)?, left_out(&*view)?);
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut rows, now_ms) = (Vec::new(), now_ms());
    session::each(&*view, |session| {
        let session = match session {
            Ok(session) => session,
            Err(wrong) => return Err(Failure::new(exit::DATA, wrong)),
        };
        let behind = behind(&session, &bounds, &left_out);
        let queued = if args.count {
            Some(queued::count(&*view, &session, &bounds)?)
        } else {
            None
        };
        if args.json {
            let object = json(&session, behind, queued);
            return writeln!(out, "{object}").map_err(|error| Failure::output(&error));
        }
        let queued = queued.unwrap_or_default();
        rows.push(row(&session, behind, connected, now_ms, queued));
        Ok(())
    })?;
    let written = match (args.json, args.count) {
        (true, _) => Ok(()),
        (false, true) => person::table(&mut out, TITLES, &rows),
        (false, false) => {
            let [titles @ .., _, _] = TITLES;
            let uncounted = rows.into_iter().map(|[row @ .., _, _]| row);
            person::table(&mut out, titles, &uncounted.collect::<Vec<_>>())
        }
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// The last two are shown where what waits is counted.
const TITLES: [&str; 9] = [
    "CLIENT",
    "STATE",
    "ENDS",
    "SUBSCRIPTIONS",
    "UNDER WAY",
    "UNRELEASED",
    "BEHIND",
    "QUEUED",
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
        let state = state(head.away_since_ms, connected, now_ms());
        writeln!(out, "{done} {} ({state})", person::shown(client))
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

/// Numbers that no message has, of each log.
type AllLeftOut = BTreeMap<LogId, Vec<Range<Sequence>>>;

fn left_out(view: &dyn View) -> Result<AllLeftOut, StoreError> {
    let logs = view.logs()?.into_iter();
    logs.map(|log| Ok((log, view.left_out(log)?))).collect()
}

/// At most so many messages wait for it.
fn behind(session: &Session, bounds: &AllBounds, left_out: &AllLeftOut) -> u64 {
    let waits = bounds.iter().filter_map(|(log, bounds)| {
        let after = session.place(*log)?.next().max(bounds.first);
        let numbers = bounds.next.0.saturating_sub(after.0);
        let left_out = left_out.get(log).into_iter().flatten();
        let without = left_out.map(|range| range.end.0.saturating_sub(range.start.max(after).0));
        Some(numbers.saturating_sub(without.sum()))
    });
    waits.sum()
}

fn json(session: &Session, behind: u64, queued: Option<Queued>) -> Value {
    let head = &session.head;
    let kept = session.subscriptions.iter().filter(|held| !held.ended);
    let subscriptions: Vec<_> = kept
        .map(|held| json!({ "filter": held.filter, "qos": u8::from(held.options.qos) }))
        .collect();
    let mut object = json!({
        "client": head.client_id,
        "away_since": head.away_since_ms.map(person::time),
        "expiry_s": record::expiry_s(head),
        "ends": session.ends_ms().map(person::time),
        "subscriptions": subscriptions,
        "under_way": session.outbound.len(),
        "unreleased": session.inbound,
        "unreleased_bytes": session.inbound_bytes,
        "behind": behind,
    });
    if let Some(Queued { messages, bytes }) = queued {
        object["queued"] = messages.into();
        object["queued_bytes"] = bytes.into();
    }
    object
}

fn row(
    session: &Session,
    behind: u64,
    connected: &'static str,
    now_ms: u64,
    queued: Queued,
) -> [String; TITLES.len()] {
    let head = &session.head;
    let kept = session.subscriptions.iter().filter(|held| !held.ended);
    let ends = match (session.ends_ms(), record::expiry_s(head)) {
        (Some(at), _) if at <= now_ms => "now".to_owned(),
        (Some(at), _) => format!("in {}", person::span(at - now_ms)),
        (None, Some(seconds)) => {
            let span = person::span(u64::from(seconds) * 1_000);
            format!("{span} after it left")
        }
        (None, None) => "never".to_owned(),
    };
    [
        person::shown(&head.client_id),
        state(head.away_since_ms, connected, now_ms),
        ends,
        kept.count().to_string(),
        session.outbound.len().to_string(),
        person::size(session.inbound_bytes),
        behind.to_string(),
        queued.messages.to_string(),
        person::size(queued.bytes),
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

pub(super) fn state(away_since_ms: Option<u64>, connected: &str, now_ms: u64) -> String {
    match away_since_ms {
        Some(since) => format!("away {}", person::span(now_ms.saturating_sub(since))),
        None => connected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use unbroken_mqtt_proto::{QoS, SubscriptionOptions};
    use unbroken_store::session::{Cursor, Holding, Subscription};
    use unbroken_store::{Batch, Log, Memory, MessageRecord, Store};

    use super::*;

    const LOG: LogId = LogId(0);

    /// So many messages at the end of the log.
    fn append(store: &Memory, count: u64) {
        let next = store.bounds(LOG).unwrap().next.0;
        let mut batch = Batch::new();
        for number in next..next + count {
            let message = MessageRecord::plain("t", 1, b"x").encode();
            batch.append(LOG, Sequence(number), message);
        }
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }

    /// A session that was given all up to here.
    fn put(store: &Memory, client: &str, through: u64) {
        let head = Head {
            client_id: client.to_owned(),
            expiry_s: NonZeroU32::MAX,
            away_since_ms: Some(0),
        };
        let subscription = Subscription {
            filter: "t".to_owned(),
            options: SubscriptionOptions {
                qos: QoS::AtLeastOnce,
                ..SubscriptionOptions::default()
            },
            identifier: None,
            ended: false,
            retained_due: false,
            holds: vec![Holding {
                log: LOG,
                from: Sequence(1),
                until: None,
            }],
        };
        let (filter, era) = ("t", 0);
        let cursor = Cursor {
            through: Sequence(through),
        };
        let mut batch = Batch::new();
        let mut put = |part, value| {
            batch.put(Space::Sessions, key(client, part), value);
        };
        put(Part::Head, head.encode());
        put(Part::Subscription { filter, era }, subscription.encode());
        put(Part::Cursor(LOG), cursor.encode());
        assert!(store.commit(&[batch]).unwrap()[0].is_ok());
    }

    #[test]
    fn numbers_that_no_message_has_are_not_behind() {
        const FAR: u64 = 1 << 32;
        let store = Memory::new();
        append(&store, 10);
        store.go_on_at(LOG, Sequence(FAR)).unwrap();
        append(&store, 5);
        for (through, expected) in [
            (0, 15),
            (8, 7),
            (10, 5),
            (FAR / 2, 5),
            (FAR, 4),
            (FAR + 4, 0),
        ] {
            put(&store, "c", through);
            let (bounds, left_out) = (bounds(&store).unwrap(), left_out(&store).unwrap());
            let mut found = Vec::new();
            let each = session::each(&store, |session| {
                found.push(behind(&session.unwrap(), &bounds, &left_out));
                Ok::<_, StoreError>(())
            });
            each.unwrap();
            assert_eq!(found, [expected], "{through}");
        }
    }
}
