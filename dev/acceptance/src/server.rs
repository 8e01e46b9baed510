//! A broker by its address: what can be done with any that listens, however it was started.

use std::net::{Ipv4Addr, SocketAddr};

use crate::client::Client;
use crate::door::Door;
use crate::raw::{Connect, Publish, Subscribe, Version};

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    address: SocketAddr,
    /// For raw clients.
    door: Door,
}

impl Server {
    /// The one at this address.
    pub fn at(address: SocketAddr) -> Self {
        Self::behind(address, Door::tcp(address))
    }

    /// The one at this address, which raw clients reach in another way.
    pub(crate) fn behind(address: SocketAddr, door: Door) -> Self {
        Self { address, door }
    }

    /// Where it listens for programs.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection on which nothing has been said; replies are read as 5.0.
    pub fn open(&self) -> Client {
        self.open_as(Version::V5)
    }

    /// A connection on which nothing has been said, read in the given version.
    pub fn open_as(&self, version: Version) -> Client {
        Client::through(&self.door, None, version)
    }

    /// A 5.0 client with a clean session.
    #[track_caller]
    pub fn connect(&self, client_id: &str) -> Client {
        self.accept(&Connect::v5(client_id))
    }

    /// A client of the given version with a clean session.
    #[track_caller]
    pub fn connect_as(&self, version: Version, client_id: &str) -> Client {
        self.accept(&Connect::new(version, client_id))
    }

    /// A client that connects like this and is accepted.
    #[track_caller]
    pub fn accept(&self, connect: &Connect) -> Client {
        self.open_as(connect.version).accepted(connect)
    }

    /// A connection on which this CONNECT was sent and nothing was read.
    pub fn attempt(&self, connect: &Connect) -> Client {
        let mut client = self.open_as(connect.version);
        client.send(connect.encode());
        client
    }

    /// The same from another address of this machine.
    pub fn attempt_from(&self, source: Ipv4Addr, connect: &Connect) -> Client {
        let mut client = Client::through(&self.door, Some(source), connect.version);
        client.send(connect.encode());
        client
    }

    /// Lets more than a second pass on the broker's own clock: a client with a keep alive of one
    /// second says nothing until it is dropped.
    #[track_caller]
    pub fn let_a_second_pass(&self) {
        self.accept(&Connect::v5("clock").keep_alive(1))
            .drain_to_close();
    }

    /// Clears every retained message that a client may see.
    #[track_caller]
    pub fn clear_retained(&self) {
        let mut reader = self.connect("acceptance-reader");
        let mut cleaner = self.connect("acceptance-cleaner");
        reader.subscribe(&Subscribe::to("#", 0));
        for message in reader.messages_from(&mut cleaner) {
            if message.retain {
                cleaner.publish(Publish::new(&message.topic, "").qos(1).retained());
            }
        }
        reader.disconnect();
        cleaner.disconnect();
    }

    /// Ends the session of this client id, if there is one.
    #[track_caller]
    pub fn end_session(&self, client_id: &str) {
        self.connect(client_id).disconnect();
    }
}
