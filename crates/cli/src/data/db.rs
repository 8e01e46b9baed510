//! `unbroken db export`: every record of a store as a line of JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use unbroken_store::session::{
    Cursor, Head, Inbound, MaybeSent, Outbound, PartView, Subscription, Will, parse_key,
};
use unbroken_store::{MessageBytes, Pair, RecordError, Space, StoreError};

use super::{DataArgs, PIECE_BYTES, each, failure, record};
use crate::exit::Failure;

/// Export everything in a data directory
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Export(Export),
}

/// Print every record as one JSON object
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken db export --data /var/lib/unbroken > everything.jsonl
  unbroken db export --data /var/lib/unbroken | jq -r 'select(.kind == \"message\").topic'

docs/cli.md describes the objects. To move to another machine use `backup`.

Exit codes: 0 done; 2 wrong usage; 65 the store is damaged; 66 there is none; 69 another process
has it; 74 reading or writing failed; 77 it is another user's; 78 wrong configuration.")]
struct Export {
    #[command(flatten)]
    data: DataArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Export(args) = &args.command;
    let data = args.data.open()?;
    let view = data.view()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut line = |kind: &str, mut object: Map<String, Value>| {
        object.insert("kind".to_owned(), json!(kind));
        let object = Value::Object(object);
        writeln!(out, "{object}").map_err(|error| Failure::output(&error))
    };
    for log in view.logs()? {
        let bounds = view.bounds(log)?;
        let (first, next) = (bounds.first.0, bounds.next.0);
        line(
            "log",
            fields([
                ("log", json!(log.0)),
                ("first", json!(first)),
                ("next", json!(next)),
            ]),
        )?;
        let mut from = bounds.first;
        while from < bounds.next {
            let chunk = view.read(log, from..bounds.next, PIECE_BYTES)?;
            for entry in &chunk.entries {
                let mut object = record::message(&entry.message.record());
                object.insert("log".to_owned(), json!(log.0));
                object.insert("number".to_owned(), json!(entry.sequence.0));
                line("message", object)?;
            }
            from = chunk.next;
        }
    }
    for space in Space::ALL {
        // A session's first value is its head, which says whose the others are.
        let mut client = Client::default();
        each(&*view, space, |pair| {
            let read = match space {
                Space::Sessions => client.part(&pair),
                Space::Retained => MessageBytes::parse(pair.value.bytes.clone())
                    .map(|message| ("retained", record::message(&message.record()))),
                _ => Ok(("value", raw(space, &pair))),
            };
            let damaged = |error: RecordError| {
                let place = format_args!("key {} of {space}", pair.key.escape_ascii());
                failure(&StoreError::damaged(place, error))
            };
            let (kind, object) = read.map_err(damaged)?;
            line(kind, object)
        })?;
    }
    out.flush().map_err(|error| Failure::output(&error))
}

/// Whose values come.
#[derive(Default)]
struct Client {
    prefix: Vec<u8>,
    id: Option<String>,
}

impl Client {
    fn part(&mut self, pair: &Pair) -> Result<(&'static str, Map<String, Value>), RecordError> {
        let key = parse_key(&pair.key)?;
        if *self.prefix != *key.client {
            self.prefix = key.client.to_vec();
            self.id = None;
        }
        let value = &pair.value.bytes;
        let (kind, mut object) = match key.part {
            PartView::Head => {
                let head = Head::decode(value)?;
                self.id = Some(head.client_id.clone());
                ("session", record::head(&head))
            }
            PartView::Subscription { era } => {
                let mut object = record::subscription(&Subscription::decode(value)?);
                object.insert("era".to_owned(), json!(era));
                ("subscription", object)
            }
            PartView::Cursor(log) => {
                let through = Cursor::decode(value)?.through.0;
                let object = fields([("log", json!(log.0)), ("through", json!(through))]);
                ("cursor", object)
            }
            PartView::Outbound(number) => {
                let mut object = record::outbound(&Outbound::decode(value)?);
                object.insert("entry".to_owned(), json!(number));
                ("outbound", object)
            }
            PartView::Inbound(id) => {
                let mut object = fields([("packet_id", json!(id.get()))]);
                if let Some(owed) = Inbound::decode(value)?.retained {
                    let message = Value::Object(record::message(&owed.message.record()));
                    object.insert("retained".to_owned(), message);
                }
                ("inbound", object)
            }
            PartView::Will => {
                let will = Will::decode(value)?;
                let message = Value::Object(record::message(&will.message.record()));
                let delay = json!(will.delay_s);
                ("will", fields([("delay_s", delay), ("message", message)]))
            }
            PartView::MaybeSent => {
                let sent = MaybeSent::decode(value)?;
                let through = sent.through.iter();
                let through: Vec<_> = through
                    .map(|at| json!({ "log": at.log.0, "through": at.sequence.0 }))
                    .collect();
                let entries = json!(sent.entries);
                let object = fields([("entries", entries), ("logs", json!(through))]);
                ("maybe_sent", object)
            }
        };
        // What is left of a session that ended has no head.
        object.insert("client".to_owned(), json!(self.id));
        Ok((kind, object))
    }
}

/// What has a form of the broker's own.
fn raw(space: Space, pair: &Pair) -> Map<String, Value> {
    let mut object = fields([("space", json!(space.name()))]);
    object.extend([
        record::bytes("key", &pair.key),
        record::bytes("value", &pair.value.bytes),
    ]);
    object
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
