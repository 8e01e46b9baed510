//! What there is around a running broker: where its configuration comes from, and the thread that
//! reads it again.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::BrokerHandle;
use crate::config::{Applies, Effective, EffectiveValue, changes};
use crate::listener::OpenListener;
use crate::notice::Notice;

#[derive(Debug)]
pub(crate) struct Around {
    notify: Sender<Notice>,
    /// As it was read last; `None`: the broker was not started from a configuration's sources.
    loaded: Mutex<Option<Effective>>,
}

/// A value of the configuration in force.
#[derive(Clone, Debug)]
pub struct ConfigValue {
    /// The value, and where it comes from.
    pub value: EffectiveValue,
    /// What it is after a restart, if that is another value.
    pub after_restart: Option<String>,
}

impl Around {
    pub(crate) const fn new(notify: Sender<Notice>) -> Self {
        Self {
            notify,
            loaded: Mutex::new(None),
        }
    }

    fn loaded(&self) -> MutexGuard<'_, Option<Effective>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BrokerHandle {
    /// The open listeners, in the order of the configuration, each once for each of its addresses.
    pub fn listeners(&self) -> &[OpenListener] {
        &self.began.listeners
    }

    /// Shard threads.
    pub fn shards(&self) -> u8 {
        self.requests.shards()
    }

    /// Reads the configuration again, as SIGHUP does. Returns what has changed; an error says why
    /// nothing has, or that it is not known.
    pub fn read_config_again(&self, timeout: Duration) -> Result<Vec<String>, String> {
        let (answer, answered) = channel();
        let ends = "the broker is ending";
        let sent = self.around.notify.send(Notice::Reload(answer));
        sent.map_err(|_| ends.to_owned())?;
        answered
            .recv_timeout(timeout)
            .map_err(|error| match error {
                RecvTimeoutError::Disconnected => ends.to_owned(),
                RecvTimeoutError::Timeout => format!(
                    "the configuration was not read within {} s; the log will say what has changed",
                    timeout.as_secs()
                ),
            })?
    }

    /// Every value of the configuration in force, in the order of the example file.
    pub fn config_values(&self) -> Vec<ConfigValue> {
        let config = self.config();
        let loaded = self.around.loaded();
        let (effective, waiting) = match &*loaded {
            Some(loaded) => {
                let waiting = changes(&config, &loaded.config).into_iter();
                let waiting = waiting.filter(|change| change.applies == Applies::Restart);
                let waiting: Vec<_> = waiting.collect();
                (loaded.with((*config).clone()), waiting)
            }
            None => (Effective::without_origins((*config).clone()), Vec::new()),
        };
        drop(loaded);
        let values = effective.values().into_iter().map(|value| {
            let change = waiting.iter().find(|change| change.name == value.name);
            ConfigValue {
                after_restart: change.map(|change| change.new.clone()),
                value,
            }
        });
        values.collect()
    }

    /// The configuration was read like this.
    pub(crate) fn note_loaded(&self, effective: Effective) {
        *self.around.loaded() = Some(effective);
    }
}
