//! `unbroken bench`: the command of the load generator, over any transport.

use std::process::ExitCode;

use unbroken_load::cli;

use crate::exit::{self, Failure};
use crate::transport_args::TransportArgs;
use crate::url::Url;

#[derive(Debug, clap::Args)]
#[group(id = "bench")] // the load generator's arguments have the name of this type
pub(crate) struct Args {
    #[command(flatten)]
    load: cli::Args,
    /// Broker, user and transport in one: `mqtt://[user[:password]@]host[:port]`; mqtts, ws, wss
    /// likewise
    #[arg(short = 'L', long, global = true, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    transport: TransportArgs,
}

pub(crate) fn run(args: Args) -> Result<ExitCode, Failure> {
    let usage = |error| Failure::new(exit::USAGE, error);
    let mut load = args.load;
    let url = args.url.as_deref().map(Url::parse).transpose();
    let url = url.map_err(usage)?;
    let scheme = url.as_ref().map(|url| url.scheme);
    let mut socket = args.transport.unix();
    if let Some(url) = url {
        if let Some(topic) = url.topic {
            return Err(usage(format!(
                "-L names topic {topic:?}: the scenario chooses the topics, leave it out"
            )));
        }
        match url.socket {
            Some(path) => socket = socket.or(Some(path)),
            None => load.at(url.host, url.port),
        }
        if let Some(name) = url.user_name {
            load.identify(name, url.password);
        }
    }
    let transport = args.transport.resolve(scheme).map_err(usage)?;
    cli::run(load, &transport, socket).map_err(|error| Failure::new(exit::UNAVAILABLE, error))
}
