//! `unbroken pipe`: a stage of a pipeline in the shell.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::timeout;
use unbroken_client::SubscribeError;
use unbroken_client::audit::{AuditError, OpenError, ProcessError, spooled_lanes};
use unbroken_demo::pipe::{Ends, Stage, StageError};
use unbroken_demo::{Behind, Kind, News};
use unbroken_merkle_log::LaneId;
use unbroken_merkle_log::ledger::{Presence, State};
use unbroken_mqtt_proto::Escaped;

use crate::broker_args::{BrokerArgs, lane, note};
use crate::exit::{self, Failure};
use crate::runtime;

/// Run a stage of a line: stamp what goes out, check what comes in, and have it repaired
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tail -f sensors.csv | unbroken pipe --to plant/raw --spool s   a producer: each line, stamped
  unbroken pipe --from plant/raw --to plant/clean --spool s      a processor that changes nothing
  unbroken pipe --from plant/raw --to plant/warm -- grep -u .    a command as the transform
  unbroken pipe --from plant/clean --state c > readings.csv      a consumer: each line, checked

The command is started once. It gets each message as a line and answers each with one line; an empty
line drops the message, which a drop record declares, so that it does not count as lost. A message
of several lines cannot pass through a command and is dropped as failed, and so is one whose answer
is longer than 16,646,144 bytes. Lines are bytes: only a line feed ends one, a carriage return
before it is part of it. The command must write each line at once: `sed -u`, `grep --line-buffered`,
`stdbuf -oL tr a-z A-Z`. When it ends, so does the stage; with --spool, unanswered messages are
delivered again at the next start.
Lost, altered, forged and duplicated messages are reported on standard error, and missing ones
requested again; messages dropped by the broker or a processor are reported with the reason. This
does not change the exit code, which describes the end of the stage: to judge a pipeline use `audit`
or the output of --json.

With --spool an interrupted or killed stage continues: it sends unacknowledged messages again, and
its numbers continue. With --state a consumer does. The broker stores messages for either while it
is offline, for a week or as set by --keep. A consumer that is killed (kill -9, a power cut) may
print the lines of its last 0.1 seconds again at the next start: each line is printed at least once.
After SIGINT, SIGTERM or SIGHUP it prints none again. Without these options each start begins from
nothing, and the session at the broker ends with the stage, or 5 minutes after one that is killed
(SIGKILL, SIGQUIT); so does a producer's in any case.
A stage with an output connects as unbroken-pipe-LANE, so that the broker recognizes the owner of
the lane after a restart. Two stages with one lane, or with copies of one spool, cannot both be
connected: the one that is disconnected reports it and ends.

Exit codes: 0 the input ended, or a signal; 2 wrong usage; 66 the key cannot be read; 69 the broker
cannot be reached or refused something, or another client connected with the client id; 74
the command, the spool, the state, or input or output, failed.")]
pub(crate) struct Args {
    /// Topics to take messages from [default: lines of standard input]
    #[arg(long, value_name = "FILTER", required_unless_present = "to")]
    from: Option<String>,
    /// Topic to publish on [default: lines on standard output]
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    /// Remember in this directory what is sent, so that a restart continues it
    #[arg(long, value_name = "DIRECTORY", requires = "to")]
    spool: Option<PathBuf>,
    /// Remember in this file what came, so that a restart goes on from there
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    state: Option<PathBuf>,
    /// Lane of what is sent, 16 hexadecimal digits [default: the spool's, or a random one]
    #[arg(long, value_name = "LANE", value_parser = lane, requires = "to")]
    lane: Option<LaneId>,
    /// Its producers begin after it: miss everything from their number 0 on
    #[arg(long, requires = "from")]
    from_start: bool,
    /// It takes some of its producers' topics only: miss nothing, and prove nothing. Members of a
    /// shared group ($share/…) do so by themselves
    #[arg(long, requires = "from", conflicts_with = "from_start")]
    part: bool,
    /// A lane that is to come, 16 hexadecimal digits; may be repeated: it is missed though nothing
    /// of it comes, and named when its producer is not heard of for 20 seconds
    #[arg(long, value_name = "LANE", value_parser = lane, requires = "from")]
    expect: Vec<LaneId>,
    /// With --spool or --state: seconds for which the broker keeps what comes for an absent stage
    #[arg(long, value_name = "SECONDS", default_value_t = 7 * 24 * 60 * 60)]
    keep: u32,
    /// Say what is found as JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerArgs,
    /// The transform
    #[arg(last = true, value_name = "COMMAND", requires_all = ["from", "to"])]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let stage = Stage {
        options: (args.broker.options()).map_err(|error| Failure::new(exit::USAGE, error))?,
        prefix: args.broker.prefix().to_owned(),
        hasher: args.broker.hasher()?,
        from: args.from.clone(),
        to: args.to.clone(),
        from_start: args.from_start,
        part: args.part,
        expect: args.expect.clone(),
        lane: lane_of(args)?,
        spool: args.spool.clone(),
        state: args.state.clone(),
        keep_s: args.keep,
    };
    if args.to.is_some() && args.spool.is_none() {
        let text = "without --spool a restart begins a new epoch, and messages after the last \
                    checkpoint before it stay unproven";
        note(text, args.json);
    }
    args.broker.note_missing_key(args.json);
    let mut teller = Teller::new(args.json);
    let ran = runtime::block_on(async {
        // It ends with this: the command is killed when its handle is dropped.
        let (ends, mut transform) = ends(args)?;
        let tell = |news: &News| teller.tell(news);
        let ran = unbroken_demo::pipe::run(stage, ends, tell, runtime::interrupted()).await;
        match (ran, &mut transform) {
            (Ok(()), _) => Ok(()),
            (Err(error), Some(transform)) if is_end_of_command(&error) => {
                Err(ended(args, transform).await)
            }
            (Err(error), _) => Err(failure(args, &error)),
        }
    });
    let ran = ran.map_err(|error| failure(args, &StageError::Transform(error)))?;
    ran.map(|()| ExitCode::SUCCESS)
}

