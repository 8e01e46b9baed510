//! `unbroken doctor`: contents, cost and faults of a data directory.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use nix::sys::statvfs::statvfs;
use serde_json::{Value, json};
use unbroken_broker::control::Who;
use unbroken_store::{Embedded, Sequence, Space, StoreError, quarantine};

use super::examine::{BACKLOGS_COUNTED, Examined, SpaceFacts, examine};
use super::queued::Queued;
use super::sessions::{connected, state};
use super::{Data, DataArgs, failed_in_last_run, failure, human_format, now_ms, remote};
use crate::exit::{self, Failure};

/// Examine a data directory: contents, cost and faults
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken doctor --data /var/lib/unbroken
  unbroken doctor --data /var/lib/unbroken --json | jq .wrong

The command reads the whole store. It reports as wrong: unreadable or contradictory data, a message
that has been stored for a session for more than a week, a damaged store that was set aside in the
directory, a store that has failed, now or in the last run, and less than 1 GiB of free disk space.

The last table lists the sessions that messages are stored for, those with the oldest message first.
IN FLIGHT counts messages that were sent to the client and are not acknowledged, BACKLOG those that
were not sent yet, and OLDEST is the age of the oldest of them. LOG PINNED is the part of the logs
from there on, messages for others included: it cannot be trimmed before the session has received
its messages. Ten sessions are shown, and the others counted; --json lists all.

With --deep every byte of every table is compared with its checksum first, and damage is reported
with the file name. That takes about 2 s for each GiB in the system's cache, and as long as the disk
needs for the rest. No broker may use the directory. Tables are checked in this way without --deep
if damage was found while the store was in use. Such a store, or one with damage, is not opened: its
contents are not listed, and no byte of it is changed.

