//! `unbroken serve`: runs a broker, with signals.

use std::io::{self, Write};

use crate::config::{Applies, Change, ConfigError, OnError, Sources};
use crate::file_watch::{self, Files};
use crate::handle::BrokerHandle;
use crate::listener::OpenListener;
use crate::logging::{LogError, Logging};
use crate::notice::{Notice, Signal};
use crate::server::{Server, ServerError, StartError};
use crate::signals;

/// Why serving ended without a request to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The log cannot be set up.
    #[error("{0}")]
    Log(#[from] LogError),
    /// The broker could not be started.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The broker had to end.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// What runs beside the broker could not be started.
    #[error("{0}")]
    Beside(String),
    /// Signals cannot be received, or `out` cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT, then drains. Writes a line to `out` for each listener once it is
/// open. SIGHUP reads `sources` again and applies what has changed if all of it is valid.
///
/// `beside` starts what runs beside the broker, such as gateways and the admin server, once
/// listeners are open. What it returns is dropped before the broker ends or drains; an error ends
/// the broker.
pub fn serve<B>(
    sources: &Sources,
    out: &mut dyn Write,
    beside: impl FnOnce(&BrokerHandle, &[OpenListener], &mut dyn Write) -> Result<B, String>,
) -> Result<(), ServeError> {
    let effective = sources.load()?;
    let config = effective.config.clone();
    let logging = Logging::start(&config.log)?;
    // Before they are read: what is written from now on is a change.
    let files = Files::of(&config);
    let mut server = Server::start(config)?;
    server.handle().note_loaded(effective);
    signals::watch(server.notifier())?;
    let watched = file_watch::watch(files, server.handle().clone(), server.notifier())?;
    print_listeners(out, server.listeners())?;
    let beside = beside(server.handle(), server.listeners(), out).map_err(ServeError::Beside)?;
    out.flush()?;
    loop {
        match server.next_notice() {
            Some(Notice::Signal(Signal::Reload)) => {
                let _ = reload(server.handle(), sources, &logging); // the log has it
            }
            Some(Notice::Reload(answer)) => {
                let outcome = reload(server.handle(), sources, &logging);
                let changes = outcome.map(|it| it.iter().map(Change::to_string).collect());
                let _ = answer.send(changes); // the command may have gone
            }
            Some(Notice::FilesChanged { is_retry }) => {
                if !reload_files(server.handle(), sources, &logging, is_retry) {
                    watched.reload_failed();
                }
            }
            Some(Notice::Signal(Signal::Terminate)) | None => break,
            Some(Notice::Failed { thread, reason }) => {
                tracing::error!(thread, reason, "a thread has failed: the broker ends");
                return Err(ServerError::Thread { thread, reason }.into());
            }
            Some(Notice::StoreFailed { reason }) => match server.handle().config().storage.on_error
            {
                OnError::Exit => {
                    tracing::error!(reason, "the store has failed: the broker ends");
                    server.store_failed(reason.clone());
                    return Err(ServerError::Store { reason }.into());
                }
                OnError::ReadOnly => {
                    tracing::error!(
                        reason,
                        "the store has failed: the broker is read-only; clients that need the \
                         store are refused until it is restarted"
                    );
                    server.store_failed(reason);
                }
            },
            // With either setting: the next start handles the damage.
            Some(Notice::StoreDamaged { reason }) => {
                tracing::error!(reason, "the store is damaged: the broker ends");
                server.store_failed(reason.clone());
                return Err(ServerError::Store { reason }.into());
            }
            Some(Notice::ShardEnded) => {
                let (thread, reason) = (
                    "shard".to_owned(),
                    "it ended without being asked to".to_owned(),
                );
                return Err(ServerError::Thread { thread, reason }.into());
            }
        }
    }
    drop((beside, watched));
    let deadline = server.handle().config().broker.drain_timeout;
    tracing::info!(
        connections = server.handle().connections(),
        ?deadline,
        "draining"
    );
    log_listeners(&server);
    server.drain(deadline)?;
    tracing::info!("stopped");
    Ok(())
}

/// A record for each listener, and none for each client.
fn log_listeners(server: &Server) {
    let handle = server.handle();
    let config = handle.config();
    let connections = handle.connections_by_listener();
    for (listener, connections) in config.listeners.iter().zip(connections) {
        let name = listener.name.clone();
        let label = name.unwrap_or_else(|| listener.address().to_string());
        tracing::info!(
            listener = label,
            connections,
            "the broker stops: disconnecting clients"
        );
    }
}

fn print_listeners(out: &mut dyn Write, listeners: &[OpenListener]) -> io::Result<()> {
    for listener in listeners {
        let (address, protocol) = (&listener.address, listener.protocol.as_str());
        write!(
            out,
            "listening on {address} ({protocol}, {})",
            listener.admits
        )?;
        match &listener.name {
            Some(name) => writeln!(out, " as {name}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

/// Applies the configuration as it is now, and logs what has changed; an invalid one is logged and
/// changes nothing.
fn reload(
    broker: &BrokerHandle,
    sources: &Sources,
    logging: &Logging,
) -> Result<Vec<Change>, String> {
    let applied = apply(broker, sources, logging);
    match &applied {
        Ok(changed) => log_changes(changed),
        Err(error) => {
            tracing::error!(
                %error,
                "cannot reload the configuration: it is not valid; nothing was changed"
            );
        }
    }
    applied.map_err(|error| error.to_string())
}

/// Applies changed files of listeners. Whether they could be used: that they could not is logged
/// the first time.
fn reload_files(
    broker: &BrokerHandle,
    sources: &Sources,
    logging: &Logging,
    is_retry: bool,
) -> bool {
    if !is_retry {
        tracing::info!("certificates, keys or lists of listeners have changed: reloading");
        return reload(broker, sources, logging).is_ok();
    }
    let applied = apply(broker, sources, logging);
    applied.is_ok_and(|changed| {
        log_changes(&changed);
        true
    })
}

fn apply(
    broker: &BrokerHandle,
    sources: &Sources,
    logging: &Logging,
) -> Result<Vec<Change>, ServeError> {
    sources
        .load()
        .map_err(ServeError::from)
        .and_then(|effective| {
            let config = effective.config.clone();
            Logging::check(&config.log)?;
            let log = config.log.clone();
            let changed = broker
                .reload(config)
                .map_err(|error| io::Error::other(error.to_string()))?;
            broker.note_loaded(effective);
            logging.change(&log)?;
            Ok(changed)
        })
}

fn log_changes(changed: &[Change]) {
    if changed.is_empty() {
        tracing::info!("configuration reloaded; no changes (files that it names were read again)");
    }
    for change in changed {
        match change.applies {
            Applies::Live => tracing::info!(%change, "configuration changed"),
            Applies::Restart => tracing::warn!(%change, "configuration changed"),
        }
    }
}
