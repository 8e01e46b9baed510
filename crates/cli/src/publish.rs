//! `unbroken pub`: one message, several, or one for each line of standard input.

mod lines;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use unbroken_client::{
    Client, ConnectError, Event, Events, Message, PublishError, QoS, Receipts, Retries, Version,
};
use unbroken_mqtt_proto::PropertyBuf;

use crate::client_error::ClientError;
use crate::connect_args::{ConnectArgs, Connection, message, qos, usage};
use crate::exit::Failure;
use crate::properties::Place;
use crate::report::Report;
use crate::runtime;
use lines::Lines;

/// Publish messages, with Mosquitto's flags
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
#[command(override_usage = "unbroken pub [OPTIONS] <-m <TEXT>|-f <FILE>|-l|-s|-n>")]
#[command(after_help = "\
Examples:
  unbroken pub -t plant/boiler/temp -m 71.5            one message
  unbroken pub -t plant/boiler/temp -m 71.5 -r -q 1    acknowledged, and retained
  unbroken pub -t plant/boiler/temp -r -n              remove the retained message
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
    let template = message(&topic, b"", args.qos, args.retain)?;
    let template = template.with_properties(properties.take(Place::Publish).as_properties());
    let payload = args.source.payload()?;
    let report = Report::new(args.connect.quiet);
    let goodbye = properties.take(Place::Disconnect);
    let publish = async {
        let client = options.client(Retries::Never).start();
        let publisher = Publisher {
            events: client.events(),
            client,
            version: options.version,
            report,
        };
        publisher.run(args, payload, &template, &goodbye).await
    };
    let published = runtime::block_on(publish).unwrap_or_else(|error| Err(ClientError::Io(error)));
    published.map_err(|error| report.failure(&error))
}

struct Publisher {
    client: Client,
    events: Events,
    version: Version,
    report: Report,
}

impl Publisher {
    /// Publishes everything, or what there is until the user ends it.
    async fn run(
        mut self,
        args: &Args,
        payload: Option<Vec<u8>>,
        template: &Message,
        goodbye: &PropertyBuf,
    ) -> Result<(), ClientError> {
        let connected = self.client.connected().await;
        connected.map_err(|why| ClientError::connection(why, self.version))?;
        let interrupted = runtime::interrupted();
        let publishing = async {
            match payload {
                Some(payload) => self.repeat(&template.with_payload(payload), args).await,
                None => self.lines(template).await,
            }
        };
        tokio::select! {
            published = publishing => published?,
            () = interrupted => {}
        }
        let left = self.client.disconnect_with(goodbye.as_properties()).await;
        left.map_err(|why| ClientError::connection(why, self.version))
    }

    async fn repeat(&mut self, message: &Message, args: &Args) -> Result<(), ClientError> {
        for left in (0..args.repeat).rev() {
            let published = self.client.publish(message.clone()).await;
            self.note(published.err())?;
            if left > 0 && !args.repeat_delay.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(args.repeat_delay) => {}
                    why = ended(&mut self.events) => return Err(self.lost(why)),
                }
            }
        }
        Ok(())
    }

    async fn lines(&mut self, template: &Message) -> Result<(), ClientError> {
        let (mut input, mut lines) = (tokio::io::stdin(), Lines::default());
        let mut unfinished: VecDeque<Piece> = VecDeque::new();
        let mut unfinished_bytes = 0;
        while !lines.ended() || !unfinished.is_empty() {
            let has_room = unfinished_bytes < UNFINISHED_BYTES_MAX;
            tokio::select! {
                read = lines.read(&mut input), if has_room && !lines.ended() => {
                    let bytes = read.map_err(ClientError::Io)?;
                    let messages = lines.take(|line| template.with_payload(line));
                    let sent = self.client.send_all(messages).await;
                    let receipts = sent.map_err(|why| ClientError::publish(why, self.version))?;
                    unfinished.push_back(Piece { bytes, receipts });
                    unfinished_bytes += bytes;
                }
                failures = finished(unfinished.front_mut()) => {
                    unfinished_bytes -= unfinished.pop_front().map_or(0, |piece| piece.bytes);
                    for why in failures {
                        self.note(Some(why))?;
                    }
                }
                why = ended(&mut self.events) => return Err(self.lost(why)),
            }
        }
        Ok(())
    }

    /// Warns of a message that the broker refused; anything else ends the command.
    fn note(&self, why: Option<PublishError>) -> Result<(), ClientError> {
        match why {
            None => Ok(()),
            Some(PublishError::Refused {
                packet_id, reason, ..
            }) => {
                self.report
                    .warn(format_args!("Publish {packet_id} failed: {reason}"));
                Ok(())
            }
            Some(why) => Err(ClientError::publish(why, self.version)),
        }
    }

    fn lost(&self, why: ConnectError) -> ClientError {
        ClientError::connection(why, self.version)
    }
}

/// Why the client has ended.
async fn ended(events: &mut Events) -> ConnectError {
    while let Some(event) = events.next().await {
        if let Event::Ended { why } = event {
            return why;
        }
    }
    ConnectError::Ended
}

/// A piece of standard input whose messages are sent.
struct Piece {
    bytes: usize,
    receipts: Receipts,
}

/// Never, if there is no piece.
async fn finished(piece: Option<&mut Piece>) -> Vec<PublishError> {
    match piece {
        Some(piece) => piece.receipts.finished().await,
        None => std::future::pending().await,
    }
}

/// Standard input whose messages are not acknowledged, before no more is read.
const UNFINISHED_BYTES_MAX: usize = 128 * 1024;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .map_err(|_| "it is a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| "it is a positive number of seconds".to_owned())
}
