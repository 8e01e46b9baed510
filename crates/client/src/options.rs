//! How to connect, and as whom.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use unbroken_mqtt_proto::{EncodeError, Packet, Properties, Property, PropertyBuf, Version};

use crate::durations::Pauses;
use crate::inbox::Inbox;
use crate::observer::Observer;
use crate::{
    Acknowledging, Client, ConnectError, ConnectTo, Direction, Limits, Message, RetryDuration,
    TotalDuration, Transport, Unclaimed,
};

/// How to connect, and as whom. Everything but the broker has a default.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use unbroken_client::{Message, Options};
///
/// let client = Options::new("localhost:1883".parse()?).connect().await?;
/// client.publish(Message::new("plant/1/temperature", *b"21.5")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) to: ConnectTo,
    pub(crate) from: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    /// The application chose it, so the next client can have it too.
    has_own_name: bool,
    pub(crate) session: Session,
    pub(crate) keep_alive_s: u16,
    pub(crate) user_name: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) will: Option<Will>,
    pub(crate) properties: PropertyBuf,
    pub(crate) limits: Limits,
    pub(crate) attempt: RetryDuration,
    pub(crate) pauses: Pauses,
    pub(crate) patience: Option<TotalDuration>,
    pub(crate) taken_over: TakenOver,
    pub(crate) retries: Retries,
    pub(crate) observer: Option<Observer>,
}

/// What a client does when the broker says that another connection has its client id now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakenOver {
    /// It ends. Two clients under one name that both came back would throw each other out for ever,
    /// and neither would get anything done; which of them is right only their owner knows.
    #[default]
    End,
    /// It comes back after the longest of the [pauses](Options::pauses), and throws the other out.
    /// For a client of which there is one alone, whose broker mistakes its old connection for
    /// another's, or that others may only replace for a while.
    Return,
}

/// After which failures a client connects again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retries {
    /// After all that another try may change, from the first try on.
    #[default]
    Always,
    /// After the [loss](ConnectError::is_loss) of a connection, until the broker can be reached
    /// again. A first try that fails ends the client, and so does a refusal in CONNACK or a
    /// DISCONNECT.
    AfterLoss,
    /// Never: the client ends with its first connection.
    Never,
}

impl Retries {
    pub(crate) fn go_on(self, why: &ConnectError, was_connected: bool) -> bool {
        match self {
            Self::Always => why.may_pass(),
            Self::AfterLoss => was_connected && why.is_loss(),
            Self::Never => false,
        }
    }
}

/// What of a session outlives its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// Nothing: with each connection the client subscribes anew, and messages that were published
    /// meanwhile are missed.
    Temporary,
    /// It begins anew with the client, outlives lost connections, and ends when the client
    /// disconnects (5.0; on 3.x as `Temporary`, which cannot say this).
    WhileRunning {
        /// Seconds without a connection after which the broker forgets it.
        expiry_s: u32,
    },
    /// The broker keeps it under the client id, also while the client does not run, with all
    /// subscriptions that were not [unsubscribed](crate::Subscription::unsubscribe). So that the
    /// next start finds it, the id must be given ([`Options::client_id`]); without one
    /// [`connect`](Options::connect) says [`ConnectError::Nameless`].
    Kept {
        /// Seconds without a connection after which the broker forgets it (5.0);
        /// [`NEVER`](Self::NEVER) for never.
        expiry_s: u32,
    },
}

impl Session {
    /// An expiry that never comes.
    pub const NEVER: u32 = u32::MAX;
}

#[derive(Clone)]
pub(crate) struct Will {
    pub(crate) message: Message,
    pub(crate) delay_s: u32,
}

impl<T: Into<ConnectTo>> From<T> for Options {
    fn from(to: T) -> Self {
        Self::new(to.into())
    }
}

impl Options {
    /// MQTT 5.0, a client id of its own, a session while running, a keep alive of 60 seconds, and
    /// patience without end.
    pub fn new(to: ConnectTo) -> Self {
        Self {
            to,
            from: None,
            transport: Transport::default(),
            version: Version::V5,
            client_id: random_client_id(),
            has_own_name: false,
            session: Session::WhileRunning { expiry_s: 300 },
            keep_alive_s: 60,
            user_name: None,
            password: None,
            will: None,
            properties: PropertyBuf::new(),
            limits: Limits::default(),
            attempt: RetryDuration(Duration::from_secs(10)),
            pauses: Pauses {
                first: RetryDuration(Duration::from_millis(100)),
                longest: RetryDuration(Duration::from_secs(15)),
            },
            patience: None,
            taken_over: TakenOver::default(),
            retries: Retries::default(),
            observer: None,
        }
    }

    /// The local address to connect from, by name or number.
    #[must_use]
    pub fn connect_from(mut self, host: impl Into<String>) -> Self {
        self.from = Some(host.into());
        self
    }

