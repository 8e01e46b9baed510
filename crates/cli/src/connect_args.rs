//! The flags that `pub` and `sub` share: which broker, as whom, in which version. Mosquitto's names
//! and meanings.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;
use unbroken_client::{ConnectTo, Limits, Message, Retries, RetryDuration, Session, Transport};
use unbroken_mqtt_proto::{Escaped, Property, PropertyBuf, QoS, Version};

use crate::exit::Failure;
use crate::packet_lines::PacketLines;
use crate::properties::{self, Given, Place};
use crate::transport_args::TransportArgs;
use crate::url::Url;
use crate::user_args::UserArgs;

/// What a mistake in the arguments ends with, as in Mosquitto's commands.
pub(crate) const USAGE: u8 = 1;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Messages given to the client and not acknowledged.
const UNFINISHED_MAX: usize = 1 << 16;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// Host of the broker, or HOST:PORT
    #[arg(short = 'h', long, default_value = "localhost", env = "UNBROKEN_HOST")]
    host: String,
    /// Read options from this file too: an option and its value a line; later ones win
    #[arg(short, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) options_file: Vec<PathBuf>,
    /// Port of the broker [default: 1883; with TLS 8883, with WebSocket 8083, with both 8084]
    #[arg(short, long, env = "UNBROKEN_PORT")]
    port: Option<u16>,
    /// Everything in one: `mqtt://[user[:password]@]host[:port]/topic`; mqtts, ws, wss likewise
    #[arg(short = 'L', long, value_name = "URL")]
    url: Option<String>,
    /// Local address to connect from
    #[arg(short = 'A', value_name = "ADDR")]
    bind: Option<String>,
    #[command(flatten)]
    user: UserArgs,
    /// Client id [default: the broker's choice]
    #[arg(short, long, conflicts_with = "id_prefix", allow_hyphen_values = true)]
    id: Option<String>,
    /// Client id from this and the process id
    #[arg(short = 'I', long, value_name = "PREFIX")]
    id_prefix: Option<String>,
    /// MQTT version: mqttv31, mqttv311, mqttv5, or 31, 311, 5 [default: 311, or 5 with -D]
    #[arg(short = 'V', long = "protocol-version", value_name = "VERSION", value_parser = version)]
    version: Option<Version>,
    /// Seconds between signs of life, 5 or more
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u16).range(5..))]
    keepalive: u16,
    /// Keep the session when the connection ends (needs -i)
    #[arg(short = 'c', long = "disable-clean-session")]
    keep_session: bool,
    /// Seconds a 5.0 session outlives its connection; -1 or ∞ for ever
    #[arg(short = 'x', long = "session-expiry-interval", value_name = "SECONDS")]
    #[arg(allow_hyphen_values = true, value_parser = session_expiry)]
    session_expiry: Option<u32>,
    /// QoS 1 and 2 messages under way at once
    #[arg(short = 'M', value_name = "MESSAGES", default_value_t = 1_000)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    inflight_max: u16,
    /// A 5.0 property: which packet, which property, its value (a user-property has a name, too)
    #[arg(short = 'D', long = "property", num_args = 3..=4, action = ArgAction::Append)]
    #[arg(value_names = ["PACKET", "PROPERTY", "VALUE"], allow_negative_numbers = true)]
    properties: Vec<String>,

    /// Topic of a message that the broker sends if this client is lost
    #[arg(long, value_name = "TOPIC", help_heading = "Will")]
    will_topic: Option<String>,
    /// Its payload
    #[arg(
        long,
        value_name = "TEXT",
        help_heading = "Will",
        requires = "will_topic"
    )]
    #[arg(allow_hyphen_values = true)]
    will_payload: Option<String>,
    /// Its QoS
    #[arg(
        long,
        value_name = "QOS",
        help_heading = "Will",
        requires = "will_topic"
    )]
    #[arg(default_value = "0", value_parser = qos)]
    will_qos: QoS,
    /// The broker keeps it
    #[arg(long, help_heading = "Will", requires = "will_topic")]
    will_retain: bool,

    /// Show each packet
    #[arg(short, long, help_heading = "Output")]
    debug: bool,
    /// Print no errors
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Accepted for Mosquitto's sake: it is always so
    #[arg(long, hide = true)]
    nodelay: bool,
    #[command(flatten)]
    transport: TransportArgs,
}

