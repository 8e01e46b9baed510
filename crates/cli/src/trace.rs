//! `unbroken trace`: what a running broker does with the packets of some clients, as it does it.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use unbroken_broker::config::parse_duration;
use unbroken_broker::trace::{TRACE_PAYLOAD_MAX, TraceFilter, TraceLine};

use crate::data::{DataArgs, failure};
use crate::exit::{self, Failure};

/// Show live what the broker does with packets of some clients
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  unbroken trace --client boiler-7
  unbroken trace --user maintenance --for 5m
  unbroken trace --topic 'plant/+/alarm' --client boiler-7 --json | jq 'select(.step==\"dropped\")'
  unbroken trace --topic 'plant/#' --payload 64 --data /var/lib/unbroken

Each line is a step: a packet `received` and its answer (`answered`); the receivers of a message
(`matched`, with the access rules' verdict); a copy `sent`, `queued`, `stored` (it waits on disk) or
`dropped` with the reason; `connected`, `refused`, `subscribed`, `disconnected`. With several of
--client, --user and --topic all must hold; a client is the sender or the receiver. The topic is as
the broker has it, with mount points. On another shard than its publisher's, a message is known by
its publisher's id, and not by its user. If steps come faster than they are printed, some are
`missed`, with their number.

At most 8 traces go on at the same time. Without one, packets cost nothing more than before. The
broker is found by its data directory.

Exit codes: 0 the time is over; 2 wrong usage; 66 there is no such directory; 69 no broker has it,
or it refuses the trace; 77 it is another user's.")]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// The client with this id sends or receives it
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// A client of this user does
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Its topic matches this filter
    #[arg(long, value_name = "FILTER")]
    topic: Option<String>,
    /// How long: 30s, 5m; at most 1h
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = time)]
    time: Duration,
    /// Show so many bytes of each payload; at most 1024
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=i64::from(TRACE_PAYLOAD_MAX)))]
    payload: u16,
    /// Print each step as one JSON object
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|what| format!("it {what}"))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let none = || {
        let why = "no broker that runs has this data directory";
        Failure::new(exit::UNAVAILABLE, why)
    };
    let broker = args.data.running()?.ok_or_else(none)?;
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    let filter = TraceFilter {
        client_id: text(&args.client),
        user: text(&args.user),
        topic: text(&args.topic),
        payload_bytes: args.payload,
    };
    let mut printed = Ok(());
    let traced = broker.trace(&filter, args.time, |line| {
        printed = print(line, args.json);
        printed.is_ok()
    });
    printed.map_err(|error| Failure::output(&error))?;
    traced.map_err(|error| failure(&error))
}

fn print(line: &TraceLine, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        serde_json::to_writer(&mut out, line)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{line}")?;
    }
    out.flush()
}
