//! `unbroken sub`: messages as they come, on standard output.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgAction;
use jiff::Zoned;
use unbroken_client::{
    Acknowledged, Acknowledging, Answer, Client, ConnectError, Event, Events, Filter, PublishError,
    Receipt, Received, Retries, SubscribeError, Unclaimed,
};
use unbroken_mqtt_proto::{
    Escaped, PropertyBuf, QoS, ReasonCode, RetainHandling, TopicFilter, TopicName, Version,
};

use crate::client_error::ClientError;
use crate::connect_args::{ConnectArgs, Connection, Options, qos, usage};
use crate::exit::Failure;
use crate::format::Format;
use crate::json::{self, PayloadForm};
use crate::message::Message;
use crate::properties::Place;
use crate::report::Report;
use crate::runtime;

/// Subscribe and print what comes, with Mosquitto's flags
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
#[command(after_help = "\
Examples:
  unbroken sub -t 'plant/#' -v                      topic and payload, a line each
  unbroken sub -t plant/boiler/temp -C 1 -W 5       one message, or exit with 27 after 5 seconds
  unbroken sub -t 'plant/#' --json | jq .payload    one JSON object a line
  unbroken sub -t 'plant/#' -F '%I %t %p'           time, topic, payload
  unbroken sub -t 'plant/#' -c -i desk -q 1         a session that is persistent
  unbroken sub -t '$share/readers/plant/#'          shared with other members of `readers`
  unbroken sub -t '#' --remove-retained --retained-only -W 1

-F takes %t topic, %p payload, %x %X payload in hex, %l its length, %q QoS, %r retained, %m packet
id, %j JSON, %J JSON with a JSON payload, %I time (ISO 8601), %U Unix time; of 5.0 %A topic alias,
%C content type, %D correlation data, %E expiry, %F format, %P user properties, %R response topic,
%S subscription id; @X strftime's %X, @N nanoseconds; \\n \\t \\r \\0 \\a \\e \\v.
Widths as in printf: %-20t, %05l, %.10t; a width cuts a payload.
An empty payload is (null) after -v; without -v, or with -N, nothing is printed.

Exit codes, as Mosquitto's: 0 stopped by a signal; 1 wrong usage or no connection; 27 timed out
(-W); the CONNACK code if the broker refuses; the reason code if it ends the connection or refuses
every subscription. A lost connection is opened again.")]
pub(crate) struct Args {
    /// Topic or filter to subscribe to; may be repeated
    #[arg(short, long, value_name = "FILTER", allow_hyphen_values = true)]
    topic: Vec<String>,
    /// Topics not to print; may be repeated
    #[arg(short = 'T', long, value_name = "FILTER", allow_hyphen_values = true)]
    filter_out: Vec<String>,
    /// Filter to unsubscribe from, beside -t; may be repeated
    #[arg(short = 'U', long, value_name = "FILTER", allow_hyphen_values = true)]
    unsubscribe: Vec<String>,
    /// Quality of service to ask for: 0, 1 or 2
    #[arg(short, long, default_value = "0", value_parser = qos)]
    qos: QoS,
    /// End after this many messages
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many seconds, with 27
    #[arg(short = 'W', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// End as soon as every subscription is acknowledged
    #[arg(short = 'E')]
    exit_after_subscribe: bool,
    /// Do not print what the broker had kept
    #[arg(short = 'R', conflicts_with = "retained_only")]
    no_retained: bool,
    /// Print only what the broker had kept; end at the first fresh message
    #[arg(long)]
    retained_only: bool,
    /// Remove from the broker what it had kept and sends here
    #[arg(long)]
    remove_retained: bool,
    /// Keep the publisher's retain flag (5.0)
    #[arg(long)]
    retain_as_published: bool,
    /// When kept messages are sent (5.0): always, new or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = retain_handling)]
    retain_handling: RetainHandling,
    /// Nothing that this client published itself (5.0)
    #[arg(long)]
    no_local: bool,
    /// Print the topic before the payload
    #[arg(short, long, help_heading = "Output")]
    verbose: bool,
    /// Print like this; see below
    #[arg(short = 'F', value_name = "FORMAT", help_heading = "Output")]
    #[arg(allow_hyphen_values = true, value_parser = Format::parse)]
    format: Option<Format>,
    /// Print one JSON object for each message; a payload that is no text is in payload_base64
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "verbose"])]
    json: bool,
    /// Indent JSON
    #[arg(long, help_heading = "Output")]
    pretty: bool,
    /// No end of line after a message
    #[arg(short = 'N', help_heading = "Output", action = ArgAction::SetTrue)]
    no_newline: bool,
    /// Print only about this percentage of messages
    #[arg(long, value_name = "PERCENT", help_heading = "Output", value_parser = percentage)]
    random_filter: Option<f64>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Mosquitto's code for -W.