Exit codes: 0 no fault; 1 a fault; 2 wrong usage; 66 there is no store; 69 another process has it;
74 reading or writing failed; 77 it belongs to another user; 78 wrong configuration.")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// Read every byte of every table first
    #[arg(long)]
    deep: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let report = look(args)?;
    let mut out = io::stdout().lock();
    let written = if args.json {
        writeln!(out, "{}", report.json())
    } else {
        report.print(&mut out)
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))?;
    Ok(if report.wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

struct Report {
    directory: String,
    broker: Option<Who>,
    /// Bytes on disk; none if it could not be opened.
    disk_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Bytes of tables that were read before it was opened; none if that was not asked for, or
    /// could not be done.
    table_bytes: Option<u64>,
    /// What is in it; none if it was not opened.
    inside: Option<Inside>,
    /// All that is wrong, with the directory and in it.
    wrong: Vec<String>,
    now_ms: u64,
}

struct Inside {
    examined: Examined,
    /// Where the generations of each of its logs begin.
    generations: Vec<Vec<Sequence>>,
}

fn look(args: &Args) -> Result<Report, Failure> {
    let path = args.data.path()?;
    let now_ms = now_ms();
    let mut wrong = Vec::new();
    let (mut inside, mut disk_bytes, mut broker) = (None, None, None);
    // Who looks takes the directory, and what is made there then belongs to this user.
    drop(remote(&path)?);
    let marked = quarantine::marked(&path)?;
    // Whoever opens the store makes it anew. What keeps this from looking is met again below.
    wrong.extend(Embedded::list_fault(&path).ok().flatten());
    let (mut table_bytes, mut is_damaged) = (None, false);
    if args.deep || marked.is_some() {
        match args.data.try_look()? {
            Some(looked) => {
                is_damaged = marked.is_some() || !looked.damage.is_empty();
                wrong.extend(looked.damage.iter().map(ToString::to_string));
                let not_read = looked.not_read;
                table_bytes = not_read.is_none().then_some(looked.table_bytes);
                wrong.extend(not_read.map(|why| format!("its tables were not read: {why}")));
            }
            None if args.deep => return Err(Failure::new(exit::UNAVAILABLE, NOT_OF_A_BROKER)),
            None => {}
        }
    }
    let failed;
    match (!is_damaged).then(|| args.data.try_open()).transpose()? {
        // Opening it would change it.
        None => failed = failed_in_last_run(&path),
        Some(Ok(data)) => {
            disk_bytes = Some(data.disk_bytes()?);
            broker = data.broker()?;
            failed = data.failed(&path)?;
            inside = Some(look_inside(&data)?);
        }
        // It is what was asked for.
        Some(Err(error @ (StoreError::Damaged { .. } | StoreError::Format { .. }))) => {
            wrong.push(error.to_string());
            failed = failed_in_last_run(&path);
        }
        Some(Err(error)) => return Err(failure(&error)),
    }
    wrong.extend(failed);
    wrong.extend(marked.map(|what| format!("{}: {what}", path.display())));
    if let Some(Inside { examined, .. }) = &mut inside {
        wrong.append(&mut examined.wrong);
        wrong.extend(held_long(examined, now_ms));
    }
    wrong.extend(set_aside(&path)?);
    let free = statvfs(&path).ok();
    let free_bytes = free.map(|free| free.blocks_available() * free.fragment_size());
    if let Some(free) = free_bytes
        && free < FREE_BYTES_MIN
    {
        let free = human_format::size(free);
        wrong.push(format!("only {free} of the disk are free"));
    }
    Ok(Report {
        directory: path.display().to_string(),
        broker,
        disk_bytes,
        free_bytes,
        table_bytes,
        inside,
        wrong,
        now_ms,
    })
}

fn look_inside(data: &Data) -> Result<Inside, StoreError> {
    let examined = examine(&*data.view()?)?;
    let logs = examined.logs.iter();
    let generations: Result<_, _> = logs.map(|log| data.generations(log.log)).collect();
    Ok(Inside {
        generations: generations?,
        examined,
    })
}

fn held_long(examined: &Examined, now_ms: u64) -> impl Iterator<Item = String> {
    let long = |held: &u64| *held > HELD_MS_MAX;
    examined.holders.iter().filter_map(move |holder| {
        let held = Some(now_ms.saturating_sub(holder.oldest_ms)).filter(long)?;
        Some(format!(
            "a message for client {} has been stored for {}, and the log keeps {} for it; \
             `unbroken sessions rm` ends its session",
            human_format::shown(&holder.client_id),
            human_format::span(held),
            human_format::size(holder.log_bytes),
        ))
    })
}

/// Damaged stores that were set aside.
fn set_aside(path: &Path) -> Result<Vec<String>, StoreError> {
    let found = quarantine::damaged_stores(path)?.into_iter().map(|path| {
        format!(
            "a damaged store was set aside in {}; its damage.txt lists what was lost; remove it \
             when it is not needed any more",
            path.display()
        )
    });
    Ok(found.collect())
}

impl Report {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let unknown = || "unknown".to_owned();
        writeln!(out, "directory  {}", self.directory)?;
        match &self.broker {
            Some(Who {
                process, version, ..
            }) => writeln!(out, "broker     process {process}, version {version}")?,
            None => writeln!(out, "broker     none is running")?,
        }
        let size = self.disk_bytes.map_or_else(unknown, human_format::size);
        let free = self.free_bytes.map_or_else(unknown, human_format::size);
        writeln!(out, "on disk    {size}; {free} free")?;
        if let Some(read) = self.table_bytes {
            writeln!(
                out,
                "tables     {} read, every byte",
                human_format::size(read)
            )?;
        }
        match &self.inside {
            Some(inside) => self.print_inside(inside, out)?,
            None => writeln!(out, "memory     unknown\nsessions   unknown")?,
        }
        writeln!(out)?;
        for wrong in &self.wrong {
            writeln!(out, "wrong: {wrong}")?;
        }
        match self.wrong.len() {
            0 => writeln!(out, "All of it was read, and nothing is wrong."),
            1 => writeln!(out, "1 thing is wrong."),
            count => writeln!(out, "{count} things are wrong."),
        }
    }

    fn print_inside(&self, inside: &Inside, out: &mut dyn Write) -> io::Result<()> {
        let examined = &inside.examined;
        let store = human_format::size(inside.memory_bytes_max());
        let rest = human_format::size(inside.memory_bytes());
        let (subscriptions, in_flight) = (examined.subscriptions, examined.in_flight);
        let retained = inside.retained().values;
        writeln!(
            out,
            "memory     at most {store} for the store itself, and about {rest} for sessions, \
             {subscriptions} subscriptions, {in_flight} messages in flight and {retained} retained"
        )?;
        let (all, away) = (examined.sessions, examined.away);
        let when = match self.broker {
            Some(_) => "",
            None => " when the broker ended",
        };
        writeln!(out, "sessions   {all}, {away} of them offline{when}")?;
        self.print_logs(inside, out)?;
        print_spaces(examined, out)?;
        self.print_holders(examined, out)
    }

    fn print_logs(&self, inside: &Inside, out: &mut dyn Write) -> io::Result<()> {
        let logs: Vec<_> = inside
            .examined
            .logs
            .iter()
            .zip(&inside.generations)
            .map(|(log, generations)| {
                [
                    log.log.to_string(),
                    generations.len().to_string(),
                    log.bounds.first.to_string(),
                    log.bounds.next.to_string(),
                    log.messages.to_string(),
                    human_format::size(log.bytes),
                    log.oldest_ms.map_or("-".to_owned(), |ms| self.ago(ms)),
                ]
            })
            .collect();
        writeln!(out)?;
        let titles = [
            "LOG",
            "GENERATIONS",
            "FIRST",
            "NEXT",
            "MESSAGES",
            "BYTES",
            "OLDEST",
        ];
        human_format::table(out, titles, &logs)
    }

    /// The sessions that need most of the logs.
    fn print_holders(&self, examined: &Examined, out: &mut dyn Write) -> io::Result<()> {
        let connected = connected(self.broker.as_ref());
        let holders: Vec<_> = examined
            .holders
            .iter()
            .take(BACKLOGS_COUNTED)
            .map(|holder| {
                let backlog = holder.backlog.map(|backlog| backlog.messages.to_string());
                [
                    human_format::shown(&holder.client_id),
                    state(holder.offline_since_ms, connected, self.now_ms),
                    holder.in_flight.to_string(),
                    backlog.unwrap_or_else(|| "unknown".to_owned()),
                    self.ago(holder.oldest_ms),
                    human_format::size(holder.log_bytes),
                ]
            })
            .collect();
        if !holders.is_empty() {
            writeln!(out)?;
            let titles = [
                "CLIENT",
                "STATE",
                "IN FLIGHT",
                "BACKLOG",
                "OLDEST",
                "LOG PINNED",
            ];
            human_format::table(out, titles, &holders)?;
            let more = examined.holders.len() - holders.len();
            if more > 0 {
                writeln!(out, "and {more} more")?;
            }
        }
        Ok(())
    }

    fn ago(&self, ms: u64) -> String {
        format!("{} ago", human_format::span(self.now_ms.saturating_sub(ms)))
    }

    fn json(&self) -> Value {
        let inside = self.inside.as_ref();
        let examined = inside.map(|inside| &inside.examined);
        json!({
            "directory": self.directory,
            "broker": self.broker.as_ref().map(|who| {
                json!({ "process": who.process, "version": who.version, "failure": who.failure })
            }),
            "disk_bytes": self.disk_bytes,
            "free_bytes": self.free_bytes,
            "table_bytes_read": self.table_bytes,
            "memory_bytes_max": inside.map(Inside::memory_bytes_max),
            "memory_bytes_of_sessions": inside.map(Inside::memory_bytes),
            "subscriptions": examined.map(|examined| examined.subscriptions),
            "in_flight": examined.map(|examined| examined.in_flight),
            "sessions": examined.map(|examined| examined.sessions),
            "away": examined.map(|examined| examined.away),
            "logs": inside.map(Inside::logs),
            "spaces": inside.map(Inside::spaces),
            "holders": inside.map(Inside::holders),
            "wrong": self.wrong,
        })
    }
}

