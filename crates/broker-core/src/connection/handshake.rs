//! CONNECT: from the first byte of a connection until it has a session.
//!
//! ```text
//! Awaiting --CONNECT--> Deciding --answer of the driver--> Decided --session--> Admitted
//!    |                   |     ^                              |
//!    |                   v     | AUTH                         |
//!    |                  Challenged                            |
//!    +---------------------+-------- refused, closed ---------+
//! ```
//!
//! CONNECT is decoded once. What is needed of it while the driver decides is owned here; the
//! password is not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{
    Connect, Properties, Property, PropertyBuf, QoS, Version, Will as ConnectWill,
};

use crate::durability::Will;
use crate::message::{Message, Publication};

use crate::ids::SessionId;
use crate::policy::{Identity, Mount, TooLong};

#[derive(Debug)]
pub(super) enum Handshake {
    /// No CONNECT has come; patience ends then.
    Awaiting(Instant),
    /// The driver decides about this, until then. Nothing behind CONNECT is looked at.
    Deciding(Instant, Box<ConnectRequest>),
    /// The client is to take another step of its enhanced authentication by then.
    Challenged(Instant, Box<ConnectRequest>),
    /// The driver has decided, and the client is being let in.
    Decided,
    /// This session is attached.
    Admitted(SessionId),
}

/// What a CONNECT asks for.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) version: Version,
    pub(crate) clean_start: bool,
    /// In seconds; 0 turns it off.
    pub(crate) keep_alive: u16,
    /// Empty if the broker is to assign one.
    pub(crate) client_id: Arc<str>,
    /// Its client has given none, and is told the one that it has.
    pub(crate) announces_id: bool,
    pub(crate) user_name: Option<Box<str>>,
    pub(crate) will: Option<Box<WillRequest>>,
    pub(crate) session_expiry_s: Option<u32>,
    pub(crate) receive_maximum: Option<u16>,
    pub(crate) topic_alias_maximum: Option<u16>,
    pub(crate) wants_response_information: bool,
    /// It only verifies what it receives.
    pub(crate) only_verifies: bool,
}

impl ConnectRequest {
    /// Bytes that it keeps from the allocator.
    pub(super) fn memory(&self) -> usize {
        let will = self.will.as_deref();
        let user_name = self.user_name.as_ref();
        size_of::<Self>()
            + self.client_id.len()
            + user_name.map_or(0, |name| name.len())
            + will.map_or(0, WillRequest::memory)
    }
}

impl WillRequest {
    fn memory(&self) -> usize {
        size_of::<Self>() + self.topic.len() + self.payload.len() + self.properties.capacity()
    }
}

/// What is to be published when the client is lost.
#[derive(Debug)]
pub(crate) struct WillRequest {
    pub(crate) topic: Box<str>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// Without the two that the broker acts on.
    pub(crate) properties: PropertyBuf,
    pub(crate) delay_s: u32,
    pub(crate) expiry_s: Option<u32>,
}

/// Names in a CONNECT, as it claims them.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    pub(crate) client_id: Option<Arc<str>>,
    pub(crate) user_name: Option<Box<str>>,
}

impl Caller {
    pub(crate) fn of(connect: &Connect<'_>) -> Self {
        Self {
            client_id: Some(connect.client_id.into()),
            user_name: connect.user_name.map(Into::into),
        }
    }
}

impl Handshake {
    pub(super) const fn phase(&self) -> Phase {
        match self {
            Self::Awaiting(_) | Self::Deciding(..) | Self::Decided => Phase::AwaitConnect,
            Self::Challenged(..) => Phase::Authenticating,
            Self::Admitted(_) => Phase::Connected {
                extended_auth: false,
            },
        }
    }

