//! A broker that runs already, and how to connect to it.

use unbroken_client::{ConnectTo, Options, Transport};

/// Where a broker is, what lies below MQTT there, and as whom to connect.
///
/// A, B and C connect through relays in this process, so only the relays speak TLS or WebSocket.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its address.
    pub to: ConnectTo,
    /// What lies below MQTT.
    pub transport: Transport,
    /// Who A, B and C say they are.
    pub user: User,
}

/// A user name and a password, each if there is one.
#[derive(Clone, Default)]
pub struct User {
    /// The user name.
    pub name: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl Remote {
    pub(crate) fn options(&self) -> Options {
        Options::new(self.to.clone()).transport(self.transport.clone())
    }
}

impl User {
    /// For a command, since other users of the machine can read its arguments.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let variables = [
            ("UNBROKEN_USERNAME", self.name.as_deref()),
            ("UNBROKEN_PASSWORD", self.password.as_deref()),
        ];
        let given = variables.into_iter();
        given.filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    pub(crate) fn identify(&self, mut options: Options) -> Options {
        if let Some(name) = &self.name {
            options = options.user_name(name.as_str());
        }
        match &self.password {
            Some(password) => options.password(password.as_str()),
            None => options,
        }
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("User");
        shown.field("name", &self.name);
        shown.finish_non_exhaustive()
    }
}
