//! `unbroken pub`: one message, several, or one for each line of standard input.

mod lines;

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{PropertyBuf, QoS, ReasonCode};

use crate::client::{Client, ClientError, Event, Message, Outside};
use crate::connect_args::{ConnectArgs, Connection, check_topic, qos, usage};
use crate::exit::Failure;
use crate::properties::Place;
use crate::report::Report;
use crate::signals;
use lines::Lines;

/// Publish messages, with Mosquitto's flags
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
#[command(override_usage = "unbroken pub [OPTIONS] <-m <TEXT>|-f <FILE>|-l|-s|-n>")]
#[command(after_help = "\
Examples:
  unbroken pub -t plant/boiler/temp -m 71.5            one message
  unbroken pub -t plant/boiler/temp -m 71.5 -r -q 1    acknowledged, and kept for later subscribers
  unbroken pub -t plant/boiler/temp -r -n              forget what was kept
  unbroken pub -t firmware -f image.bin                a file as a message
  sensor | unbroken pub -t plant/log -l                each line a message
  unbroken pub -L mqtt://alice:secret@host/plant/a -m on
  unbroken pub -t job -m go -D publish response-topic job/done -D publish user-property by alice

Exit codes, as Mosquitto's: 0 all sent, and acknowledged above QoS 0; 1 wrong usage or no
connection; 7 the connection was lost; the CONNACK code if the broker refuses; the reason code
if it ends the connection.")]
pub(crate) struct Args {
    /// Topic to publish to
    #[arg(short, long, allow_hyphen_values = true)]
    topic: Option<String>,
    #[command(flatten)]
    source: Source,
    /// Quality of service: 0, 1 or 2
    #[arg(short, long, default_value = "0", value_parser = qos)]
    qos: QoS,
    /// The broker keeps the message for later subscribers
    #[arg(short, long)]
    retain: bool,
    /// Publish the message this often
    #[arg(
        long,
        value_name = "TIMES",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with = "stdin_line"
    )]
    repeat: u64,
    /// Seconds from one repetition's delivery to the next
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    repeat_delay: Duration,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Where payloads come from: one of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// The message
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    /// The content of a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Each line of standard input
    #[arg(short = 'l', long)]
    stdin_line: bool,
    /// The whole of standard input
    #[arg(short = 's', long)]
    stdin_file: bool,
    /// An empty message
    #[arg(short, long)]
    null_message: bool,
}

impl Source {
    /// The one payload; `None`: there is one for each line.
    fn payload(&self) -> Result<Option<Vec<u8>>, Failure> {
        let unreadable =
            |what: String| move |error: io::Error| usage(format!("cannot read {what}: {error}"));
        if let Some(path) = &self.file {
            return fs::read(path)
                .map(Some)
                .map_err(unreadable(path.display().to_string()));
        }
        if self.stdin_file {
            let mut payload = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut payload);
            let length = read.map_err(unreadable("standard input".to_owned()))?;
            if length == 0 {
                // As in Mosquitto's: whatever was to write has failed, most likely, and an empty
                // retained message would delete the one that is kept.
                return Err(usage(
                    "standard input is empty; an empty message is published with -n",
                ));
            }
            return Ok(Some(payload));
        }
        match &self.message {
            Some(text) => Ok(Some(text.clone().into_bytes())),
            None => Ok(self.null_message.then(Vec::new)),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Connection {
        options,
        topic,
        mut properties,
    } = args.connect.resolve()?;
    let topic = args.topic.clone().or(topic);
    let topic = topic.ok_or_else(|| usage("a message needs a topic: add -t TOPIC"))?;
    check_topic(&topic)?;
    let payload = args.source.payload()?;
    let report = Report::new(args.connect.quiet);
    let template = Message {
        topic,
        payload: Vec::new(),
        qos: args.qos,
        retain: args.retain,
        properties: properties.take(Place::Publish),
    };
    let goodbye = properties.take(Place::Disconnect);
    let publish = || -> Result<(), ClientError> {
        let client = Client::connect(options)?;
        signals::watch(&client).map_err(ClientError::Io)?;
        let publisher = Publisher {
            client,
            report,
            interrupted: false,
        };
        match payload {
            Some(payload) => publisher.repeat(
                &Message {
                    payload,
                    ..template
                },
                args,
                &goodbye,
            ),
            None => publisher.lines(&template, &goodbye),
        }
    };
    publish().map_err(|error| report.failure(&error))
}

struct Publisher {
    client: Client,
    report: Report,
    interrupted: bool,
}

impl Publisher {
    fn repeat(
        mut self,
        message: &Message,
        args: &Args,
        goodbye: &PropertyBuf,
    ) -> Result<(), ClientError> {
        for left in (0..args.repeat).rev() {
            self.client.publish(message.clone())?;
            self.until(None, |client| client.unfinished() == 0)?;
            if left > 0 && !args.repeat_delay.is_zero() {
                self.until(Some(Instant::now() + args.repeat_delay), |_| false)?;
            }
            if self.interrupted {
                break;
            }
        }
        self.client
            .disconnect(ReasonCode::Success, goodbye.as_properties())
    }

    fn lines(mut self, template: &Message, goodbye: &PropertyBuf) -> Result<(), ClientError> {
        let mut lines = Lines::start(self.client.outside()).map_err(ClientError::Io)?;
        loop {
            while let Some(line) = lines.next_line() {
                self.client.publish(Message {
                    payload: line,
                    ..template.clone()
                })?;
                // Memory is bounded by the window, not by the length of the input.
                self.until(None, Client::window_open)?;
            }
            if self.interrupted || lines.ended() {
                break;
            }
            lines.ask();
            match self.client.next_event(None)? {
                Event::Outside(Outside::Input(bytes)) => lines.push(&bytes),
                Event::Outside(Outside::EndOfInput(ended)) => {
                    ended.map_err(ClientError::Io)?;
                    lines.end();
                }
                event => self.note(&event),
            }
        }
        self.until(None, |client| client.unfinished() == 0)?;
        self.client
            .disconnect(ReasonCode::Success, goodbye.as_properties())
    }

    /// Lets the client work until `done`, a deadline, or an interruption.
    fn until(
        &mut self,
        deadline: Option<Instant>,
        done: impl Fn(&Client) -> bool,
    ) -> Result<(), ClientError> {
        while !self.interrupted && !done(&self.client) {
            match self.client.next_event(deadline)? {
                Event::Deadline => return Ok(()),
                event => self.note(&event),
            }
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Published { id, reason } if reason.is_error() => {
                self.report
                    .warn(format_args!("Publish {id} failed: {reason}"));
            }
            Event::Outside(Outside::Interrupted) => self.interrupted = true,
            _ => {}
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .map_err(|_| "it is a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| "it is a positive number of seconds".to_owned())
}
