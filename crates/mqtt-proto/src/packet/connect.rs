//! CONNECT: the first packet of a client.

use core::fmt;

use crate::{property::Properties, qos::QoS, version::Version};

/// A client asks for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version the connection will speak.
    pub version: Version,
    /// Clean Session in 3.x, Clean Start in 5.0.
    pub clean_start: bool,
    /// In seconds; 0 turns it off.
    pub keep_alive: u16,
    /// May be empty; whether that is allowed is the server's decision.
    pub client_id: &'a str,
    /// To be published when the client is lost.
    pub will: Option<Will<'a>>,
    /// Who it says it is.
    pub user_name: Option<&'a str>,
    /// Any bytes.
    pub password: Option<&'a [u8]>,
    /// Empty in 3.x.
    pub properties: Properties<'a>,
    /// The top bit of the level, by which Mosquitto's bridges make themselves known.
    pub bridge: bool,
}

/// The message that the server publishes for a client that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub struct Will<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: QoS,
    pub retain: bool,
    pub properties: Properties<'a>,
}

/// The password by its size.
impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive", &self.keep_alive)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("password_len", &self.password.map(<[u8]>::len))
            .field("properties", &self.properties)
            .field("bridge", &self.bridge)
            .finish()
    }
}
