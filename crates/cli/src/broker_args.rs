//! The flags of `audit` and `pipe` that say which broker to use, and as whom.

use std::time::Duration;

use unbroken_client::{ConnectTo, Options, TotalDuration};

/// How long a broker may be out of reach before a command gives up.
const PATIENCE: TotalDuration = TotalDuration(Duration::from_mins(1));

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct BrokerArgs {
    /// Host of the broker
    #[arg(short = 'h', long, default_value = "localhost", env = "UNBROKEN_HOST")]
    host: String,
    /// Port of the broker
    #[arg(short, long, default_value_t = 1883, env = "UNBROKEN_PORT")]
    port: u16,
    /// User name
    #[arg(short, long, value_name = "NAME", env = "UNBROKEN_USERNAME")]
    username: Option<String>,
    /// Password
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        env = "UNBROKEN_PASSWORD"
    )]
    #[arg(hide_env_values = true)]
    password: Option<String>,
    /// Topics of checkpoints and repairs begin with this
    #[arg(long, value_name = "TOPIC", default_value = "audit")]
    prefix: String,
}

impl BrokerArgs {
    /// MQTT 5.0 to that broker.
    pub(crate) fn options(&self) -> Options {
        let to = ConnectTo::new(self.host.as_str(), self.port);
        let options = Options::new(to).patience(PATIENCE);
        match (&self.username, &self.password) {
            (None, None) => options,
            (name, password) => options.credentials(
                name.clone().unwrap_or_default(),
                password.clone().unwrap_or_default(),
            ),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}
