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
use crate::authenticator::{
    AuthRules, AuthSources, HookError, HttpHook, ListenerAuth, TokenError, TokenVerifier,
};
use crate::channel::DriverEvent;
use crate::config::{Change, Config, Jwt, Listener, Role, changes, in_force};
use crate::listener::{ConnectionPermits, Layers};
use crate::passwords::{PasswordFileError, Passwords};
use crate::request::Request;
use crate::tls::{Expiry, NewRules, TlsError, TlsListener};

/// How long a reload waits for busy shards.
const RELOAD_WAIT: Duration = Duration::from_secs(5);
/// The number of the policy that a broker starts with.
const FIRST_POLICY: u64 = 1;

/// What is in force while the broker runs.
#[derive(Debug)]
pub(crate) struct InForce {
    running: Mutex<Running>,
    /// Held while the shards are given a policy, so that all get them in one order.
    access: Mutex<Access>,
    permits: Arc<ConnectionPermits>,
    totals: Arc<Totals>,
    /// Of each open listener.
    layers: Vec<Layers>,
}

/// What the broker runs with.
#[derive(Debug)]
pub(crate) struct Running {
    /// Values that need a restart are as at the start. Its listeners are the open ones, in the
    /// order in which they were opened.
    config: Arc<Config>,
    auth_rules: Arc<AuthRules>,
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
    /// Tokens cannot be verified.
    #[error("{0}")]
    Tokens(#[from] TokenError),
    /// A service cannot be asked.
    #[error("{0}")]
    Hook(#[from] HookError),
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
        (access, auth_rules): (Access, Arc<AuthRules>),
        permits: Arc<ConnectionPermits>,
        totals: Arc<Totals>,
        layers: Vec<Layers>,
    ) -> Self {
        let config = Arc::new(config);
        Self {
            running: Mutex::new(Running { config, auth_rules }),
            access: Mutex::new(access),
            permits,
            totals,
            layers,
        }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.lock().config)
    }

    pub(super) fn packet_bytes_max(&self) -> u64 {
        self.lock().config.limits.packet_bytes_max.into()
    }