fn print_spaces(examined: &Examined, out: &mut dyn Write) -> io::Result<()> {
    let spaces: Vec<_> = examined
        .spaces
        .iter()
        .map(|found| {
            let bytes = human_format::size(found.bytes);
            [found.space.to_string(), found.values.to_string(), bytes]
        })
        .collect();
    writeln!(out)?;
    human_format::table(out, ["VALUES OF", "COUNT", "BYTES"], &spaces)
}

impl Inside {
    /// Of the store itself, at most.
    fn memory_bytes_max(&self) -> u64 {
        Embedded::memory_bytes_max(self.examined.logs.len() as u64)
    }

    /// What a broker that has this store needs about for what else is in it. What waits in the logs
    /// needs nothing.
    fn memory_bytes(&self) -> u64 {
        let examined = &self.examined;
        let retained = self.retained();
        examined.sessions * SESSION_BYTES
            + examined.subscriptions * SUBSCRIPTION_BYTES
            + examined.in_flight * IN_FLIGHT_BYTES
            + retained.values * RETAINED_BYTES
            + retained.bytes
    }

    fn retained(&self) -> SpaceFacts {
        let spaces = self.examined.spaces.iter();
        let mut retained = spaces.filter(|found| found.space == Space::Retained);
        retained.next().copied().unwrap_or(SpaceFacts {
            space: Space::Retained,
            values: 0,
            bytes: 0,
        })
    }

