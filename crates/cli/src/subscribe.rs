//! `unbroken sub`: messages as they come, on standard output.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgAction;
use jiff::Zoned;
use unbroken_mqtt_proto::{
    PropertyBuf, QoS, ReasonCode, RetainHandling, SubscriptionFilter, SubscriptionOptions,
    TopicFilter, TopicName, Version,
};

use crate::client::{Client, ClientError, Event, Message, Outside, Received};
use crate::connect_args::{ConnectArgs, Connection, qos, usage};
use crate::exit::Failure;
use crate::format::Format;
use crate::json::{self, PayloadForm};
use crate::properties::Place;
use crate::report::Report;
use crate::signals;

/// Subscribe and print what comes, with Mosquitto's flags
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
#[command(after_help = "\
Examples:
  unbroken sub -t 'plant/#' -v                      topic and payload, a line each
  unbroken sub -t plant/boiler/temp -C 1 -W 5       one message, or exit with 27 after 5 seconds
  unbroken sub -t 'plant/#' --json | jq .payload    one JSON object a line
  unbroken sub -t 'plant/#' -F '%I %t %p'           time, topic, payload
  unbroken sub -t 'plant/#' -c -i desk -q 1         a session that is kept while away
  unbroken sub -t '$share/readers/plant/#'          shared with other members of `readers`
  unbroken sub -t '#' --remove-retained --retained-only -W 1

-F takes %t topic, %p payload, %x %X payload in hex, %l its length, %q QoS, %r retained, %m packet
id, %j JSON, %J JSON with a JSON payload, %I time (ISO 8601), %U Unix time; of 5.0 %A topic alias,
%C content type, %D correlation data, %E expiry, %F format, %P user properties, %R response topic,
%S subscription id; @X strftime's %X, @N nanoseconds; \\n \\t \\r \\0 \\a \\e \\v.
Widths as in printf: %-20t, %05l, %.10t; of a payload a width shows no more than it has room for.
An empty payload is (null) behind -v; without -v, or with -N, nothing is printed.

Exit codes, as Mosquitto's: 0 asked to stop; 1 wrong usage or no connection; 27 timed out (-W);
the CONNACK code if the broker refuses; the reason code if it ends the connection or refuses
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
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Connection {
        options,
        topic,
        mut properties,
    } = args.connect.resolve()?;
    let filters: Vec<String> = args.topic.iter().cloned().chain(topic).collect();
    // With -U alone, too: as in Mosquitto's, it goes with a subscription.
    if filters.is_empty() {
        return Err(usage("there is nothing to subscribe to: add -t FILTER"));
    }
    for filter in filters.iter().chain(&args.unsubscribe) {
        let wrong = |error| format!("`{}` is not a filter: {error}", filter.escape_debug());
        SubscriptionFilter::parse(filter).map_err(|error| usage(wrong(error)))?;
    }
    for filter in &args.filter_out {
        let wrong = |error| format!("`{}` is not a filter: {error}", filter.escape_debug());
        TopicFilter::parse(filter).map_err(|error| usage(wrong(error)))?;
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
        report,
        subscribe_properties: properties.take(Place::Subscribe),
        unsubscribe_properties: properties.take(Place::Unsubscribe),
        out: io::BufWriter::new(io::stdout()),
        printed: 0,
        awaited: Awaited::default(),
    };
    let goodbye = properties.take(Place::Disconnect);
    match subscriber.run(options, &goodbye) {
        Ok(code) => Ok(code),
        Err(Ended::Client(error)) => Err(report.failure(&error)),
        Err(Ended::Output(error)) => Err(Failure::output(&error)),
    }
}

struct Subscriber<'a> {
    args: &'a Args,
    filters: Vec<String>,
    report: Report,
    subscribe_properties: PropertyBuf,
    unsubscribe_properties: PropertyBuf,
    out: io::BufWriter<io::Stdout>,
    printed: u64,
    awaited: Awaited,
}

/// Acknowledgements that are still to come.
#[derive(Default)]
struct Awaited {
    suback: bool,
    unsuback: bool,
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

/// What a message, or another event, means for the run.
enum Verdict {
    GoOn,
    /// Nothing more is printed; the connection closes when everything sent is acknowledged.
    Done(ExitCode),
    /// As `Done`, with no connection left to close.
    Gone(ExitCode),
}

impl Subscriber<'_> {
    fn run(
        &mut self,
        options: crate::client::Options,
        goodbye: &PropertyBuf,
    ) -> Result<ExitCode, Ended> {
        let mut client = Client::connect(options)?;
        signals::watch(&client).map_err(ClientError::Io)?;
        let deadline = self
            .args
            .timeout
            .map(|seconds| Instant::now() + Duration::from_secs(seconds));
        self.subscribe(&mut client)?;
        let code = loop {
            if !client.has_input() {
                // Nothing waits: whoever reads this should have all of it before we do.
                self.out.flush()?;
            }
            let verdict = match client.next_event(deadline) {
                Ok(event) => self.handle(&mut client, event)?,
                Err(error) if error.may_pass() => self.reconnect(&mut client, &error, deadline)?,
                Err(error) => return Err(error.into()),
            };
            match verdict {
                Verdict::GoOn => {}
                Verdict::Done(code) => break code,
                Verdict::Gone(code) => return Ok(code),
            }
        };
        self.out.flush()?;
        while client.unfinished() > 0 {
            client.next_event(deadline)?;
        }
        match client.disconnect(ReasonCode::Success, goodbye.as_properties()) {
            // What was wanted is here; how the connection ends does not matter.
            Err(error) if !error.may_pass() => Err(error.into()),
            _ => Ok(code),
        }
    }

