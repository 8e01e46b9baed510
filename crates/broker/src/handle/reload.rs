//! The configuration in force, and its replacement.
//!
//! Invariant: a changed configuration is applied whole or not at all, and no client is disconnected
//! by it.

use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unbroken_broker_core::{LimitsError, Policy, PolicyError, RuleSet, Totals};

use super::{HandleError, Requests};
use crate::access::{self, AccessError};
use crate::authenticator::{AuthRules, ListenerAuth};
use crate::channel::DriverEvent;
use crate::config::{Change, Config, Listener, Protocol, changes, in_force};
use crate::listener::ConnectionPermits;
use crate::passwords::{PasswordFileError, Passwords};
use crate::request::Request;
use crate::tls::{NewRules, TlsError, TlsListener};

/// How long a reload waits for busy shards.
const RELOAD_WAIT: Duration = Duration::from_secs(5);
/// The number of the policy that a broker starts with.
const FIRST_POLICY: u64 = 1;

/// What is in force while the broker runs.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Values that need a restart are as at the start. Its listeners are the open ones, in the
    /// order in which they were opened.
    config: Mutex<Arc<Config>>,
    /// Held while the shards are given a policy, so that all get them in one order.
    access: Mutex<Access>,
    permits: Arc<ConnectionPermits>,
    totals: Arc<Totals>,
    /// Of each open listener; `None`: its clients speak no TLS.
    tls: Vec<Option<Arc<TlsListener>>>,
}

/// The access rules in force: a client must be allowed by both.
#[derive(Debug)]
pub(crate) struct Access {
    /// The number of the policy.
    generation: u64,
    of_config: Vec<RuleSet>,
    of_program: Vec<RuleSet>,
}

impl Access {
    /// The rules that a broker starts with.
    pub(crate) fn start(config: &Config, of_program: Vec<RuleSet>) -> Result<Self, AccessError> {
        Ok(Self {
            generation: FIRST_POLICY,
            of_config: access::rule_sets(&config.listeners, &config.roles)?,
            of_program,
        })
    }

    /// Compiles them; `None`: there are none.
    pub(crate) fn policy(&self) -> Result<Option<Arc<Policy>>, PolicyError> {
        let sets = [&*self.of_config, &*self.of_program].concat();
        if sets.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Policy::compile(self.generation, sets)?)))
    }
}

