//! `unbroken audit`: what can be said of the lanes that pass through a broker, by somebody who only
//! listens; proofs to take home; and trees of other tools.

mod away;
mod broker_side;
mod declared;
mod listen;
mod neighbours;
mod news;
mod observer;
mod proof_file;
mod strays;
mod told;
mod topics;
mod tree;
mod unjudged;
mod wall;
mod watched;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use unbroken_client::SubscribeError;
use unbroken_client::audit::OpenError;
use unbroken_merkle_log::{Hash, LaneId};

use self::broker_side::More;
use self::listen::{Heard, ListenError, Listening, Wanted};
use self::observer::Observer;
use self::proof_file::ProofFile;
use crate::broker_args::{BrokerArgs, KeyArgs, lane};
use crate::exit::{self, Failure};

/// Check the lanes that pass through any broker, and prove single messages
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken audit status                                  a line for each lane, after three seconds
  unbroken audit watch -t 'plant/#'                      each fault and each window as it is known
  unbroken audit explain -t plant/clean -W 10            each faulty message with its neighbours
  unbroken audit export -t plant/clean > reading.json    the proof of one message
  unbroken audit verify reading.json --root 5f0c…        check it, without a broker
  unbroken audit tree compare sent.tree received.tree    the first message in which two ends differ

It works with any broker that forwards MQTT 5.0's user properties. It subscribes and reports faults;
repairs are requested by the consumers of the messages. Only `export` sends requests to producers,
for missing neighbours of the message. A lane that had begun before is verified from its next window
of 1,024 messages on; the numbers before are shown as OUT OF SCOPE. DROPPED counts messages that
were declared as not delivered, by the broker / by processors. The verdict of the broker about its
own lanes is shown too, if it publishes one ($SYS/audit/ and $audit/).

A message that another client publishes in a lane (an intrusion) is printed, and is no fault of that
lane: the broker keeps it out of the verdict and names the client. Where it reaches this listener
and contradicts the lane, that is a fault.

Exit codes: 0 no fault, or the proof holds; 1 a fault, which is printed, or the proof does not hold;
2 wrong usage; 3 not everything could be verified, and each reason is printed: no stamped message
came, or none of a window that began meanwhile, whatever the broker's own verdict; messages may be
missing, or the last ones of a silent producer are not proven; a window could not be proven; a lane
appeared after 20 seconds and not with its number 0; the checkpoints of a lane were 20 seconds old
when they came, as if replayed; messages have another algorithm than the given one (with another key
they count as injected: 1); this listener lost its connection; a limit was reached; 66 a file cannot
be read; 69 the broker cannot be reached; 74 output failed.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show one line for each lane: how many windows are proven, faulty, unproven; and of our
    /// broker one for each session: how far its deliveries have come
    Status(Summing),
    /// Show each fault and each window as soon as it is known, until interrupted
    Watch(Watching),
    /// Show for each lane its first bad window, and each fault with its neighbours and reason
    Explain(Summing),
    /// Write the proof of one message, as JSON
    Export(Exporting),
    /// Check a proof against a root that was saved, without a broker
    Verify(Verifying),
    /// Build, show, compare and convert serialised hash trees: the heritage's, and THEX's
    Tree(tree::Args),
}