const TIMED_OUT: u8 = 27;

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Connection {
        options,
        topic,
        mut properties,
    } = args.connect.resolve()?;
    // With -U alone, too: as in Mosquitto's, it goes with a subscription.
    if args.topic.is_empty() && topic.is_none() {
        return Err(usage("there is nothing to subscribe to: add -t FILTER"));
    }
    let filters = args
        .topic
        .iter()
        .chain(&topic)
        .map(|text| args.filter(text));
    let filters: Vec<_> = filters.collect::<Result<_, _>>()?;
    let unsubscribe = args.unsubscribe.iter().map(|text| args.filter(text));
    let unsubscribe: Vec<_> = unsubscribe.collect::<Result<_, _>>()?;
    for filter in &args.filter_out {
        TopicFilter::parse(filter).map_err(|error| no_filter(filter, error))?;
    }
    if options.version != Version::V5
        && (args.retain_as_published
            || args.no_local
            || args.retain_handling != RetainHandling::SendAlways)
    {
        return Err(usage(
            "--retain-as-published, --retain-handling and --no-local need MQTT 5.0: add -V 5",
        ));
    }
    let report = Report::new(args.connect.quiet);
    let mut subscriber = Subscriber {
        args,
        filters,
        unsubscribe,
        report,
        version: options.version,
        subscribe_properties: properties.take(Place::Subscribe),
        unsubscribe_properties: properties.take(Place::Unsubscribe),
        out: io::BufWriter::new(io::stdout()),
        unacknowledged: Vec::new(),
        removals: VecDeque::new(),
        printed: 0,
    };
    let goodbye = properties.take(Place::Disconnect);
    let subscribed = runtime::block_on(subscriber.run(&options, &goodbye))
        .unwrap_or_else(|error| Err(Ended::Client(ClientError::Io(error))));
    match subscribed {
        Ok(code) => Ok(code),
        Err(Ended::Client(error)) => Err(report.failure(&error)),
        Err(Ended::Output(error)) => Err(Failure::output(&error)),
    }
}

impl Args {
    fn filter(&self, text: &str) -> Result<Filter, Failure> {
        let filter = Filter::new(text).map_err(|error| no_filter(text, error))?;
        let filter = filter.qos(self.qos).retained(self.retain_handling);
        let filter = if self.no_local {
            filter.no_local()
        } else {
            filter
        };
        Ok(if self.retain_as_published {
            filter.retain_as_published()
        } else {
            filter
        })
    }
}

fn no_filter(text: &str, error: impl std::fmt::Display) -> Failure {
    usage(format!("`{}` is not a filter: {error}", Escaped::new(text)))
}

struct Subscriber<'a> {
    args: &'a Args,
    filters: Vec<Filter>,
    unsubscribe: Vec<Filter>,
    report: Report,
    version: Version,
    subscribe_properties: PropertyBuf,
    unsubscribe_properties: PropertyBuf,
    out: io::BufWriter<io::Stdout>,
    /// Messages that `out` may still hold a part of.
    unacknowledged: Vec<Received>,
    /// Of --remove-retained.
    removals: VecDeque<Receipt>,
    printed: u64,
}

/// Why it ended, other than by being asked to.
enum Ended {
    Client(ClientError),
    Output(io::Error),
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// The broker's answers on one connection.
type Asking = Pin<Box<dyn Future<Output = Result<Answer, SubscribeError>>>>;

impl Subscriber<'_> {
    async fn run(&mut self, options: &Options, goodbye: &PropertyBuf) -> Result<ExitCode, Ended> {
        let options = options.client(Retries::AfterLoss);
        let (client, mut messages) = options.start_with_unclaimed(Acknowledging::ByHand);
        let mut events = client.events();
        let connected = client.connected().await;
        connected.map_err(|why| self.lost(why))?;
        let interrupted = runtime::interrupted();
        let deadline = self.args.timeout.map(Duration::from_secs);
        let code = tokio::select! {
            code = self.listen(&client, &mut messages, &mut events) => code?,
            () = interrupted => ExitCode::SUCCESS,
            () = pass(deadline) => {
                self.report.line("Timed out");
                ExitCode::from(TIMED_OUT)
            }
        };
        self.flush()?;
        if client.connection().is_some() {
            self.finish(&mut events).await?;
        }
        match client.disconnect_with(goodbye.as_properties()).await {
            // What was wanted is here; how the connection ends does not matter.
            Err(why) if !why.is_loss() => Err(self.lost(why).into()),
            _ => Ok(code),
        }
    }

