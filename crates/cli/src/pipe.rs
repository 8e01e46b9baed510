//! `unbroken pipe`: a stage of a line from the shell.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{ExitCode, Stdio};

use tokio::process::Command;
use unbroken_client::SubscribeError;
use unbroken_demo::News;
use unbroken_demo::pipe::{Ends, Stage, StageError};

use crate::broker_args::BrokerArgs;
use crate::exit::{self, Failure};
use crate::runtime;

/// Run a stage of a line: stamp what goes out, check what comes in, and have it repaired
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tail -f sensors.csv | unbroken pipe --to plant/raw          a producer: each line, stamped
  unbroken pipe --from plant/raw --to plant/clean             a processor that changes nothing
  unbroken pipe --from plant/raw --to plant/warm -- grep -u . a command as the transform
  unbroken pipe --from plant/clean > readings.csv             a consumer: each line, checked

The command is started once. It is given each message as a line and answers each with one line; an
empty line drops the message, which is said in a drop record, so that nobody takes it for lost. A
message of several lines cannot go through a command and is dropped as failed. What is lost, altered
or duplicated is named on standard error, and asked for again where it is missing. Each start begins
a new lane.

Exit codes: 0 the input ended, or asked to stop; 2 wrong usage; 69 the broker cannot be reached or
refused something; 74 the command, or input or output, failed.")]
pub(crate) struct Args {
    /// Topics to take messages from [default: lines of standard input]
    #[arg(long, value_name = "FILTER", required_unless_present = "to")]
    from: Option<String>,
    /// Topic to publish on [default: lines on standard output]
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
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
    let ran = runtime::block_on(async {
        // It ends with this: the command is killed when its handle is dropped.
        let (ends, _transform) = ends(args)?;
        let stage = Stage {
            options: args.broker.options(),
            prefix: args.broker.prefix().to_owned(),
            from: args.from.clone(),
            to: args.to.clone(),
            lane: unbroken_demo::random_lane(),
        };
        tokio::select! {
            ran = unbroken_demo::pipe::run(stage, ends, |news| tell(news, args.json)) => ran,
            () = runtime::interrupted() => Ok(()),
        }
    });
    ran.unwrap_or_else(|error| Err(StageError::Transform(error)))
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| match &error {
            StageError::Transform(io) if io.kind() == io::ErrorKind::BrokenPipe => {
                Failure::silent(if args.command.is_empty() { 0 } else { exit::IO })
            }
            StageError::Transform(_) | StageError::Ended => Failure::new(exit::IO, error),
            StageError::Stamp(_) | StageError::Subscribe(SubscribeError::Filter { .. }) => {
                Failure::new(exit::USAGE, error)
            }
            _ => Failure::new(exit::UNAVAILABLE, error),
        })
}

/// The stage's ends, and the command between them.
fn ends(args: &Args) -> Result<(Ends, Option<tokio::process::Child>), StageError> {
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
        .spawn()?;
    let (inputs, outputs) = (child.stdin.take(), child.stdout.take());
    let ends = Ends {
        inputs: inputs.map(|inputs| Box::new(inputs) as _),
        outputs: outputs.map(|outputs| Box::new(outputs) as _),
    };
    Ok((ends, Some(child)))
}

fn tell(news: &News, json: bool) {
    let mut err = io::stderr();
    // With standard error closed nobody is left to be told.
    let _ = match news {
        news if json => writeln!(err, "{}", news.to_json()),
        News::Fault { fault, .. } => writeln!(err, "Warning: {fault}"),
        News::Repaired(place) => writeln!(
            err,
            "repaired: number {} (lane {})",
            place.number, place.lane
        ),
        News::Window { .. } => Ok(()),
    };
}
