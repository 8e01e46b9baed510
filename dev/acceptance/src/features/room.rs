//! What a scenario has in hand: a broker, and by name the clients, messages and commands it
//! speaks of.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::raw::{Connect, Publish, Version};
use crate::server::Server;
use crate::{Broker, Client, Launch};
use tempfile::TempDir;

use crate::features::command::{Finished, Running};
use crate::features::peer::Peer;
use crate::features::pending;

/// Everything a scenario has in hand.
#[derive(Debug)]
pub(crate) struct Room {
    broker: Option<Broker>,
    /// Somebody else's, used in place of one that the scenario starts.
    given: Option<Server>,
    /// Client ids that the given broker knows nothing more of.
    fresh: HashSet<String>,
    /// The version that clients speak unless told otherwise.
    pub(crate) version: Version,
    /// Clients that are connected.
    peers: HashMap<String, Peer>,
    /// Clients that need no names.
    pub(crate) crowd: Vec<Client>,
    /// How each client connected last, so that it can do so again.
    pub(crate) connects: HashMap<String, Connect>,
    /// Who acted last in a way that may cause messages for others.
    pub(crate) last_actor: Option<String>,
    /// The message each client received last.
    pub(crate) received: HashMap<String, Publish>,
    /// The command that was run last.
    pub(crate) finished: Option<Finished>,
    /// Commands that are still running.
    pub(crate) running: HashMap<String, Running>,
    /// Stamped messages as they were published, with the checkpoints behind them.
    pub(crate) recording: Vec<Publish>,
    /// The root of a lane, as somebody showed it.
    pub(crate) root: Option<String>,
    /// Where commands run and find files.
    files: TempDir,
}

impl Room {
    /// Of a scenario that starts its broker, or uses the given one.
    pub(crate) fn with(given: Option<Server>) -> Self {
        Self {
            broker: None,
            given,
            fresh: HashSet::new(),
            version: Version::V5,
            peers: HashMap::new(),
            crowd: Vec::new(),
            connects: HashMap::new(),
            last_actor: None,
            received: HashMap::new(),
            finished: None,
            running: HashMap::new(),
            recording: Vec::new(),
            root: None,
            files: tempfile::tempdir().expect("a temporary directory can be made"),
        }
    }

    /// Starts a broker with no wishes; a given one is emptied instead.
    pub(crate) fn start(&mut self) {
        match &self.given {
            Some(given) => given.clear_retained(),
            None => self.broker = Some(Launch::default().start()),
        }
    }

    /// Starts the broker as it was described, which is not possible with a given one.
    pub(crate) fn start_as(&mut self, launch: Launch) {
        if self.given.is_some() {
            pending("the broker is given, and this scenario starts its own in another way");
        }
        self.broker = Some(launch.start());
    }

    /// Where the broker of the scenario listens.
    pub(crate) fn server(&self) -> Server {
        match &self.given {
            Some(given) => given.clone(),
            None => (**self.broker()).clone(),
        }
    }

    /// The broker that the scenario started.
    pub(crate) fn broker(&self) -> &Broker {
        match &self.broker {
            Some(broker) => broker,
            None => self.no_broker(),
        }
    }

    /// The broker, to wait for its end.
    pub(crate) fn broker_mut(&mut self) -> &mut Broker {
        if self.broker.is_none() {
            self.no_broker();
        }
        self.broker.as_mut().expect("it was looked for")
    }

    fn no_broker(&self) -> ! {
        assert!(self.given.is_some(), "the scenario has no broker");
        pending("the broker is given, and not ours to stop or look into")
    }

    /// Ends what a given broker has of this client from another scenario.
    pub(crate) fn make_room_for(&mut self, client_id: &str) {
        let Some(given) = &self.given else { return };
        if !client_id.is_empty() && self.fresh.insert(client_id.to_owned()) {
            given.end_session(client_id);
        }
    }

    /// The broker has ended, and with it every connection.
    pub(crate) fn forget_clients(&mut self) {
        self.peers.clear();
        self.crowd.clear();
        self.last_actor = None;
    }

    /// The directory commands run in.
    pub(crate) fn directory(&self) -> &Path {
        self.files.path()
    }

    /// Writes a file where commands find it.
    pub(crate) fn write_file(&self, name: &str, content: &str) {
        fs::write(self.directory().join(name), content).expect("the directory is writable");
    }

    /// What a file in that directory holds.
    pub(crate) fn read_file(&self, name: &str) -> String {
        fs::read_to_string(self.directory().join(name)).expect("it is there, and text")
    }

    /// Says who may read a file.
    pub(crate) fn allow_file(&self, name: &str, mode: u32) {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.directory().join(name), mode).expect("it is there, and ours");
    }

    /// A connected client.
    pub(crate) fn peer(&mut self, name: &str) -> &mut Peer {
        self.peers
            .get_mut(name)
            .unwrap_or_else(|| panic!("{name} is not connected"))
    }

    /// A connected client that is not of somebody else.
    pub(crate) fn client(&mut self, name: &str) -> &mut Client {
        match self.peer(name) {
            Peer::Raw(client) => client,
            Peer::Program(_) => panic!("{name} is a client that this step cannot look into"),
        }
    }

    /// Adds a client that has connected.
    pub(crate) fn add(&mut self, name: &str, peer: impl Into<Peer>) {
        self.peers.insert(name.to_owned(), peer.into());
    }

    /// Takes a client out, to end it.
    pub(crate) fn remove(&mut self, name: &str) -> Peer {
        self.last_actor = Some(name.to_owned());
        self.peers
            .remove(name)
            .unwrap_or_else(|| panic!("{name} is not connected"))
    }

    /// Connects a client and remembers how.
    pub(crate) fn connect(&mut self, name: &str, connect: Connect) {
        self.make_room_for(&connect.client_id);
        let client = self.server().accept(&connect);
        self.connects.insert(name.to_owned(), connect);
        self.add(name, client);
    }

    /// Everything that was caused so far and is for this client has arrived. Gives what it was.
    pub(crate) fn everything_for(&mut self, name: &str) -> Vec<Publish> {
        let mut reader = match self.remove_quietly(name) {
            Peer::Raw(client) => client,
            Peer::Program(_) => panic!("{name} is a client that this step cannot look into"),
        };
        // Whoever acted last publishes the marker, because messages of one client keep their order.
        let actor = self
            .last_actor
            .clone()
            .filter(|actor| self.peers.contains_key(actor));
        let messages = match actor.map(|actor| self.remove_quietly(&actor)) {
            Some(Peer::Raw(mut client)) => {
                let messages = reader.messages_from(&mut client);
                let actor = self.last_actor.clone().unwrap_or_default();
                self.add(&actor, client);
                messages
            }
            other => {
                if let Some(peer) = other {
                    let actor = self.last_actor.clone().unwrap_or_default();
                    self.add(&actor, peer);
                }
                let mut witness = self.server().connect("witness");
                reader.messages_from(&mut witness)
            }
        };
        self.add(name, reader);
        messages
    }

    fn remove_quietly(&mut self, name: &str) -> Peer {
        self.peers
            .remove(name)
            .unwrap_or_else(|| panic!("{name} is not connected"))
    }
}