    /// Prints messages until there is enough.
    async fn listen(
        &mut self,
        client: &Client,
        messages: &mut Unclaimed,
        events: &mut Events,
    ) -> Result<ExitCode, Ended> {
        let mut asking: Option<Asking> = None;
        loop {
            // Until the broker has answered, messages are taken one by one, so that the answer
            // keeps its place.
            while asking.is_none()
                && let Some(received) = messages.try_recv()
            {
                if let Some(code) = self.handle_message(client, received).await? {
                    return Ok(code);
                }
            }
            self.flush()?;
            let ended = tokio::select! {
                biased;
                answer = answered(&mut asking) => {
                    asking = None;
                    self.handle_answer(answer, client, messages).await?
                }
                event = events.next() => match event {
                    Some(Event::Connected { .. }) => {
                        asking = Some(self.ask(client));
                        None
                    }
                    Some(Event::Disconnected { why }) if why.is_loss() => {
                        let why = self.lost(why);
                        self.report.warn(format_args!("{why}; connecting again"));
                        None
                    }
                    Some(Event::Ended { why }) => return Err(self.lost(why).into()),
                    _ => None,
                },
                removed = answer_of(self.removals.front_mut()) => {
                    self.removals.pop_front();
                    self.check_removal(removed)?;
                    None
                }
                received = messages.recv() => self.handle_message(client, received).await?,
            };
            if let Some(code) = ended {
                return Ok(code);
            }
        }
    }

    /// Subscribes, as on every new connection.
    fn ask(&self, client: &Client) -> Asking {
        let client = client.clone();
        let (filters, properties) = (self.filters.clone(), self.subscribe_properties.clone());
        let (others, other_properties) = (
            self.unsubscribe.clone(),
            self.unsubscribe_properties.clone(),
        );
        Box::pin(async move {
            let subscribing = client.send_subscribe(filters, properties.as_properties());
            if others.is_empty() {
                return subscribing.await;
            }
            let unsubscribing = client.send_unsubscribe(others, other_properties.as_properties());
            let (subscribed, unsubscribed) = tokio::join!(subscribing, unsubscribing);
            Ok(Answer {
                unclaimed: unsubscribed?.unclaimed,
                ..subscribed?
            })
        })
    }

    async fn handle_answer(
        &mut self,
        answer: Result<Answer, SubscribeError>,
        client: &Client,
        messages: &mut Unclaimed,
    ) -> Result<Option<ExitCode>, Ended> {
        let Answer { reasons, unclaimed } = match answer {
            Ok(answer) => answer,
            // The next connection asks again.
            Err(SubscribeError::NotAnswered) => return Ok(None),
            Err(why) => return Err(ClientError::subscribe(why, self.version).into()),
        };
        for _ in 0..unclaimed {
            if let Some(received) = messages.try_recv()
                && let Some(code) = self.handle_message(client, received).await?
            {
                return Ok(Some(code));
            }
        }
        Ok(self.handle_reasons(&reasons))
    }

    /// Warns of each filter that was refused. With none left there is nothing to wait for.
    fn handle_reasons(&self, reasons: &[ReasonCode]) -> Option<ExitCode> {
        let pairs = self.filters.iter().zip(reasons);
        let refused: Vec<_> = pairs.filter(|(_, reason)| reason.is_error()).collect();
        for (filter, reason) in &refused {
            let filter = filter.text();
            self.report.warn(format_args!(
                "the broker refuses the subscription to {filter}: {reason}"
            ));
        }
        match refused.first() {
            Some((_, reason)) if refused.len() == self.filters.len() => {
                self.report.line("All subscription requests were denied.");
                Some(ExitCode::from(reason.code()))
            }
            _ => self.args.exit_after_subscribe.then_some(ExitCode::SUCCESS),
        }
    }