    pub(super) fn expiries(&self) -> Vec<Expiry> {
        let tls = self.layers.iter().filter_map(Layers::tls);
        let mut all: Vec<Expiry> = tls.flat_map(|tls| tls.expiries()).collect();
        all.sort_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
        all.dedup();
        all
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
            let open = Open::new(&running.config.listeners, &config.listeners);
            let auth_rules = Arc::new(open.auth_rules(&config, &running.auth_rules)?);
            let certificates = self.read_certificates(&open)?;
            self.reload_access(&open, &config.roles, requests)?;
            let changed = changes(&running.config, &config);
            let listener_limits = listener_limits(&open.rules);
            requests.send_all(|| DriverEvent::Reconfigured {
                limits: Box::new(config.limits.clone()),
                auth_rules: Arc::clone(&auth_rules),
                applied: Sender::clone(&applied),
            })?;
            for (tls, new) in certificates {
                tls.put_in_force(new);
            }
            for (layers, rule) in self.layers.iter().zip(&open.rules) {
                layers.put_in_force(rule);
            }
            self.permits.set_limits(&config.limits, &listener_limits);
            self.totals.set_listener_limits(&listener_limits);
            running.config = Arc::new(Config {
                listeners: open.rules,
                ..in_force(&running.config, config)
            });
            running.auth_rules = auth_rules;
            changed
        };
        drop(applied);
        // Nothing is sent: it ends when the last shard has dropped its sender.
        let _ = all_applied.recv_timeout(RELOAD_WAIT);
        Ok(changed)
    }

    /// Reads the files of all listeners with TLS that are still configured; none is in force yet.
    fn read_certificates(&self, open: &Open) -> Result<Vec<(&TlsListener, NewRules)>, TlsError> {
        let of_rule = self.layers.iter().map(Layers::tls).zip(open.configured());
        let read = of_rule.filter_map(|(tls, rule)| {
            let (tls, rule) = (tls?, rule?);
            Some(tls.read_again(&rule.tls).map(|new| (&**tls, new)))
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
    fn reload_access(
        &self,
        open: &Open,
        roles: &[Role],
        requests: &Requests,
    ) -> Result<(), ReloadError> {
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = open.rule_sets(roles, &access.of_config)?;
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

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The open listeners once another configuration is read. Each is matched by its address, since a
/// changed file may list them in another order. One that is gone from the configuration stays open
/// until the restart, with what it has: its files may be gone too.
struct Open {
    /// In the order in which they were opened.
    rules: Vec<Listener>,
    /// Whether each of them is configured still.
    is_configured: Vec<bool>,
    /// As roles may name them: the open ones in their order, and behind them those that are opened
    /// by a restart, of which no client is.
    named: Vec<Listener>,
}

impl Open {
    fn new(open: &[Listener], configured: &[Listener]) -> Self {
        let same = |now: &Listener, other: &Listener| now.addresses() == other.addresses();
        let find = |(index, now): (usize, &Listener)| {
            let in_place = configured.get(index).filter(|other| same(now, other));
            in_place.or_else(|| configured.iter().find(|other| same(now, other)))
        };
        let found: Vec<_> = open.iter().enumerate().map(find).collect();
        let pairs = || open.iter().zip(found.iter().copied());
        let rule = |(now, found): (&Listener, Option<&Listener>)| {
            found.map_or_else(|| now.clone(), |listener| rule_of(now, listener))
        };
        let named = |(now, found): (&Listener, Option<&Listener>)| Listener {
            name: found.and_then(|listener| listener.name.clone()),
            ..now.clone()
        };
        let is_new = |other: &&Listener| !open.iter().any(|now| same(now, other));
        let new = configured.iter().filter(is_new).cloned();
        Self {
            rules: pairs().map(rule).collect(),
            is_configured: found.iter().map(Option::is_some).collect(),
            named: pairs().map(named).chain(new).collect(),
        }
    }

    /// Each rule that is configured.
    fn configured(&self) -> impl Iterator<Item = Option<&Listener>> {
        let rules = self.rules.iter().zip(&self.is_configured);
        rules.map(|(rule, is_configured)| is_configured.then_some(rule))
    }

    /// Reads what clients authenticate by.
    fn auth_rules(&self, config: &Config, now: &AuthRules) -> Result<AuthRules, ReloadError> {
        let tokens = token_verifiers(config, now)?;
        let hooks = hooks(config)?;
        let of_listener = |(rule, now): (Option<&Listener>, &Arc<ListenerAuth>)| {
            rule.map_or_else(
                || Ok(Arc::clone(now)),
                |rule| listener_auth(rule, &tokens, &hooks),
            )
        };
        let all = self.configured().zip(&now.listeners).map(of_listener);
        let listeners = all.collect::<Result<_, PasswordFileError>>()?;
        Ok(AuthRules { listeners, tokens })
    }

    /// Reads the access control lists.
    fn rule_sets(&self, roles: &[Role], now: &[RuleSet]) -> Result<Vec<RuleSet>, AccessError> {
        let mut sets = Vec::new();
        for (number, rule) in (0..).zip(self.configured()) {
            let is_its_own = |set: &&RuleSet| set.listeners.as_deref() == Some(&[number]);
            sets.extend(match rule {
                Some(rule) => access::list_set(number, rule)?,
                None => now.iter().find(is_its_own).cloned(),
            });
        }
        sets.extend(access::role_set(&self.named, roles)?);
        Ok(sets)
    }
}

/// What of `listener` applies to a listener that is open as `now`, without a restart.
fn rule_of(now: &Listener, listener: &Listener) -> Listener {
    let has_certificates = now.protocol.has_tls() && listener.protocol.has_tls();
    let tls = if has_certificates { listener } else { now };
    let has_websocket = now.protocol.has_websocket() && listener.protocol.has_websocket();
    let websocket = if has_websocket { listener } else { now };
    Listener {
        name: now.name.clone(), // logged at the start
        protocol: now.protocol,
        socket_mode: now.socket_mode,
        socket_owner: now.socket_owner.clone(),
        websocket_path: websocket.websocket_path.clone(),
        allowed_origins: websocket.allowed_origins.clone(),
        tls: tls.tls.clone(),
        ..listener.clone()
    }
}

/// The layers of each listener; reads the files of those with TLS.
pub(crate) fn layers_of(listeners: &[Listener]) -> Result<Vec<Layers>, TlsError> {
    listeners.iter().map(Layers::new).collect()
}

/// What the listeners authenticate by at the start.
pub(crate) fn first_auth_rules<E>(config: &Config) -> Result<Arc<AuthRules>, E>
where
    E: From<PasswordFileError> + From<TokenError> + From<HookError>,
{
    let rules = auth_rules::<E>(&config.listeners, config, &AuthRules::default())?;
    Ok(Arc::new(rules))
}

/// Reads what the listeners authenticate by. `before`: what is in force, whose fetched keys stay
/// until there are others.
fn auth_rules<E>(
    listeners: &[Listener],
    config: &Config,
    before: &AuthRules,
) -> Result<AuthRules, E>
where
    E: From<PasswordFileError> + From<TokenError> + From<HookError>,
{
    let tokens = token_verifiers(config, before)?;
    let hooks = hooks(config)?;
    let listeners = listeners.iter();
    let listeners = listeners.map(|rule| listener_auth(rule, &tokens, &hooks));
    let listeners = listeners.collect::<Result<_, _>>()?;
    Ok(AuthRules { listeners, tokens })
}

fn token_verifiers(
    config: &Config,
    before: &AuthRules,
) -> Result<Vec<Arc<TokenVerifier>>, TokenError> {
    let verifier = |rules: &Jwt| {
        let mut of_before = before.tokens.iter();
        let replaced = of_before.find(|before| before.name() == rules.name);
        TokenVerifier::new(rules, replaced.map(|it| &**it)).map(Arc::new)
    };
    config.jwt.iter().map(verifier).collect()
}

fn hooks(config: &Config) -> Result<Vec<Arc<HttpHook>>, HookError> {
    let hooks = config.http_auth.iter().map(HttpHook::start);
    hooks.map(|hook| hook.map(Arc::new)).collect()
}

fn listener_auth(
    rule: &Listener,
    tokens: &[Arc<TokenVerifier>],
    hooks: &[Arc<HttpHook>],
) -> Result<Arc<ListenerAuth>, PasswordFileError> {
    let passwords = rule.password_file.as_deref().map(Passwords::read);
    let address = rule.address();
    let label = rule.name.clone().unwrap_or_else(|| address.to_string());
    let named = |name: &String| tokens.iter().find(|it| it.name() == name).cloned();
    let hook_named = |name: &String| hooks.iter().find(|it| it.name() == name).cloned();
    let sources = AuthSources {
        passwords: passwords.transpose()?.map(Arc::new),
        tokens: rule.jwt.iter().filter_map(named).collect(),
        hooks: rule.http_auth.iter().filter_map(hook_named).collect(),
        allow_anonymous: rule.allow_anonymous,
    };
    Ok(Arc::new(ListenerAuth::new(label.into(), sources)))
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
            Open::new(&open, &new).rules,
            [listener(1, false), listener(2, false), listener(3, true)]
        );
    }

    #[test]
    fn a_role_may_name_a_listener_that_a_restart_opens() {
        let called = |name: &str, port| Listener {
            name: Some(name.to_owned()),
            ..listener(port, true)
        };
        let open = [called("gone", 1), called("old", 2), called("kept", 3)];
        let configured = [called("kept", 3), called("new", 2), called("gone", 4)];
        let open = Open::new(&open, &configured);
        let role = |name: &str| Role {
            listeners: vec![name.to_owned()],
            ..Role::default()
        };
        for (name, number) in [("kept", 2), ("new", 1), ("gone", 3)] {
            let sets = open.rule_sets(&[role(name)], &[]).unwrap();
            assert_eq!(sets[0].roles[0].members[0].listener, Some(number), "{name}");
        }
        assert!(open.rule_sets(&[role("old")], &[]).is_err());
    }
}
