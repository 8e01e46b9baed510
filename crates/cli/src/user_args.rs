//! The flags that say as which user a command connects. Mosquitto's names.

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UserArgs {
    /// User name
    #[arg(
        short,
        long,
        value_name = "NAME",
        env = "UNBROKEN_USERNAME",
        allow_hyphen_values = true
    )]
    pub(crate) username: Option<String>,
    /// Password
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        env = "UNBROKEN_PASSWORD"
    )]
    #[arg(hide_env_values = true, allow_hyphen_values = true)]
    pub(crate) password: Option<String>,
}