#[derive(Debug, clap::Args)]
struct Summing {
    #[command(flatten)]
    source: Source,
    /// Seconds to listen
    #[arg(short = 'W', value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Watching {
    #[command(flatten)]
    source: Source,
    /// Seconds to listen [default: until interrupted]
    #[arg(short = 'W', value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Show the broker's receipt of each message, too: how many acknowledged it, and to how many
    /// it was handed to the network at QoS 0
    #[arg(long)]
    receipts: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Exporting {
    #[command(flatten)]
    source: Source,
    /// The message's lane [default: the first that is proven]
    #[arg(long, value_name = "LANE", value_parser = lane)]
    lane: Option<LaneId>,
    /// The message's number [default: the first that is proven]
    #[arg(long, value_name = "NUMBER")]
    number: Option<u64>,
    /// Seconds to wait for it
    #[arg(short = 'W', value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
}

#[derive(Debug, clap::Args)]
struct Verifying {
    /// The proof, as `export` wrote it
    file: PathBuf,
    /// The root of its window or its lane that you saved, as `watch` showed it
    #[arg(long, value_name = "HEX", value_parser = root)]
    root: Option<Hash>,
    #[command(flatten)]
    key: KeyArgs,
}

/// What to listen to.
#[derive(Debug, clap::Args)]
struct Source {
    /// Topics to listen to; may be repeated
    #[arg(short, long = "topic", value_name = "FILTER", default_value = "#")]
    topics: Vec<String>,
    /// These are some of the topics that the lanes go to: name no loss among the others. Nothing
    /// can be proven of a part
    #[arg(long)]
    part: bool,
    /// A lane that is to come, 16 hexadecimal digits; may be repeated: it is missed though nothing
    /// of it comes, and one that is not heard of at all is a fault. An idle producer speaks
    /// every 10 s
    #[arg(long, value_name = "LANE", value_parser = lane)]
    expect: Vec<LaneId>,
    /// The topics are all that any lane goes to: miss each lane that a producer says it has
    #[arg(long, conflicts_with = "part")]
    all_lanes: bool,
    /// The broker gives clients mount points: compare a message with the topic that its publisher
    /// knows, if one of the two ends with the other. What stands in front is the broker's word
    #[arg(long)]
    mounts: bool,
    #[command(flatten)]
    broker: BrokerArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut out = io::LineWriter::new(io::stdout());
    match &args.command {
        Command::Status(Summing { source, json, .. })
        | Command::Explain(Summing { source, json, .. })
        | Command::Watch(Watching { source, json, .. }) => source.broker.note_missing_key(*json),
        Command::Export(args) => args.source.broker.note_missing_key(false),
        Command::Verify(_) | Command::Tree(_) => {}
    }
    match &args.command {
        Command::Status(args) => {
            let wanted = Wanted {
                more: Some(More::Accounts),
                sums: true,
                ..Wanted::default()
            };
            let observer = hear(&args.source, Some(args.seconds), wanted, |_| Heard::More)?;
            print(told::status(&mut out, &observer, args.json))?;
            Ok(judgement(&observer))
        }
        Command::Explain(args) => {
            let wanted = Wanted {
                sums: true,
                ..Wanted::default()
            };
            let observer = hear(&args.source, Some(args.seconds), wanted, |_| Heard::More)?;
            print(told::explanation(&mut out, &observer, args.json))?;
            Ok(judgement(&observer))
        }
        Command::Watch(args) => {
            let mut written = Ok(());
            let wanted = Wanted {
                more: args.receipts.then_some(More::Receipts),
                ..Wanted::default()
            };
            let observer = hear(&args.source, args.seconds, wanted, |observer| {
                written = told::all_news(&mut out, observer, args.json);
                if written.is_ok() {
                    Heard::More
                } else {
                    Heard::Enough
                }
            })?;
            print(written)?;
            print(told::why_unjudged(&mut out, &observer, args.json))?;
            Ok(judgement(&observer))
        }
        Command::Export(args) => export(args, &mut out),
        Command::Verify(args) => verify(args, &mut out),
        Command::Tree(args) => tree::run(args),
    }
}

fn export(args: &Exporting, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let mut proof = None;
    let wanted = Wanted {
        asks: true,
        ..Wanted::default()
    };
    let observer = hear(&args.source, Some(args.seconds), wanted, |observer| {
        proof = observer.proof(args.lane, args.number);
        if proof.is_some() {
            Heard::Enough
        } else {
            Heard::More
        }
    })?;
    let Some(proof) = proof else {
        let seconds = args.seconds;
        let why = observer.why_no_proof(args.lane, args.number);
        return Err(Failure::new(
            1,
            format!("no proof within {seconds} s: {why}"),
        ));
    };
    let text = serde_json::to_string_pretty(&proof)
        .map_err(|error| Failure::new(exit::INTERNAL, error))?;
    print(writeln!(out, "{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn verify(args: &Verifying, out: &mut impl Write) -> Result<ExitCode, Failure> {
    let path = args.file.display();
    let text = fs::read_to_string(&args.file)
        .map_err(|error| Failure::new(exit::NO_INPUT, format!("cannot read {path}: {error}")))?;
    let proof: ProofFile = serde_json::from_str(&text).map_err(|error| {
        Failure::new(
            1,
            format!("{path} is no proof file, as `unbroken audit export` writes them: {error}"),
        )
    })?;
    let key = args.key.hasher()?;
    let proven = proof
        .verify(args.root, Some(&key))
        .map_err(|error| Failure::new(1, format!("{path} proves nothing: {error}")))?;
    let against = match args.root {
        Some(root) if root == proven.checkpoint.lane_root => {
            "and the root of the lane is the one that you saved"
        }
        Some(_) => "and the root of the window is the one that you saved",
        None => {
            "which only the file itself vouches for: save the roots that `watch` shows, and give \
             one with --root"
        }
    };
    print(writeln!(out, "{proven},\n{against}"))?;
    Ok(ExitCode::SUCCESS)
}

fn hear(
    source: &Source,
    seconds: Option<u64>,
    wanted: Wanted,
    each: impl FnMut(&mut Observer) -> Heard,
) -> Result<Observer, Failure> {
    let listening = Listening {
        broker: &source.broker,
        hasher: source.broker.hasher()?,
        topics: &source.topics,
        part: source.part,
        expect: &source.expect,
        all_lanes: source.all_lanes,
        mounts: source.mounts,
        total: seconds.map(Duration::from_secs),
        wanted,
    };
    listening.listen(each).map_err(|error| {
        let code = match &error {
            ListenError::Flags(_)
            | ListenError::Subscribe(SubscribeError::Filter { .. })
            | ListenError::Open(OpenError::Topic { .. }) => exit::USAGE,
            _ => exit::UNAVAILABLE,
        };
        Failure::new(code, error)
    })
}

fn judgement(observer: &Observer) -> ExitCode {
    ExitCode::from(if observer.found_faults() {
        1
    } else if unjudged::reasons(observer).is_empty() {
        0
    } else {
        exit::UNJUDGED
    })
}

fn print(written: io::Result<()>) -> Result<(), Failure> {
    written.map_err(|error| Failure::output(&error))
}

fn root(text: &str) -> Result<Hash, String> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|its| its.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = digits.collect();
    let hash = bytes.and_then(|bytes| Hash::new(&bytes));
    hash.ok_or_else(|| "a root is 2 to 64 hexadecimal digits, as `watch` shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_and_a_root_are_read_as_they_are_shown() {
        let id = LaneId::new(0xAB).unwrap();
        assert_eq!(lane(&id.to_string()), Ok(id));
        for bad in ["", "0", "xyz", "00000000000000000ab"] {
            assert!(lane(bad).is_err() || bad.len() > 16, "{bad}");
        }
        let hash = Hash::new(&[0xAB; 16]).unwrap();
        assert_eq!(root(&hash.to_string()), Ok(hash));
        for bad in ["", "a", "zz", "ä"] {
            assert!(root(bad).is_err(), "{bad}");
        }
    }
}