/// Why a changed configuration was not applied. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A limit is impossible.
    #[error("{0}")]
    Limits(#[from] LimitsError),
    /// A password file cannot be used.
    #[error("{0}")]
    Passwords(#[from] PasswordFileError),
    /// Certificates, keys or revocation lists cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The broker did not accept it.
    #[error("{0}")]
    Handle(#[from] HandleError),
    /// Access rules cannot be compiled.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// The configuration's access rules cannot be used.
    #[error("{0}")]
    Access(#[from] AccessError),
}

impl InForce {
    pub(crate) fn new(
        config: Config,
        access: Access,
        permits: Arc<ConnectionPermits>,
        totals: Arc<Totals>,
        tls: Vec<Option<Arc<TlsListener>>>,
    ) -> Self {
        Self {
            config: Mutex::new(Arc::new(config)),
            access: Mutex::new(access),
            permits,
            totals,
            tls,
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.lock())
    }

    pub(super) fn packet_bytes_max(&self) -> u64 {
        self.lock().limits.packet_bytes_max.into()
    }

    pub(super) fn connections(&self) -> u32 {
        self.permits.taken()
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
            let auth_rules = Arc::new(auth_rules(&rules)?);
            let certificates = self.read_certificates(&rules, &config.listeners)?;
            self.reload_access(access::rule_sets(&rules, &config.roles)?, requests)?;
            let changed = changes(&running, &config);
            let listener_limits = listener_limits(&rules);
            requests.send_all(|| DriverEvent::Reconfigured {
                limits: Box::new(config.limits.clone()),
                auth_rules: Arc::clone(&auth_rules),
                applied: Sender::clone(&applied),
            })?;
            for (tls, new) in certificates {
                tls.put_in_force(new);
            }
            self.permits.set_limits(&config.limits, &listener_limits);
            self.totals.set_listener_limits(&listener_limits);
            *running = Arc::new(Config {
                listeners: rules,
                ..in_force(&running, config)
            });
            changed
        };
        drop(applied);
        // Nothing is sent: it ends when the last shard has dropped its sender.
        let _ = all_applied.recv_timeout(RELOAD_WAIT);
        Ok(changed)
    }

    /// Reads the files of all listeners with TLS that are still configured; none is in force yet.
    fn read_certificates(
        &self,
        rules: &[Listener],
        configured: &[Listener],
    ) -> Result<Vec<(&TlsListener, NewRules)>, TlsError> {
        let is_configured = |rule: &Listener| {
            let address = rule.address();
            configured.iter().any(|it| it.address() == address)
        };
        let of_rule = self.tls.iter().map(Option::as_deref).zip(rules);
        let read = of_rule.filter_map(|(tls, rule)| {
            let tls = tls.filter(|_| is_configured(rule))?;
            Some(tls.read_again(&rule.tls).map(|new| (tls, new)))
        });
        read.collect()
    }

    /// The rules of the program that embeds the broker are others.
    pub(super) fn set_access(
        &self,
        sets: Vec<RuleSet>,
        requests: &Requests,
        timeout: Duration,
    ) -> Result<(), ReloadError> {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let of_config = access.of_config.clone();
        replace(&mut access, of_config, sets, requests, timeout)
    }

    /// Those of the configuration may be others.
    fn reload_access(&self, sets: Vec<RuleSet>, requests: &Requests) -> Result<(), ReloadError> {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if access.of_config == sets {
            return Ok(());
        }
        let of_program = access.of_program.clone();
        match replace(&mut access, sets, of_program, requests, RELOAD_WAIT) {
            // A busy shard puts them in force when it comes to it.
            Err(ReloadError::Handle(HandleError::Timeout(_))) => Ok(()),
            replaced => replaced,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Config>> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn replace(
    access: &mut Access,
    of_config: Vec<RuleSet>,
    of_program: Vec<RuleSet>,
    requests: &Requests,
    timeout: Duration,
) -> Result<(), ReloadError> {
    let next = Access {
        generation: access.generation + 1,
        of_config,
        of_program,
    };
    let policy = next.policy()?;
    *access = next;
    requests.ask_all(timeout, |answer| Request::SetAccess {
        policy: policy.clone(),
        answer,
    })?;
    Ok(())
}

/// The rules of the open listeners once `listeners` is configured: matched by address, since a
/// changed file may list them in another order. A listener that is gone from the configuration
/// stays open unchanged until the restart.
fn rules(open: &[Listener], listeners: &[Listener]) -> Vec<Listener> {
    let rule = |(index, now): (usize, &Listener)| {
        let same = |listener: &&Listener| listener.address() == now.address();
        let in_place = listeners.get(index).filter(same);
        in_place
            .or_else(|| listeners.iter().find(same))
            .map_or_else(|| now.clone(), |listener| rule_of(now, listener))
    };
    open.iter().enumerate().map(rule).collect()
}

/// What of `listener` applies to a listener that is open as `now`, without a restart.
fn rule_of(now: &Listener, listener: &Listener) -> Listener {
    let has_certificates = now.protocol.has_tls() && listener.protocol.has_tls();
    let tls = if has_certificates { listener } else { now };
    Listener {
        name: now.name.clone(), // logged at the start
        protocol: now.protocol,
        socket_mode: now.socket_mode,
        socket_owner: now.socket_owner.clone(),
        trusted_proxies: now.trusted_proxies.clone(),
        proxy_common_name: now.proxy_common_name,
        websocket_path: now.websocket_path.clone(),
        allowed_origins: now.allowed_origins.clone(),
        tls: tls.tls.clone(),
        ..listener.clone()
    }
}

/// The certificates of the listeners that have TLS.
pub(crate) fn tls_listeners(
    listeners: &[Listener],
) -> Result<Vec<Option<Arc<TlsListener>>>, TlsError> {
    let tls = |listener: &Listener| {
        let tls = listener.protocol.has_tls().then_some(&listener.tls);
        let new = |tls| TlsListener::new(tls, alpn(listener.protocol));
        let tls = tls.map(new).transpose()?;
        Ok(tls.map(Arc::new))
    };
    listeners.iter().map(tls).collect()
}

/// What TLS clients may ask for as the protocol above it (ALPN).
const fn alpn(protocol: Protocol) -> &'static [u8] {
    if protocol.has_websocket() {
        b"http/1.1"
    } else {
        b"mqtt"
    }
}

pub(crate) fn auth_rules(rules: &[Listener]) -> Result<AuthRules, PasswordFileError> {
    let listener_auth = |rule: &Listener| {
        let passwords = rule
            .password_file
            .as_deref()
            .map(Passwords::read)
            .transpose()?;
        let address = rule.address();
        let label = rule.name.clone().unwrap_or_else(|| address.to_string());
        Ok(ListenerAuth {
            label: label.into(),
            allow_anonymous: rule.allow_anonymous,
            passwords: passwords.map(Arc::new),
        })
    };
    Ok(AuthRules(
        rules.iter().map(listener_auth).collect::<Result<_, _>>()?,
    ))
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