/// How to connect, and as whom.
pub(crate) struct Options {
    pub(crate) to: ConnectTo,
    pub(crate) transport: Transport,
    /// The local address to connect from.
    pub(crate) bind: Option<String>,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    pub(crate) keep_session: bool,
    pub(crate) keep_alive_s: u16,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) will: Option<Message>,
    pub(crate) properties: PropertyBuf,
    /// Our own limit of messages in flight; the broker's may be smaller.
    pub(crate) inflight_max: u16,
    /// Print each packet, as Mosquitto's `-d` does.
    pub(crate) trace: bool,
}

impl Options {
    /// For the client library.
    pub(crate) fn client(&self, retries: Retries) -> unbroken_client::Options {
        let properties = self.properties.as_properties();
        let mut limits = Limits::default();
        limits.unfinished_max = UNFINISHED_MAX;
        limits.inflight_max = self.inflight_max;
        limits.inflight_max_3x = self.inflight_max;
        // A packet may be as large as the library takes, unless -D says otherwise: a server must
        // not fill the memory of its client.
        if let Some(named) = properties.maximum_packet_size() {
            limits.packet_bytes_max = named;
        }
        // Nothing is read while messages are printed, so few wait.
        limits.receive_maximum = properties.receive_maximum().unwrap_or(u16::MAX);
        limits.qos0_waiting_max = usize::MAX;
        let session = if self.keep_session {
            // The properties say for how long.
            Session::Kept { expiry_s: 0 }
        } else {
            Session::Temporary
        };
        let mut options = unbroken_client::Options::new(self.to.clone())
            .transport(self.transport.clone())
            .version(self.version)
            .client_id(self.client_id.as_str())
            .session(session)
            .keep_alive_s(self.keep_alive_s)
            .properties(properties)
            .limits(limits)
            .attempt(RetryDuration(CONNECT_TIMEOUT))
            .pauses(
                RetryDuration(RECONNECT_DELAY),
                RetryDuration(RECONNECT_DELAY),
            )
            .retries(retries);
        if let Some(host) = &self.bind {
            options = options.connect_from(host.as_str());
        }
        if let Some(name) = &self.user_name {
            options = options.user_name(name.as_str());
        }
        if let Some(password) = &self.password {
            options = options.password(password.as_slice());
        }
        if let Some(will) = &self.will {
            options = options.will(will.clone(), 0);
        }
        if self.trace {
            let trace = PacketLines::new(self.version, &self.client_id);
            options = options.observer(move |direction, packet| trace.show(direction, packet));
        }
        options
    }
}

/// What the shared flags say.
pub(crate) struct Connection {
    pub(crate) options: Options,
    /// The topic of the URL.
    pub(crate) topic: Option<String>,
    pub(crate) properties: Given,
}