    /// What lies below MQTT: TLS, WebSocket; nothing, unless it is said.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Another version of the protocol.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The name under which the broker keeps the session. A second client with the same name throws
    /// the first out: [`TakenOver`].
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = id.into();
        // An empty one leaves the choice to the broker.
        self.has_own_name = !self.client_id.is_empty();
        self
    }

    /// What of the session outlives its connection.
    #[must_use]
    pub fn session(mut self, session: Session) -> Self {
        self.session = session;
        self
    }

    /// The silence, in seconds, after which either side asks whether the other is there; 0 for
    /// never. A 5.0 broker may decide otherwise.
    #[must_use]
    pub fn keep_alive_s(mut self, seconds: u16) -> Self {
        self.keep_alive_s = seconds;
        self
    }

    /// Who the client says it is.
    #[must_use]
    pub fn credentials(self, user_name: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        self.user_name(user_name).password(password)
    }

    /// Who the client says it is, without a password.
    #[must_use]
    pub fn user_name(mut self, name: impl Into<String>) -> Self {
        self.user_name = Some(name.into());
        self
    }

    /// A password alone is possible since 5.0.
    #[must_use]
    pub fn password(mut self, password: impl Into<Vec<u8>>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// What the broker publishes when the client is lost; 5.0 brokers wait `delay_s` seconds for
    /// it to return.
    #[must_use]
    pub fn will(mut self, message: Message, delay_s: u32) -> Self {
        self.will = Some(Will { message, delay_s });
        self
    }

    /// Something about the client for the broker (5.0).
    pub fn user_property(mut self, name: &str, value: &str) -> Result<Self, EncodeError> {
        self.properties.push(Property::UserProperty(name, value))?;
        Ok(self)
    }

    /// Properties of CONNECT (5.0). They take the place of those that follow from the session and
    /// the limits. With a Topic Alias Maximum the broker may name topics by aliases.
    #[must_use]
    pub fn properties(mut self, properties: Properties<'_>) -> Self {
        self.properties.extend(properties);
        self
    }

    /// How much the client holds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The time that one try to connect may take, from the name's look-up to CONNACK.
    #[must_use]
    pub fn attempt(mut self, time: RetryDuration) -> Self {
        self.attempt = time;
        self
    }

    /// The pause after the first failed try, and the longest that it grows to. A random part of up
    /// to half is left out.
    #[must_use]
    pub fn pauses(mut self, first: RetryDuration, longest: RetryDuration) -> Self {
        self.pauses = Pauses { first, longest };
        self
    }

    /// How long the client tries to connect, at its start and each time the connection is lost,
    /// before it gives up for good.
    #[must_use]
    pub fn patience(mut self, time: TotalDuration) -> Self {
        self.patience = Some(time);
        self
    }

    /// Whether the client ends or comes back when another connects under its name.
    #[must_use]
    pub fn taken_over(mut self, then: TakenOver) -> Self {
        self.taken_over = then;
        self
    }

    /// After which failures the client connects again.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Shows `observer` every packet: one to be sent when it is encoded, one that came before the
    /// client acts on it; a PUBLISH with its topic, also where it has only an alias. It is called
    /// by the client's task, so it must not wait.
    #[must_use]
    pub fn observer(
        mut self,
        observer: impl Fn(Direction, &Packet<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Connects, and goes on trying as long as the patience lasts. Returns at once what another
    /// try cannot change, such as a wrong password.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let client = self.start();
        match client.connected().await {
            Ok(()) => Ok(client),
            Err(error) => Err(error),
        }
    }

    /// Whether any broker could do what they ask for.
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        if matches!(self.session, Session::Kept { .. }) && !self.has_own_name {
            return Err(ConnectError::Nameless);
        }
        Ok(())
    }

    /// Gives a client that connects on its own; what it is given waits until it has. Must be called
    /// within a tokio runtime with timers and sockets.
    pub fn start(self) -> Client {
        Client::start(self, None)
    }

    /// As [`start`](Self::start), with the messages that come for no subscription.
    pub fn start_with_unclaimed(self, acknowledging: Acknowledging) -> (Client, Unclaimed) {
        let inbox = Arc::new(Inbox::new(self.limits.qos0_waiting_max));
        let unclaimed = Unclaimed {
            inbox: Arc::clone(&inbox),
            acknowledging,
        };
        (Client::start(self, Some(inbox)), unclaimed)
    }
}

/// Secrets do not get into logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("to", &self.to)
            .field("version", &self.version)
            .field("client_id", &self.client_id)
            .field("session", &self.session)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A random number; a fixed one where the system has none, which only makes clashes likelier.
pub(crate) fn random() -> u64 {
    getrandom::u64().unwrap_or(0x5eed)
}

fn random_client_id() -> String {
    // 23 characters are what every broker takes.
    format!("unbroken{:015x}", random() >> 4)
}