    fn logs(&self) -> Vec<Value> {
        let logs = self.examined.logs.iter().zip(&self.generations);
        let logs = logs.map(|(log, generations)| {
            let generations: Vec<_> = generations.iter().map(|first| first.0).collect();
            json!({
                "log": log.log.0,
                "generations": generations,
                "first": log.bounds.first.0,
                "next": log.bounds.next.0,
                "messages": log.messages,
                "bytes": log.bytes,
                "oldest": log.oldest_ms.map(human_format::time),
            })
        });
        logs.collect()
    }

    fn spaces(&self) -> Vec<Value> {
        let spaces = self.examined.spaces.iter().map(|found| {
            json!({ "space": found.space.name(), "values": found.values, "bytes": found.bytes })
        });
        spaces.collect()
    }

    fn holders(&self) -> Vec<Value> {
        let holders = self.examined.holders.iter().map(|holder| {
            let mut object = json!({
                "client": holder.client_id,
                "away_since": holder.offline_since_ms.map(human_format::time),
                "in_flight": holder.in_flight,
                "oldest": human_format::time(holder.oldest_ms),
                "log_bytes": holder.log_bytes,
            });
            if let Some(Queued { messages, bytes }) = holder.backlog {
                object["backlog"] = messages.into();
                object["backlog_bytes"] = bytes.into();
            }
            object
        });
        holders.collect()
    }
}

const NOT_OF_A_BROKER: &str = "a broker has the directory, and tables are read when none has; \
     stop it first, or look without --deep";
/// A message that is held longer is wrong: its client may never come.
const HELD_MS_MAX: u64 = 7 * 86_400_000;
/// A disk with less is nearly full: the store's journal and what it rewrites need some room.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;
/// Memory of the broker for one of each, rounded, as measured with 8,000 sessions with none, one
/// and four filters each, and 50,000 retained messages of 100 bytes (docs/durability.md has more).
const SESSION_BYTES: u64 = 1_000;
const SUBSCRIPTION_BYTES: u64 = 400;
const RETAINED_BYTES: u64 = 300;
/// With its message, if no other session was given that.
const IN_FLIGHT_BYTES: u64 = 700;
