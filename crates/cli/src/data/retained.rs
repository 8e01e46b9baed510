//! `unbroken retained`: retained messages.

use std::io::{self, Write};

use unbroken_mqtt_proto::{TopicFilter, TopicName};
use unbroken_store::{MessageBytes, MessageRecord, Space, StoreError, View};

use super::{DataArgs, each, failure, human_format, now_ms, record};
use crate::exit::Failure;

/// List, print and remove the retained messages that are kept
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Ls(Ls),
    Get(Get),
    Rm(Rm),
}

/// List topics with a retained message
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken retained ls --data /var/lib/unbroken
  unbroken retained ls --data /var/lib/unbroken 'plant/#' --json

Exit codes: 0 done; 2 wrong usage; 65 the store is damaged; 66 there is none; 69 another process
has it; 74 reading or writing failed; 77 it is another user's; 78 wrong configuration.")]
struct Ls {
    #[command(flatten)]
    data: DataArgs,
    /// Print each message as one JSON object, with its payload
    #[arg(long)]
    json: bool,
    /// Only topics that match; all without one
    #[arg(value_parser = filter)]
    filter: Option<String>,
}

/// Print the retained message of a topic
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken retained get --data /var/lib/unbroken plant/boiler/mode
  unbroken retained get --data /var/lib/unbroken -N plant/picture > picture.png

Exit codes: 0 printed; 1 there is none; otherwise as `ls`.")]
struct Get {
    #[command(flatten)]
    data: DataArgs,
    /// Print it as one JSON object
    #[arg(long)]
    json: bool,
    /// No end of line after the payload
    #[arg(short = 'N', conflicts_with = "json")]
    no_eol: bool,
    /// The topic
    #[arg(value_parser = topic)]
    topic: String,
}

/// Remove retained messages
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken retained rm --data /var/lib/unbroken plant/boiler/mode
  unbroken retained rm --data /var/lib/unbroken --dry-run 'old/#'

Exit codes: 0 removed, and each is named; 1 no topic matches; otherwise as `ls`.")]
struct Rm {
    #[command(flatten)]
    data: DataArgs,
    /// Say what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Topics, or filters with wildcards
    #[arg(required = true, value_name = "FILTER", value_parser = filter)]
    filters: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(args) => list(args),
        Command::Get(args) => get(args),
        Command::Rm(args) => remove(args),
    }
}

fn list(args: &Ls) -> Result<(), Failure> {
    let data = args.data.open()?;
    let view = data.view()?;
    let filters: Vec<&str> = args.filter.iter().map(String::as_str).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut rows, now_ms) = (Vec::new(), now_ms());
    matching(&*view, &filters, |message| {
        let record = message.record();
        if args.json {
            return json(&mut out, &record);
        }
        rows.push(row(&record, now_ms));
        Ok(())
    })?;
    let titles = ["TOPIC", "BYTES", "QOS", "RECEIVED", "EXPIRES"];
    let written = if args.json {
        Ok(())
    } else {
        human_format::table(&mut out, titles, &rows)
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

fn get(args: &Get) -> Result<(), Failure> {
    let data = args.data.open()?;
    let found = data.view()?.get(Space::Retained, args.topic.as_bytes())?;
    let Some(value) = found else {
        let what = format_args!("topic {:?} has no retained message", args.topic);
        return Err(Failure::new(1, what));
    };
    let message = message(value.bytes)?;
    let record = message.record();
    let mut out = io::stdout().lock();
    if args.json {
        return json(&mut out, &record);
    }
    let end: &[u8] = if args.no_eol { b"" } else { b"\n" };
    out.write_all(record.payload)
        .and_then(|()| out.write_all(end))
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

fn remove(args: &Rm) -> Result<(), Failure> {
    let data = args.data.open()?;
    let view = data.view()?;
    let filters: Vec<&str> = args.filters.iter().map(String::as_str).collect();
    let mut out = io::stdout().lock();
    let done = if args.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut count = 0u64;
    matching(&*view, &filters, |message| {
        let topic = message.topic();
        count += 1;
        if !args.dry_run {
            data.remove_retained(topic)?;
        }
        let (topic, bytes) = (human_format::shown(topic), message.record().payload.len());
        writeln!(out, "{done} {topic} ({})", human_format::size(bytes as u64))
            .map_err(|error| Failure::output(&error))
    })?;
    if count == 0 {
        let what = "no topic with a retained message matches; nothing is changed";
        return Err(Failure::new(1, what));
    }
    Ok(())
}

/// Calls `take` with every retained message whose topic matches one of the filters, all if there
/// are none.
fn matching(
    view: &dyn View,
    filters: &[&str],
    mut take: impl FnMut(&MessageBytes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // They were checked as arguments.
    let filters: Vec<_> = filters
        .iter()
        .filter_map(|filter| TopicFilter::parse(filter).ok())
        .collect();
    each(view, Space::Retained, |pair| {
        let message = message(pair.value.bytes)?;
        let topic = TopicName::parse(message.topic());
        let matches = topic.is_ok_and(|topic| filters.iter().any(|filter| filter.matches(topic)));
        if filters.is_empty() || matches {
            take(&message)?;
        }
        Ok(())
    })
}

fn message(bytes: Vec<u8>) -> Result<MessageBytes, Failure> {
    let parsed = MessageBytes::parse(bytes);
    parsed.map_err(|error| failure(&StoreError::damaged("a retained message", error)))
}

fn json(out: &mut dyn Write, record: &MessageRecord<'_>) -> Result<(), Failure> {
    let object = serde_json::Value::Object(record::message(record));
    writeln!(out, "{object}").map_err(|error| Failure::output(&error))
}

fn row(record: &MessageRecord<'_>, now_ms: u64) -> [String; 5] {
    let expires = match record.expires_ms {
        None => "never".to_owned(),
        Some(at) if at <= now_ms => "now".to_owned(),
        Some(at) => format!("in {}", human_format::span(at - now_ms)),
    };
    [
        human_format::shown(record.topic),
        record.payload.len().to_string(),
        u8::from(record.qos).to_string(),
        format!(
            "{} ago",
            human_format::span(now_ms.saturating_sub(record.stamp_ms))
        ),
        expires,
    ]
}

fn filter(text: &str) -> Result<String, String> {
    let parsed = TopicFilter::parse(text);
    parsed.map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn topic(text: &str) -> Result<String, String> {
    let parsed = TopicName::parse(text);
    parsed.map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