impl ConnectArgs {
    /// Checks the flags against each other.
    pub(crate) fn resolve(&self) -> Result<Connection, Failure> {
        let url = self
            .url
            .as_deref()
            .map(Url::parse)
            .transpose()
            .map_err(usage)?;
        let mut properties = properties::parse(&self.properties).map_err(usage)?;
        // As in Mosquitto, properties make it 5.0 whatever -V says.
        let version = match self.version {
            _ if properties.any() => Version::V5,
            version => version.unwrap_or(Version::V3_1_1),
        };
        let (user_name, password) = match &url {
            Some(Url {
                user_name: Some(user),
                password,
                ..
            }) => (Some(user), password.as_ref()),
            _ => (self.user.username.as_ref(), self.user.password.as_ref()),
        };
        if password.is_some() && user_name.is_none() && version != Version::V5 {
            return Err(usage(
                "a password needs a user name before MQTT 5.0: add -u NAME",
            ));
        }
        let client_id = self.client_id(version)?;
        if version == Version::V5 {
            self.push_session_expiry(&mut properties)?;
        }
        let scheme = url.as_ref().map(|url| url.scheme);
        let transport = self.transport.resolve(scheme).map_err(usage)?;
        let port = self.port.or_else(|| {
            let default = transport.default_port();
            (default != ConnectTo::DEFAULT_PORT).then_some(default)
        });
        let socket = self.transport.unix();
        let socket = socket.or_else(|| url.as_ref()?.socket.clone());
        let to = match (&url, socket) {
            (_, Some(path)) => ConnectTo::unix(path),
            (Some(url), None) => {
                let port = url.port.or(port);
                ConnectTo::new(url.host.as_str(), port.unwrap_or(ConnectTo::DEFAULT_PORT))
            }
            (None, None) => self.host(port)?,
        };
        let options = Options {
            to,
            transport,
            bind: self.bind.clone(),
            version,
            client_id,
            keep_session: self.keep_session,
            keep_alive_s: self.keepalive,
            user_name: user_name.cloned(),
            password: password.map(|password| password.clone().into_bytes()),
            will: self.will(&mut properties)?,
            properties: properties.take(Place::Connect),
            inflight_max: self.inflight_max,
            trace: self.debug,
        };
        Ok(Connection {
            options,
            topic: url.and_then(|url| url.topic),
            properties,
        })
    }

    /// The host, which may have a port of its own: that is the one, unless another was given.
    fn host(&self, default: Option<u16>) -> Result<ConnectTo, Failure> {
        let has_port = ConnectTo::parts(&self.host).is_ok_and(|(_, port)| port.is_some());
        let port = if has_port { self.port } else { default };
        ConnectTo::with_port(&self.host, port).map_err(usage)
    }

    fn client_id(&self, version: Version) -> Result<String, Failure> {
        match (&self.id, &self.id_prefix) {
            (Some(id), _) if !(id.is_empty() && self.keep_session) => Ok(id.clone()),
            (None, Some(prefix)) => Ok(format!("{prefix}{}", std::process::id())),
            _ if self.keep_session => Err(usage(
                "-c resumes a session, which needs a client id: add -i ID",
            )),
            // 3.1 has no empty client id, and takes 23 characters. [MQTT311-3.1.3-5]
            _ if version == Version::V3_1 => {
                let mut random = [0; 6];
                getrandom::fill(&mut random).map_err(|error| {
                    Failure::new(USAGE, format!("no random client id: {error}"))
                })?;
                Ok(random
                    .iter()
                    .fold("unbroken-".to_owned(), |id, byte| format!("{id}{byte:02x}")))
            }
            _ => Ok(String::new()),
        }
    }

    /// 3.x sessions that are kept have no end; a 5.0 session has one only if it is asked for.
    fn push_session_expiry(&self, properties: &mut Given) -> Result<(), Failure> {
        let expiry = self
            .session_expiry
            .or(self.keep_session.then_some(u32::MAX));
        if expiry == Some(u32::MAX) && self.id.is_none() {
            return Err(usage(
                "a session without end needs a client id to be found by: add -i ID",
            ));
        }
        let Some(seconds) = expiry.filter(|seconds| *seconds > 0) else {
            return Ok(());
        };
        properties
            .push(Place::Connect, Property::SessionExpiryInterval(seconds))
            .map_err(|error| usage(error.to_string()))
    }

    fn will(&self, properties: &mut Given) -> Result<Option<Message>, Failure> {
        let properties = properties.take(Place::Will);
        let Some(topic) = &self.will_topic else {
            if properties == PropertyBuf::new() {
                return Ok(None);
            }
            return Err(usage("-D will … needs a will: add --will-topic TOPIC"));
        };
        let payload = self.will_payload.clone().unwrap_or_default();
        let will = message(topic, payload.as_bytes(), self.will_qos, self.will_retain)?;
        Ok(Some(will.with_properties(properties.as_properties())))
    }
}

