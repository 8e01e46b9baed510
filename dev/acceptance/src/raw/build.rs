//! Packets a client sends, built by hand.

use super::property::{Properties, Value};
use super::{Version, field, frame};

/// CONNECT: correct unless told otherwise.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Protocol version; also decides how everything after CONNECT is written.
    pub version: Version,
    /// Clean Session of 3.x, Clean Start of 5.0.
    pub clean: bool,
    /// Keep alive in seconds.
    pub keep_alive: u16,
    /// Client identifier.
    pub client_id: String,
    /// Last will.
    pub will: Option<Will>,
    /// User name.
    pub user_name: Option<String>,
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Properties, 5.0 only.
    pub properties: Properties,
}

impl Connect {
    /// A clean session with keep alive switched off.
    pub fn new(version: Version, client_id: &str) -> Self {
        Self {
            version,
            clean: true,
            keep_alive: 0,
            client_id: client_id.to_owned(),
            will: None,
            user_name: None,
            password: None,
            properties: Properties::none(),
        }
    }

    /// [`Connect::new`] for 5.0.
    pub fn v5(client_id: &str) -> Self {
        Self::new(Version::V5, client_id)
    }

    /// [`Connect::new`] for 3.1.1.
    pub fn v311(client_id: &str) -> Self {
        Self::new(Version::V3_1_1, client_id)
    }

    /// Goes on with a session, or starts one that outlives the connection.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.clean = false;
        if self.version == Version::V5 {
            self = self.property(super::id::SESSION_EXPIRY_INTERVAL, 3600);
        }
        self
    }

    /// Clears the clean flag and nothing else.
    #[must_use]
    pub fn not_clean(mut self) -> Self {
        self.clean = false;
        self
    }

    /// Sets the keep alive in seconds.
    #[must_use]
    pub fn keep_alive(mut self, seconds: u16) -> Self {
        self.keep_alive = seconds;
        self
    }

    /// Adds a last will.
    #[must_use]
    pub fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    /// Adds a user name.
    #[must_use]
    pub fn user_name(mut self, name: &str) -> Self {
        self.user_name = Some(name.to_owned());
        self
    }

    /// Adds a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.as_bytes().to_vec());
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn property(mut self, property: u8, value: impl Into<Value>) -> Self {
        self.properties = self.properties.with(property, value);
        self
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let v5 = self.version == Version::V5;
        let mut flags = u8::from(self.clean) << 1;
        let mut payload = field(&self.client_id);
        if let Some(will) = &self.will {
            flags |= 0x04 | will.qos << 3 | u8::from(will.retain) << 5;
            if v5 {
                payload.extend(will.properties.encode());
            }
            payload.extend(field(&will.topic));
            payload.extend(field(&will.payload));
        }
        if let Some(name) = &self.user_name {
            flags |= 0x80;
            payload.extend(field(name));
        }
        if let Some(password) = &self.password {
            flags |= 0x40;
            payload.extend(field(password));
        }
        let properties = if v5 {
            self.properties.encode()
        } else {
            Vec::new()
        };
        frame(
            0x10,
            &[
                &field(self.version.protocol_name()),
                &[self.version.level(), flags],
                &self.keep_alive.to_be_bytes(),
                &properties,
                &payload,
            ],
        )
    }
}

/// The last will inside a CONNECT.
#[derive(Clone, Debug)]
pub struct Will {
    /// Where it goes.
    pub topic: String,
    /// What it says.
    pub payload: Vec<u8>,
    /// Its quality of service.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// Its properties, 5.0 only.
    pub properties: Properties,
}

impl Will {
    /// A will of quality 0, not retained.
    pub fn new(topic: &str, payload: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            payload: payload.into(),
            qos: 0,
            retain: false,
            properties: Properties::none(),
        }
    }

    /// Sets the quality of service.
    #[must_use]
    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    /// Asks for the will to be retained.
    #[must_use]
    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn property(mut self, property: u8, value: impl Into<Value>) -> Self {
        self.properties = self.properties.with(property, value);
        self
    }
}