    async fn handle_message(
        &mut self,
        client: &Client,
        received: Result<Received, SubscribeError>,
    ) -> Result<Option<ExitCode>, Ended> {
        let received = received.map_err(|why| ClientError::subscribe(why, self.version))?;
        let message = Message::from(&received);
        let is_last = self.args.retained_only && !message.retain;
        if !is_last && !self.is_filtered_out(message.topic) {
            if self.args.remove_retained
                && message.retain
                && let Ok(removal) = unbroken_client::Message::new(message.topic, *b"")
            {
                let sent = client.send(removal.retained()).await;
                let receipt = sent.map_err(|why| ClientError::publish(why, self.version))?;
                self.removals.push_back(receipt);
            }
            let is_wanted = !(self.args.no_retained && message.retain)
                && self.args.random_filter.is_none_or(chosen);
            if is_wanted {
                self.print(&message)?;
                self.printed += 1;
            }
        }
        // Also if it is not printed. [MQTT-4.5.0-2, MQTT311-4.5.0-2]
        if received.qos() != QoS::AtMostOnce {
            self.unacknowledged.push(received);
        }
        let is_enough = is_last || self.args.count == Some(self.printed);
        Ok(is_enough.then_some(ExitCode::SUCCESS))
    }

    fn is_filtered_out(&self, topic: &str) -> bool {
        TopicName::parse(topic).is_ok_and(|topic| {
            let filters = self.args.filter_out.iter();
            let mut filters = filters.filter_map(|text| TopicFilter::parse(text).ok());
            filters.any(|filter| filter.matches(topic))
        })
    }

    fn print(&mut self, message: &Message<'_>) -> io::Result<()> {
        let args = self.args;
        let whole = match &args.format {
            Some(format) => format.print(&mut self.out, message, &Zoned::now(), args.pretty)?,
            None if args.json => json::print(
                &mut self.out,
                message,
                &Zoned::now(),
                PayloadForm::Lossless,
                args.pretty,
            )?,
            // As Mosquitto prints an empty payload.
            None if message.payload.is_empty() && (!args.verbose || args.no_newline) => {
                return Ok(());
            }
            None => {
                if args.verbose {
                    write!(self.out, "{} ", message.topic)?;
                }
                if message.payload.is_empty() {
                    self.out.write_all(b"(null)")?;
                }
                self.out.write_all(message.payload)?;
                true
            }
        };
        if !whole {
            self.report.line(format_args!(
                "Error: Message payload is not valid JSON on topic {}.",
                message.topic
            ));
        }
        if !args.no_newline {
            self.out.write_all(
                b"
",
            )?;
        }
        Ok(())
    }

    /// Writes what is printed, and acknowledges it.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        for received in self.unacknowledged.drain(..) {
            received.acknowledge();
        }
        Ok(())
    }

    /// Waits until the broker has removed what it is to remove.
    async fn finish(&mut self, events: &mut Events) -> Result<(), Ended> {
        while let Some(removal) = self.removals.front_mut() {
            tokio::select! {
                removed = removal.answer() => {
                    self.removals.pop_front();
                    self.check_removal(removed)?;
                }
                event = events.next() => if let Some(Event::Disconnected { why }) = event {
                    return Err(self.lost(why).into());
                },
            }
        }
        Ok(())
    }

    fn check_removal(
        &self,
        removed: Result<Acknowledged, PublishError>,
    ) -> Result<(), ClientError> {
        match removed {
            // The user may not publish there.
            Ok(_) | Err(PublishError::Refused { .. }) => Ok(()),
            Err(why) => Err(ClientError::publish(why, self.version)),
        }
    }

    fn lost(&self, why: ConnectError) -> ClientError {
        ClientError::connection(why, self.version)
    }
}

/// Never, if nothing is asked.
async fn answered(asking: &mut Option<Asking>) -> Result<Answer, SubscribeError> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Never, if there is no message.
async fn answer_of(receipt: Option<&mut Receipt>) -> Result<Acknowledged, PublishError> {
    match receipt {
        Some(receipt) => receipt.answer().await,
        None => std::future::pending().await,
    }
}

/// Ends after that time, if there is one.
async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Whether a message is among the `percent` that are printed.
fn chosen(percent: f64) -> bool {
    let mut random = [0; 4];
    // Without randomness everything is printed.
    getrandom::fill(&mut random).is_err()
        || f64::from(u32::from_ne_bytes(random)) < percent / 100.0 * f64::from(u32::MAX)
}

fn retain_handling(text: &str) -> Result<RetainHandling, String> {
    match text {
        "always" => Ok(RetainHandling::SendAlways),
        "new" => Ok(RetainHandling::SendIfNew),
        "never" => Ok(RetainHandling::DoNotSend),
        _ => Err("it is always, new or never".to_owned()),
    }
}

fn percentage(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.1..=100.0).contains(percent));
    percent.ok_or_else(|| "it is a number from 0.1 to 100".to_owned())
}