    pub(super) const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Admitted(session) => Some(*session),
            _ => None,
        }
    }

    /// When patience with it ends.
    pub(super) const fn until(&self) -> Option<Instant> {
        match self {
            Self::Awaiting(until) | Self::Deciding(until, _) | Self::Challenged(until, _) => {
                Some(*until)
            }
            Self::Decided | Self::Admitted(_) => None,
        }
    }

    /// The CONNECT that is being decided about.
    pub(super) const fn request(&self) -> Option<&ConnectRequest> {
        match self {
            Self::Deciding(_, request) | Self::Challenged(_, request) => Some(request),
            _ => None,
        }
    }

    /// The driver wants another step of the client. Whether it had a step to decide about.
    pub(super) fn challenge(&mut self) -> bool {
        match std::mem::replace(self, Self::Decided) {
            Self::Deciding(until, request) => {
                *self = Self::Challenged(until, request);
                true
            }
            other => {
                *self = other;
                false
            }
        }
    }

    /// The client has taken a step: the driver decides, by the same time as before.
    pub(super) fn decide_again(&mut self) {
        *self = match std::mem::replace(self, Self::Decided) {
            Self::Challenged(until, request) => Self::Deciding(until, request),
            other => other,
        };
    }

    /// The driver has decided about it.
    pub(super) fn take_request(&mut self) -> Option<Box<ConnectRequest>> {
        match std::mem::replace(self, Self::Decided) {
            Self::Deciding(_, request) => Some(request),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl ConnectRequest {
    /// `client_id`: the one that counts, which may be another than its own.
    pub(crate) fn of(connect: &Connect<'_>, client_id: &str) -> Self {
        Self {
            version: connect.version,
            clean_start: connect.clean_start,
            keep_alive: connect.keep_alive,
            client_id: client_id.into(),
            announces_id: connect.client_id.is_empty(),
            user_name: connect.user_name.map(Into::into),
            will: connect.will.as_ref().map(WillRequest::of).map(Box::new),
            session_expiry_s: connect.properties.session_expiry_interval(),
            receive_maximum: connect.properties.receive_maximum(),
            topic_alias_maximum: connect.properties.topic_alias_maximum(),
            wants_response_information: connect.properties.request_response_information(),
            only_verifies: only_verifies(connect.properties),
        }
    }

    /// Whether the broker is to choose the client id.
    pub(crate) fn has_no_id(&self) -> bool {
        self.client_id.is_empty()
    }

    pub(crate) fn caller(&self) -> Caller {
        self.caller_as(Arc::clone(&self.client_id))
    }

    /// With an id that the broker may have assigned.
    pub(crate) fn caller_as(&self, client_id: Arc<str>) -> Caller {
        Caller {
            client_id: Some(client_id),
            user_name: self.user_name.clone(),
        }
    }

    /// The topics of its will are its client's own: from now on they are whole. Answers whether the
    /// Response Topic fits.
    pub(crate) fn mount_will(&mut self, mount: &Mount) -> Result<(), TooLong> {
        let Some(will) = self.will.as_deref_mut() else {
            return Ok(());
        };
        let own = std::mem::take(&mut will.properties);
        let (own, properties) = (own.as_properties(), &mut will.properties);
        mount.push_properties(own, &will.topic, properties)?;
        will.topic = mount.topic(&will.topic).into();
        Ok(())
    }

    /// The will that it gives to its client, whose id the broker may have assigned.
    pub(crate) fn will(
        &self,
        now: Instant,
        author: impl FnOnce() -> Identity,
    ) -> Option<Box<Will>> {
        let will = self.will.as_deref()?; // [MQTT311-3.1.2-12]
        let publication = Publication {
            topic: &will.topic,
            properties: will.properties.as_properties(),
            payload: &will.payload,
            qos: will.qos,
            retain: will.retain,
            expires: None,
            stamp: now,
            mark: None,
        };
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let author = author();
        Some(Box::new(Will {
            message: Arc::new(Message::new(&publication, Some(&author.client_id))),
            expiry: will.expiry_s.map(seconds),
            delay_s: will.delay_s,
            author: Some(Arc::new(author)),
        }))
    }
}

/// User property `audit` = `watch`: the deliveries to this client are left out of the audit's sums.
fn only_verifies(properties: Properties<'_>) -> bool {
    properties
        .user_properties()
        .any(|property| property == ("audit", "watch"))
}

impl WillRequest {
    fn of(will: &ConnectWill<'_>) -> Self {
        let mut properties = PropertyBuf::new();
        for property in will.properties {
            // The first two are the broker's to act on; the rest goes with the message
            // [MQTT-3.1.3-10].
            if !matches!(
                property,
                Property::WillDelayInterval(_) | Property::MessageExpiryInterval(_)
            ) {
                let added = properties.push(property);
                debug_assert!(added.is_ok(), "{added:?}");
            }
        }
        Self {
            topic: will.topic.into(),
            payload: will.payload.into(),
            qos: will.qos,
            retain: will.retain,
            properties,
            delay_s: will.properties.will_delay_interval().unwrap_or(0),
            expiry_s: will.properties.message_expiry_interval(),
        }
    }
}