/// PUBLISH, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Sent again.
    pub dup: bool,
    /// Quality of service; 3 can be written for a test.
    pub qos: u8,
    /// Retain flag.
    pub retain: bool,
    /// Topic name.
    pub topic: String,
    /// Packet identifier, written when the quality is above 0.
    pub packet_id: u16,
    /// Properties, 5.0 only.
    pub properties: Properties,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Publish {
    /// A message of quality 0, not retained.
    pub fn new(topic: &str, payload: impl AsRef<[u8]>) -> Self {
        Self {
            dup: false,
            qos: 0,
            retain: false,
            topic: topic.to_owned(),
            packet_id: 0,
            properties: Properties::none(),
            payload: payload.as_ref().to_vec(),
        }
    }

    /// Sets the quality; the client that publishes it gives the identifier.
    #[must_use]
    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    /// Sets the packet identifier.
    #[must_use]
    pub fn packet_id(mut self, packet_id: u16) -> Self {
        self.packet_id = packet_id;
        self
    }

    /// Sets the retain flag.
    #[must_use]
    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    /// Sets the DUP flag.
    #[must_use]
    pub fn dup(mut self) -> Self {
        self.dup = true;
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn property(mut self, property: u8, value: impl Into<Value>) -> Self {
        self.properties = self.properties.with(property, value);
        self
    }

    /// The payload as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }

    /// The bytes.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        let first = 0x30 | u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain);
        let id = if self.qos == 0 {
            vec![]
        } else {
            self.packet_id.to_be_bytes().to_vec()
        };
        let properties = section(version, &self.properties);
        frame(
            first,
            &[&field(&self.topic), &id, &properties, &self.payload],
        )
    }
}

/// SUBSCRIBE.
#[derive(Clone, Debug, Default)]
pub struct Subscribe {
    /// Properties, 5.0 only.
    pub properties: Properties,
    /// Filters with their option byte.
    pub filters: Vec<(String, u8)>,
}

impl Subscribe {
    /// One filter with its option byte (the quality, in its simplest form).
    pub fn to(filter: &str, options: u8) -> Self {
        Self::default().and(filter, options)
    }

    /// One more filter.
    #[must_use]
    pub fn and(mut self, filter: &str, options: u8) -> Self {
        self.filters.push((filter.to_owned(), options));
        self
    }

    /// Adds a property.
    #[must_use]
    pub fn property(mut self, property: u8, value: impl Into<Value>) -> Self {
        self.properties = self.properties.with(property, value);
        self
    }

    /// Adds a subscription identifier.
    #[must_use]
    pub fn identified(self, identifier: u32) -> Self {
        self.property(super::id::SUBSCRIPTION_IDENTIFIER, identifier)
    }

    /// The bytes.
    pub fn encode(&self, version: Version, packet_id: u16) -> Vec<u8> {
        let mut filters = Vec::new();
        for (filter, options) in &self.filters {
            filters.extend(field(filter));
            filters.push(*options);
        }
        let properties = section(version, &self.properties);
        frame(0x82, &[&packet_id.to_be_bytes(), &properties, &filters])
    }
}

/// Option bits of a subscription, to be added to the quality.
impl Subscribe {
    /// Do not send me what I publish myself.
    pub const NO_LOCAL: u8 = 0x04;
    /// Keep the retain flag as it was published.
    pub const RETAIN_AS_PUBLISHED: u8 = 0x08;
    /// Retained messages only for a subscription that is new.
    pub const RETAINED_IF_NEW: u8 = 0x10;
    /// No retained messages at all.
    pub const NO_RETAINED: u8 = 0x20;
}

/// UNSUBSCRIBE.
#[derive(Clone, Debug)]
pub struct Unsubscribe(Vec<String>);

impl Unsubscribe {
    /// From these filters.
    pub fn from(filters: &[&str]) -> Self {
        Self(filters.iter().map(|&filter| filter.to_owned()).collect())
    }

    /// The bytes.
    pub fn encode(&self, version: Version, packet_id: u16) -> Vec<u8> {
        let filters: Vec<u8> = self.0.iter().flat_map(field).collect();
        let properties = section(version, &Properties::none());
        frame(0xa2, &[&packet_id.to_be_bytes(), &properties, &filters])
    }
}

fn section(version: Version, properties: &Properties) -> Vec<u8> {
    if version == Version::V5 {
        properties.encode()
    } else {
        assert!(properties.is_empty(), "{version:?} has no properties");
        Vec::new()
    }
}