/// Whether a stage with a command ended because the command did.
fn is_end_of_command(error: &StageError) -> bool {
    match error {
        StageError::Ended => true,
        StageError::Transform(io) => io.kind() == io::ErrorKind::BrokenPipe,
        _ => false,
    }
}

/// What is said of a command that has ended with messages still to come. It may have closed its
/// output only, and is then ended here.
async fn ended(args: &Args, transform: &mut Child) -> Failure {
    let command = command_of(args);
    let how = match timeout(ENDS_WITHIN, transform.wait()).await {
        Ok(Ok(status)) => format!("the command `{command}` has ended: {status}"),
        _ => format!("the command `{command}` has closed its output"),
    };
    let what_now = if args.spool.is_some() {
        "unanswered messages are stored for another try, with the same --spool"
    } else {
        "without --spool unanswered messages are not stored for another try"
    };
    Failure::new(exit::IO, format!("{how}; {what_now}"))
}

fn command_of(args: &Args) -> String {
    let words = args.command.iter().map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

/// How long a command that has closed its output may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A spool is of one lane, unless the user says which.
fn lane_of(args: &Args) -> Result<LaneId, Failure> {
    let spooled = match (&args.lane, &args.spool) {
        (Some(lane), _) => return Ok(*lane),
        (None, None) => Vec::new(),
        (None, Some(directory)) => {
            spooled_lanes(directory).map_err(|error| Failure::new(exit::IO, error))?
        }
    };
    match spooled[..] {
        [] => Ok(unbroken_demo::random_lane()),
        [lane] => Ok(lane),
        [..] => {
            let lanes: Vec<String> = spooled.iter().map(LaneId::to_string).collect();
            let text = format!(
                "the spool has {} lanes: choose one with --lane {}",
                lanes.len(),
                lanes.join(" or --lane ")
            );
            Err(Failure::new(exit::USAGE, text))
        }
    }
}

fn failure(args: &Args, error: &StageError) -> Failure {
    use StageError::{Ended, Open, Process, Publish, State, Subscribe, Topic, Transform};
    let code = match error {
        Transform(io) if io.kind() == io::ErrorKind::BrokenPipe && args.command.is_empty() => {
            return Failure::silent(0);
        }
        Transform(_)
        | Ended
        | State(_)
        | Open(OpenError::Spool(_) | OpenError::State(_))
        | Publish(AuditError::Spool(_))
        | Process(ProcessError::Publish(AuditError::Spool(_))) => exit::IO,
        Topic(..)
        | Subscribe(SubscribeError::Filter { .. })
        | Open(OpenError::Topic { .. } | OpenError::Subscribe(SubscribeError::Filter { .. })) => {
            exit::USAGE
        }
        _ => exit::UNAVAILABLE,
    };
    Failure::new(code, error)
}

/// The stage's ends, and the command between them.
fn ends(args: &Args) -> Result<(Ends, Option<Child>), Failure> {
    let Some((program, arguments)) = args.command.split_first() else {
        let ends = Ends {
            inputs: match args.to {
                None => Some(Box::new(tokio::io::stdout())),
                Some(_) => None,
            },
            outputs: match args.from {
                None => Some(Box::new(tokio::io::stdin())),
                Some(_) => None,
            },
        };
        return Ok((ends, None));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            let program = program.to_string_lossy();
            let text = format!("cannot start the command `{program}`: {error}");
            Failure::new(exit::IO, text)
        })?;
    let (inputs, outputs) = (child.stdin.take(), child.stdout.take());
    let ends = Ends {
        inputs: inputs.map(|inputs| Box::new(inputs) as _),
        outputs: outputs.map(|outputs| Box::new(outputs) as _),
    };
    Ok((ends, Some(child)))
}

/// Neighbouring numbers, in words.
fn numbers(first: u64, end: u64) -> String {
    match end.saturating_sub(1) {
        last if last > first => format!("numbers {first} to {last}, {} messages,", end - first),
        _ => format!("number {first}"),
    }
}