    fn subscribe(&mut self, client: &mut Client) -> Result<(), ClientError> {
        let options = SubscriptionOptions {
            qos: self.args.qos,
            no_local: self.args.no_local,
            retain_as_published: self.args.retain_as_published,
            retain_handling: self.args.retain_handling,
        };
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(|filter| (filter.as_str(), options))
            .collect();
        if !filters.is_empty() {
            client.subscribe(&filters, self.subscribe_properties.as_properties())?;
        }
        let unsubscribe: Vec<_> = self.args.unsubscribe.iter().map(String::as_str).collect();
        if !unsubscribe.is_empty() {
            client.unsubscribe(&unsubscribe, self.unsubscribe_properties.as_properties())?;
        }
        self.awaited = Awaited {
            suback: !filters.is_empty(),
            unsuback: !unsubscribe.is_empty(),
        };
        Ok(())
    }

    fn handle(&mut self, client: &mut Client, event: Event) -> Result<Verdict, Ended> {
        match event {
            Event::Message(received) => self.handle_message(client, &received),
            Event::Subscribed { codes } => {
                self.awaited.suback = false;
                Ok(self.handle_suback(&codes))
            }
            Event::Unsubscribed => {
                self.awaited.unsuback = false;
                Ok(self.exit_if_subscribed())
            }
            Event::Outside(Outside::Interrupted) => Ok(Verdict::Done(ExitCode::SUCCESS)),
            Event::Deadline => {
                self.report.line("Timed out");
                Ok(Verdict::Done(ExitCode::from(TIMED_OUT)))
            }
            Event::Published { .. } | Event::Outside(_) | Event::Connected => Ok(Verdict::GoOn),
        }
    }

    /// Tells each filter that was refused. With none left there is nothing to wait for.
    fn handle_suback(&self, codes: &[u8]) -> Verdict {
        let refused: Vec<_> = self
            .filters
            .iter()
            .zip(codes)
            .filter(|(_, code)| **code >= 0x80)
            .collect();
        for (filter, code) in &refused {
            let reason = ReasonCode::try_from(**code).unwrap_or(ReasonCode::UnspecifiedError);
            self.report.warn(format_args!(
                "the broker refuses the subscription to {filter}: {reason}"
            ));
        }
        match refused.first() {
            Some((_, code)) if refused.len() == self.filters.len() => {
                self.report.line("All subscription requests were denied.");
                Verdict::Done(ExitCode::from(**code))
            }
            _ => self.exit_if_subscribed(),
        }
    }

    fn exit_if_subscribed(&self) -> Verdict {
        let done = !self.awaited.suback && !self.awaited.unsuback;
        if self.args.exit_after_subscribe && done {
            return Verdict::Done(ExitCode::SUCCESS);
        }
        Verdict::GoOn
    }

    fn handle_message(
        &mut self,
        client: &mut Client,
        received: &Received,
    ) -> Result<Verdict, Ended> {
        let (args, message) = (self.args, &received.message);
        if args.retained_only && !message.retain {
            return Ok(Verdict::Done(ExitCode::SUCCESS));
        }
        let filtered_out = TopicName::parse(&message.topic).is_ok_and(|topic| {
            let mut filters = args
                .filter_out
                .iter()
                .filter_map(|text| TopicFilter::parse(text).ok());
            filters.any(|filter| filter.matches(topic))
        });
        if filtered_out {
            return Ok(Verdict::GoOn);
        }
        if args.remove_retained && message.retain {
            client.publish(Message {
                topic: message.topic.clone(),
                payload: Vec::new(),
                qos: QoS::AtLeastOnce,
                retain: true,
                properties: PropertyBuf::new(),
            })?;
        }
        if (args.no_retained && message.retain) || !args.random_filter.is_none_or(chosen) {
            return Ok(Verdict::GoOn);
        }
        self.print(received)?;
        self.printed += 1;
        if args.count == Some(self.printed) {
            return Ok(Verdict::Done(ExitCode::SUCCESS));
        }
        Ok(Verdict::GoOn)
    }

    fn print(&mut self, received: &Received) -> io::Result<()> {
        let (args, message) = (self.args, &received.message);
        let whole = match &args.format {
            Some(format) => format.print(&mut self.out, received, &Zoned::now(), args.pretty)?,
            None if args.json => json::print(
                &mut self.out,
                received,
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
                self.out.write_all(&message.payload)?;
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
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Tries again until the broker is back, is against it, or nobody wants to wait longer.
    fn reconnect(
        &mut self,
        client: &mut Client,
        lost: &ClientError,
        deadline: Option<Instant>,
    ) -> Result<Verdict, Ended> {
        self.report.warn(format_args!("{lost}; connecting again"));
        self.out.flush()?;
        loop {
            match client.reconnect() {
                Ok(()) => {
                    self.subscribe(client)?;
                    return Ok(Verdict::GoOn);
                }
                Err(error) if error.may_pass() => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(Outside::Interrupted) = client.rest(RECONNECT_DELAY) {
                return Ok(Verdict::Gone(ExitCode::SUCCESS));
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.report.line("Timed out");
                return Ok(Verdict::Gone(ExitCode::from(TIMED_OUT)));
            }
        }
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