/// A mistake in the arguments that is not clap's to find.
pub(crate) fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::new(USAGE, message)
}

/// A message, if it can be published there.
pub(crate) fn message(
    topic: &str,
    payload: &[u8],
    qos: QoS,
    retain: bool,
) -> Result<Message, Failure> {
    let message = Message::new(topic, payload).map_err(|error| {
        usage(format!(
            "`{}` is not a topic to publish to: {error}",
            Escaped::new(topic)
        ))
    })?;
    let message = message.qos(qos);
    Ok(if retain { message.retained() } else { message })
}

pub(crate) fn qos(text: &str) -> Result<QoS, String> {
    match text {
        "0" => Ok(QoS::AtMostOnce),
        "1" => Ok(QoS::AtLeastOnce),
        "2" => Ok(QoS::ExactlyOnce),
        _ => Err("it is 0, 1 or 2".to_owned()),
    }
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "mqttv31" | "31" | "3.1" => Ok(Version::V3_1),
        "mqttv311" | "311" | "3.1.1" => Ok(Version::V3_1_1),
        "mqttv5" | "5" | "5.0" => Ok(Version::V5),
        _ => Err("it is mqttv31, mqttv311 or mqttv5, or 31, 311 or 5".to_owned()),
    }
}

fn session_expiry(text: &str) -> Result<u32, String> {
    match text {
        "-1" | "∞" => Ok(u32::MAX),
        _ => text
            .parse()
            .map_err(|_| "it is a number of seconds, or -1 for ever".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(disable_help_flag = true)]
    struct Command {
        #[arg(short)]
        message: Option<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    }

    fn resolve(flags: &str) -> Result<Connection, String> {
        let flags = ["command"]
            .into_iter()
            .chain(flags.split(' ').filter(|flag| !flag.is_empty()));
        let command = Command::try_parse_from(flags).map_err(|error| error.to_string())?;
        command
            .connect
            .resolve()
            .map_err(|failure| failure.message.unwrap_or_default())
    }

    fn options(flags: &str) -> Options {
        match resolve(flags) {
            Ok(connection) => connection.options,
            Err(why) => panic!("{flags}: {why}"),
        }
    }

    #[test]
    fn without_flags_it_is_localhost_in_version_3_1_1_with_a_clean_session() {
        let options = options("");
        assert_eq!(options.to, ConnectTo::new("localhost", 1883));
        assert_eq!(options.version, Version::V3_1_1);
        assert!(!options.keep_session && options.client_id.is_empty() && options.will.is_none());
        assert_eq!(options.keep_alive_s, 60);
    }

    #[test]
    fn a_host_may_have_its_port_and_ipv6_brackets() {
        for (flags, host, port) in [
            ("-h host", "host", 1883),
            ("-h host -p 7", "host", 7),
            ("-h host:7", "host", 7),
            ("-h ::1", "::1", 1883),
            ("-h [::1]:7", "::1", 7),
            ("-L mqtt://[::1] -p 7", "::1", 7),
        ] {
            assert_eq!(options(flags).to, ConnectTo::new(host, port), "{flags}");
        }
    }

    #[test]
    fn what_is_below_mqtt_decides_the_port() {
        for (flags, to) in [
            ("--ws", "localhost:8083"),
            ("--ws -p 7", "localhost:7"),
            ("--ws -h host:7", "host:7"),
            ("-L ws://host/a", "host:8083"),
            ("-L ws://host:7/a", "host:7"),
            ("--unix /run/mqtt.sock", "unix:/run/mqtt.sock"),
            ("--unix mqtt.sock", "unix:./mqtt.sock"),
            ("-L unix:/run/mqtt.sock", "unix:/run/mqtt.sock"),
        ] {
            assert_eq!(options(flags).to.to_string(), to, "{flags}");
        }
    }

    #[test]
    fn a_url_says_everything() {
        let connection =
            resolve("-L mqtt://ann:pw@host:1884/a/b").unwrap_or_else(|why| panic!("{why}"));
        let options = connection.options;
        assert_eq!(options.to, ConnectTo::new("host", 1884));
        assert_eq!(options.user_name.as_deref(), Some("ann"));
        assert_eq!(options.password.as_deref(), Some(b"pw".as_slice()));
        assert_eq!(connection.topic.as_deref(), Some("a/b"));
    }

    #[test]
    fn properties_make_it_version_5_and_end_before_the_next_flag() {
        let options =
            options("-V 311 -D connect user-property a b -m text -D connect receive-maximum 7");
        assert_eq!(options.version, Version::V5);
        let properties = options.properties.as_properties();
        assert_eq!(properties.receive_maximum(), Some(7));
        assert_eq!(
            properties.user_properties().collect::<Vec<_>>(),
            [("a", "b")]
        );
    }

    #[test]
    fn a_kept_session_of_version_5_has_no_end_unless_one_is_given() {
        let expiry = |flags| {
            options(flags)
                .properties
                .as_properties()
                .session_expiry_interval()
        };
        assert_eq!(expiry("-V 5 -c -i me"), Some(u32::MAX));
        assert_eq!(expiry("-V 5 -c -i me -x 60"), Some(60));
        assert_eq!(expiry("-V 5 -i me -x -1"), Some(u32::MAX));
        assert_eq!(expiry("-V 5 -i me -x ∞"), Some(u32::MAX));
        assert_eq!(expiry("-V 5"), None);
        assert_eq!(expiry("-c -i me"), None);
    }

    #[test]
    fn a_client_of_version_3_1_has_an_id_of_at_most_23_characters() {
        let id = options("-V 31").client_id;
        assert!((1..=23).contains(&id.len()), "{id}");
        assert!(options("-I pre").client_id.starts_with("pre"));
    }

    #[test]
    fn flags_that_contradict_each_other_are_reported() {
        for (flags, why) in [
            ("-h host:7 -p 8", "names port 7"),
            ("-h host:x", "does not end in a port"),
            ("-c", "-c resumes a session, which needs a client id"),
            ("-c -i=", "-c resumes a session, which needs a client id"),
            ("-P secret", "a password needs a user name"),
            ("-i a -I b", "cannot be used with"),
            ("-V 4", "mqttv31, mqttv311 or mqttv5"),
            ("-V 5 -x -1", "a session without end needs a client id"),
            ("--will-payload x", "--will-topic"),
            ("-D will content-type x", "add --will-topic"),
            ("--will-topic a/#", "is not a topic to publish to"),
            ("--cafile no-such.pem", "cannot read no-such.pem"),
            ("--cert a.pem", "--key"),
            (
                "--psk 1 --cafile ca.pem",
                "pre-shared keys are not supported",
            ),
            ("--unix mqtt.sock --ws", "cannot be used with"),
            ("-k 70000", "70000"),
            ("-k 4", "5..=65535"),
            ("-k 0", "5..=65535"),
        ] {
            let message = resolve(flags).map(|_| ()).unwrap_err();
            assert!(message.contains(why), "{flags}: {message}");
        }
        assert!(
            resolve("-V 5 -P token").is_ok(),
            "5.0 takes a password alone"
        );
    }

    #[test]
    fn what_begins_with_a_hyphen_may_be_a_value() {
        let options = options("-u -5 -P -x -i -id --will-topic w --will-payload -1");
        assert_eq!(options.user_name.as_deref(), Some("-5"));
        assert_eq!(options.client_id, "-id");
        assert_eq!(
            options.will.as_ref().map(Message::payload),
            Some(b"-1".as_slice())
        );
    }
}