/// What did not come as its producer issued it, in words.
fn incomplete(news: &News) -> String {
    match news {
        News::ManyFaults {
            kind: Kind::Forged,
            first,
            end,
            ..
        } => format!(
            "at least one of the {} is forged, and which is not known: all are asked for again, and \
             passed on again (lane {})",
            numbers(first.number, *end),
            first.lane
        ),
        News::ManyFaults {
            kind,
            first,
            end,
            behind,
            ..
        } => format!(
            "{} {} (lane {}){}",
            numbers(first.number, *end),
            kind.participle(),
            first.lane,
            words(behind)
        ),
        News::Undelivered {
            first,
            end,
            reason,
            by_broker,
        } => format!(
            "{} not delivered: {reason}, as a drop record {} says (lane {})",
            numbers(first.number, *end),
            if *by_broker {
                "of the broker for this stage"
            } else {
                "of a processor"
            },
            first.lane
        ),
        News::RootDiffers { first, end, .. } => format!(
            "{} came, and one of them or more is not the producer's, though it fits its \
                 stamp: the root of the window differs; the producer is asked which (lane {})",
            numbers(first.number, *end),
            first.lane
        ),
        News::Conflict(place) => format!(
            "number {} came a second time with another content, and both fit their \
                 stamps: the first was passed on, the second was not, and which of the two is \
                 real is unknown (lane {})",
            place.number, place.lane
        ),
        News::Decided {
            place,
            second_is_real,
        } => format!(
            "number {}: {} (lane {})",
            place.number,
            if *second_is_real {
                "the message that was passed on is injected; the real one came second, was not \
                 passed on, and is asked for again"
            } else {
                "the message that was passed on is real; the second is injected"
            },
            place.lane
        ),
        News::Away(absence) => format!(
            "{absence}, and the broker stored nothing for it: messages published meanwhile do \
             not come, unless their producer sends them again"
        ),
        _ => String::new(),
    }
}

/// What else is known of a loss.
fn words(behind: &Behind) -> String {
    let forged = "; the lane has no key, so the size that states it may be forged";
    let forged = if behind.may_be_forged { forged } else { "" };
    match &behind.absence {
        Some(absence) => format!("; {absence}"),
        None => forged.to_owned(),
    }
}

/// Says on standard error what the stage finds.
struct Teller {
    json: bool,
    /// Messages that were left alone so far.
    left_alone: u64,
}

impl Teller {
    fn new(json: bool) -> Self {
        Self {
            json,
            left_alone: 0,
        }
    }

    fn tell(&mut self, news: &News) {
        if let News::LeftAlone { .. } = news {
            self.left_alone += 1;
            // All of a topic may be like that: the first is told, and from then on how many.
            if !self.left_alone.is_power_of_two() {
                return;
            }
        }
        let mut err = io::stderr();
        // With standard error closed nobody is left to be told.
        let _ = match news {
            news if self.json => writeln!(err, "{}", news.to_json()),
            News::ManyFaults { .. }
            | News::Undelivered { .. }
            | News::RootDiffers { .. }
            | News::Conflict(_)
            | News::Decided { .. }
            | News::Away(_) => writeln!(err, "Warning: {}", incomplete(news)),
            News::Fault { fault, .. } => writeln!(err, "Warning: {fault}"),
            News::Overtaken { place, by, .. } => writeln!(
                err,
                "Warning: number {} came after {by} with higher numbers (lane {})",
                place.number, place.lane
            ),
            News::Doubt { lane, doubt, .. } => writeln!(err, "Note: {doubt} (lane {lane})"),
            News::Expected { lane, presence } => match presence {
                Presence::Absent(_) => writeln!(err, "Warning: expected lane {lane}: {presence}"),
                Presence::Come(_) => writeln!(err, "Note: expected lane {lane}: {presence}"),
                Presence::Unannounced(_) => writeln!(err, "Note: lane {lane}: {presence}"),
            },
            News::Contradiction {
                lane,
                contradiction,
                ..
            } => writeln!(err, "Warning: {contradiction} (lane {lane})"),
            News::Forgotten { lane, numbers } => writeln!(
                err,
                "Note: numbers {} to {} were lost long ago and are no longer remembered: a later \
                 copy is reported as repeated (lane {lane})",
                numbers.start,
                numbers.end.saturating_sub(1)
            ),
            News::Repaired(place) => writeln!(
                err,
                "repaired: number {} (lane {})",
                place.number, place.lane
            ),
            News::Window {
                lane,
                numbers: of,
                state: State::Faulty,
            } => writeln!(
                err,
                "Warning: {} faulty: not all of them came as their producer issued them (lane {lane})",
                numbers(of.start, of.end)
            ),
            News::Listening | News::Window { .. } => Ok(()),
            News::OtherKey { why, .. } | News::NoRoom { why, .. } => {
                writeln!(err, "Warning: {why}")
            }
            News::Dropped { topic, why } => {
                let topic = Escaped::new(topic);
                writeln!(err, "Warning: not sent to {topic}: {why}")
            }
            News::LeftAlone { topic, why } => writeln!(
                err,
                "Warning: left alone on {}: {why}; {} so far",
                Escaped::new(topic),
                self.left_alone
            ),
        };
    }
}
