//! `unbroken-acceptance wire`: the features' step definitions for other runners of features.

use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use unbroken_acceptance::{Server, wire};

/// Our step definitions, served to other programs
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the step definitions to Cucumber by its wire protocol, to this machine only
    Wire {
        /// Port to listen on; 0 lets the system choose, and the first line printed says which
        #[arg(long)]
        port: u16,
        /// A running broker for all scenarios, instead of one for each. Its retained messages are
        /// cleared, and sessions with the scenarios' client ids ended
        #[arg(long, value_name = "HOST:PORT", value_parser = broker)]
        broker: Option<Server>,
    },
}

fn main() -> ExitCode {
    let Command::Wire { port, broker } = Arguments::parse().command;
    match serve(port, broker) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot serve on port {port}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(port: u16, broker: Option<Server>) -> io::Result<()> {
    let _prepared = wire::Steps::new(broker.clone());
    let listener = wire::listen(port)?;
    let address = listener.local_addr()?;
    let mut output = io::stdout();
    writeln!(output, "serving step definitions on {address}")?;
    output.flush()?;
    wire::serve(&listener, move || wire::Steps::new(broker.clone()))
}

fn broker(text: &str) -> Result<Server, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
    let address = addresses.next().ok_or("it has no address")?;
    Ok(Server::at(address))
}
