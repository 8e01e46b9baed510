//! The configuration in force, and a new one in its place.
//!
//! Invariant: a changed configuration is applied whole or not at all, and no client is disconnected
//! by it.

use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unbroken_broker_core::{LimitsError, Totals};

use super::{HandleError, Requests};
use crate::authenticator::{Door, Doors};
use crate::config::{Change, Config, Listener, changes, in_force};
use crate::listener::Seats;
use crate::mailbox::Parcel;
use crate::passwords::{PasswordFileError, Passwords};

/// How long a reload waits for shards that are busy.
const RELOAD_WAIT: Duration = Duration::from_secs(5);

/// What holds while the broker runs.
#[derive(Debug)]
pub(crate) struct InForce {
    /// What is in force, which is not what was read last where a value needs a restart. Its
    /// listeners are the open ones, in the order in which they were opened.
    config: Mutex<Arc<Config>>,
    seats: Arc<Seats>,
    totals: Arc<Totals>,
}

/// Why a changed configuration was not applied. Everything stays as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A limit is impossible.
    #[error("{0}")]
    Limits(#[from] LimitsError),
    /// A password file cannot be used.
    #[error("{0}")]
    Passwords(#[from] PasswordFileError),
    /// The broker does not take it.
    #[error("{0}")]
    Handle(#[from] HandleError),
}

impl InForce {
    pub(crate) fn new(config: Config, seats: Arc<Seats>, totals: Arc<Totals>) -> Self {
        Self {
            config: Mutex::new(Arc::new(config)),
            seats,
            totals,
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.lock())
    }

    pub(super) fn packet_bytes_max(&self) -> u64 {
        self.lock().limits.packet_bytes_max.into()
    }

    pub(super) fn connections(&self) -> u32 {
        self.seats.taken()
    }

    pub(super) fn reload(
        &self,
        config: Config,
        requests: &Requests,
    ) -> Result<Vec<Change>, ReloadError> {
        config.limits.check()?;
        let (applied, all_applied) = channel::<Infallible>();
        let changed = {
            let mut running = self.lock();
            let rules = rules(&running.listeners, &config.listeners);
            let doors = Arc::new(doors(&rules)?);
            let changed = changes(&running, &config);
            let listener_limits = listener_limits(&rules);
            requests.send_all(|| Parcel::Reconfigured {
                limits: Box::new(config.limits.clone()),
                doors: Arc::clone(&doors),
                applied: Sender::clone(&applied),
            })?;
            self.seats.set_limits(&config.limits, &listener_limits);
            self.totals.set_listener_limits(&listener_limits);
            *running = Arc::new(Config {
                listeners: rules,
                ..in_force(&running, config)
            });
            changed
        };
        drop(applied);
        // Nothing comes: it ends when the last shard has dropped its end.
        let _ = all_applied.recv_timeout(RELOAD_WAIT);
        Ok(changed)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Config>> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What holds at the open listeners once `listeners` is configured: by address, since a changed
/// file may list them in another order. One that is gone from the configuration stays open, as it
/// was, until the restart.
fn rules(open: &[Listener], listeners: &[Listener]) -> Vec<Listener> {
    let rule = |(index, now): (usize, &Listener)| {
        let same = |listener: &&Listener| listener.address() == now.address();
        let in_place = listeners.get(index).filter(same);
        in_place
            .or_else(|| listeners.iter().find(same))
            .map_or_else(
                || now.clone(),
                |listener| Listener {
                    name: now.name.clone(), // the start has told it
                    ..listener.clone()
                },
            )
    };
    open.iter().enumerate().map(rule).collect()
}

pub(crate) fn doors(rules: &[Listener]) -> Result<Doors, PasswordFileError> {
    let door = |rule: &Listener| {
        let passwords = rule
            .password_file
            .as_deref()
            .map(Passwords::read)
            .transpose()?;
        Ok(Door {
            allow_anonymous: rule.allow_anonymous,
            passwords: passwords.map(Arc::new),
        })
    };
    Ok(Doors(rules.iter().map(door).collect::<Result<_, _>>()?))
}

pub(crate) fn listener_limits(rules: &[Listener]) -> Vec<Option<u32>> {
    rules.iter().map(|rule| rule.max_connections).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(port: u16, allow_anonymous: bool) -> Listener {
        Listener {
            port,
            allow_anonymous,
            ..Listener::default()
        }
    }

    #[test]
    fn an_open_listener_keeps_its_own_rules_when_the_file_changes_their_order() {
        let open = [listener(1, true), listener(2, false), listener(3, true)];
        let new = [listener(2, false), listener(1, false)];
        assert_eq!(
            rules(&open, &new),
            [listener(1, false), listener(2, false), listener(3, true)]
        );
    }
}
