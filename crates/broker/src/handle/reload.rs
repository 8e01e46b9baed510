//! The configuration in force, and its replacement.
//!
//! Invariant: a changed configuration is applied whole or not at all, and no client is disconnected
//! by it.

use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use unbroken_broker_core::{LimitsError, PolicyError, Totals};

use super::{AccessInForce, HandleError, Requests};
use crate::access::{AccessError, ConfigRules};
use crate::authenticator::{
    AuthRules, AuthSources, HookError, HttpHook, ListenerAuth, StoredUsers, TokenError,
    TokenVerifier,
};
use crate::channel::{DriverEvent, NewPolicy};
use crate::config::{Change, Config, Jwt, Listener, changes, in_force};
use crate::listener::{ConnectionPermits, Layers};
use crate::passwords::{PasswordFileError, Passwords};
use crate::rates::RateTable;
use crate::tls::{Expiry, NewRules, ServerTls, TlsError, TlsListener};

/// How long a reload waits for busy shards.
const RELOAD_WAIT: Duration = Duration::from_secs(5);

/// What is in force while the broker runs.
#[derive(Debug)]
pub(crate) struct InForce {
    running: Mutex<Running>,
    access: Arc<AccessInForce>,
    permits: Arc<ConnectionPermits>,
    totals: Arc<Totals>,
    /// Of each open listener.
    layers: Vec<Layers>,
    /// Of the admin server, once that has asked for it.
    admin_tls: OnceLock<ServerTls>,
}

/// What the broker runs with.
#[derive(Debug)]
pub(crate) struct Running {
    /// Values that need a restart are as at the start. Its listeners are the open ones, in the
    /// order in which they were opened.
    config: Arc<Config>,
    auth_rules: Arc<AuthRules>,
    /// Replaced ones that a busy shard may have still: whoever drops the last one frees up to a
    /// million entries, and that is no work for a shard.
    replaced: Vec<Arc<AuthRules>>,
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
        (access, auth_rules): (Arc<AccessInForce>, Arc<AuthRules>),
        permits: Arc<ConnectionPermits>,
        totals: Arc<Totals>,
        layers: Vec<Layers>,
    ) -> Self {
        let config = Arc::new(config);
        Self {
            running: Mutex::new(Running {
                config,
                auth_rules,
                replaced: Vec::new(),
            }),
            access,
            permits,
            totals,
            layers,
            admin_tls: OnceLock::new(),
        }
    }

    /// Reads the files of the admin server, which a reload reads again from now on. `None`: the
    /// admin server is configured without TLS.
    pub(super) fn admin_tls(&self) -> Result<Option<ServerTls>, TlsError> {
        let Some(tls) = self.config().admin.tls() else {
            return Ok(None);
        };
        if let Some(open) = self.admin_tls.get() {
            return Ok(Some(open.clone()));
        }
        let read = ServerTls::read(&tls, b"http/1.1")?;
        Ok(Some(self.admin_tls.get_or_init(|| read).clone()))
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
        let admin = self.admin_tls.get().map(ServerTls::listener);
        all.extend(admin.into_iter().flat_map(TlsListener::expiries));
        all.sort_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
        all.dedup();
        all
    }

    pub(super) fn connections_by_listener(&self) -> impl Iterator<Item = u32> + '_ {
        self.permits.taken_by_listener()
    }

    pub(super) const fn access(&self) -> &Arc<AccessInForce> {
        &self.access
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
        let (changed, mut replaced) = {
            let mut running = self.lock();
            let open = Open::new(&running.config.listeners, &config.listeners);
            let auth_rules = open.auth_rules(&config, &running.auth_rules, self.access.users());
            let auth_rules = Arc::new(auth_rules?);
            let certificates = self.read_certificates(&open, &running.config)?;
            let access = |now: &ConfigRules| {
                let named = (&*open.named, &*config.roles);
                ConfigRules::read_again(open.configured(), named, now)
            };
            let changed = changes(&running.config, &config);
            let listener_limits = listener_limits(&open.rules);
            self.access.set_of_config(access, |policy| {
                requests.send_all(|| DriverEvent::Reconfigured {
                    limits: Box::new(config.limits.clone()),
                    auth_rules: Arc::clone(&auth_rules),
                    policy: policy.clone().map(NewPolicy),
                    applied: Sender::clone(&applied),
                })
            })?;
            for (tls, new) in certificates {
                tls.put_in_force(new);
            }
            for (layers, rule) in self.layers.iter().zip(&open.rules) {
                layers.put_in_force(rule);
            }
            self.access.bans().set_rules(config.bans);
            self.permits.set_limits(&config.limits, &listener_limits);
            self.totals.set_listener_limits(&listener_limits);
            running.config = Arc::new(Config {
                listeners: open.rules,
                ..in_force(&running.config, config)
            });
            let mut replaced = std::mem::take(&mut running.replaced);
            replaced.push(std::mem::replace(&mut running.auth_rules, auth_rules));
            (changed, replaced)
        };
        drop(applied);
        // Nothing is sent: it ends when the last shard has dropped its sender.
        if all_applied.recv_timeout(RELOAD_WAIT) == Err(RecvTimeoutError::Timeout) {
            self.lock().replaced.append(&mut replaced);
        }
        Ok(changed)
    }

    /// Reads the files of all listeners with TLS that are still configured, and of the admin
    /// server; none is in force yet.
    fn read_certificates(
        &self,
        open: &Open,
        running: &Config,
    ) -> Result<Vec<(&TlsListener, NewRules)>, TlsError> {
        let of_rule = self.layers.iter().map(Layers::tls).zip(open.configured());
        let read = of_rule.filter_map(|(tls, rule)| {
            let (tls, rule) = (tls?, rule?);
            Some(tls.read_again(&rule.tls).map(|new| (&**tls, new)))
        });
        let admin = self.admin_tls.get().zip(running.admin.tls());
        let admin = admin.map(|(open, tls)| {
            let open = open.listener();
            open.read_again(&tls).map(|new| (open, new))
        });
        read.chain(admin).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open listeners once another configuration is read. Each is matched by its address, since a
/// changed file may list them in another order. One that is gone from the configuration stays open
/// until the restart, with what it has: its files may be gone too. So does one that is to speak
/// another protocol, or to other programs: its other keys are meant for that.
struct Open {
    /// In the order in which they were opened.
    rules: Vec<Listener>,
    /// Whether each of them is configured still, as what it is.
    is_configured: Vec<bool>,
    /// As roles may name them: the open ones in their order, and behind them those that are opened
    /// by a restart, of which no client is.
    named: Vec<Listener>,
}

impl Open {
    fn new(open: &[Listener], configured: &[Listener]) -> Self {
        let same = |now: &Listener, other: &Listener| now.addresses() == other.addresses();
        let find = |is_it: fn(&Listener, &Listener) -> bool| {
            let open = open.iter().enumerate();
            let found = open.map(move |(index, now)| {
                let in_place = configured.get(index).filter(|other| is_it(now, other));
                let found = in_place.or_else(|| configured.iter().find(|other| is_it(now, other)));
                (now, found)
            });
            found.collect::<Vec<_>>()
        };
        let found = find(Listener::can_become);
        let rule = |(now, found): &(&Listener, Option<&Listener>)| Listener {
            name: now.name.clone(), // logged at the start
            ..found.unwrap_or(now).clone()
        };
        let named = |(now, found): (&Listener, Option<&Listener>)| Listener {
            name: found.and_then(|listener| listener.name.clone()),
            ..now.clone()
        };
        let is_new = |other: &&Listener| !open.iter().any(|now| same(now, other));
        let new = configured.iter().filter(is_new).cloned();
        Self {
            rules: found.iter().map(rule).collect(),
            is_configured: found.iter().map(|(_, found)| found.is_some()).collect(),
            named: find(same).into_iter().map(named).chain(new).collect(),
        }
    }

    /// Each rule that is configured.
    fn configured(&self) -> impl Iterator<Item = Option<&Listener>> {
        let rules = self.rules.iter().zip(&self.is_configured);
        rules.map(|(rule, is_configured)| is_configured.then_some(rule))
    }

    /// Reads what clients authenticate by.
    fn auth_rules(
        &self,
        config: &Config,
        now: &AuthRules,
        stored_users: &Arc<StoredUsers>,
    ) -> Result<AuthRules, ReloadError> {
        let shared = Shared::new::<ReloadError>(config, now, stored_users)?;
        let of_listener = |(rule, now): (Option<&Listener>, &Arc<ListenerAuth>)| {
            rule.map_or_else(|| Ok(Arc::clone(now)), |rule| shared.listener_auth(rule))
        };
        let all = self.configured().zip(&now.listeners).map(of_listener);
        let listeners = all.collect::<Result<_, PasswordFileError>>()?;
        Ok(AuthRules {
            listeners,
            tokens: shared.tokens,
            rates: RateTable::new(&config.rates, &self.named, &now.rates, Instant::now()),
        })
    }
}

/// The layers of each listener; reads the files of those with TLS.
pub(crate) fn layers_of(listeners: &[Listener]) -> Result<Vec<Layers>, TlsError> {
    listeners.iter().map(Layers::new).collect()
}

/// What the listeners authenticate by at the start.
pub(crate) fn first_auth_rules<E>(
    config: &Config,
    stored_users: &Arc<StoredUsers>,
) -> Result<Arc<AuthRules>, E>
where
    E: From<PasswordFileError> + From<TokenError> + From<HookError>,
{
    let shared = Shared::new::<E>(config, &AuthRules::default(), stored_users)?;
    let listeners = config.listeners.iter().map(|it| shared.listener_auth(it));
    let listeners = listeners.collect::<Result<_, _>>()?;
    let none = Arc::default();
    let rates = RateTable::new(&config.rates, &config.listeners, &none, Instant::now());
    Ok(Arc::new(AuthRules {
        listeners,
        tokens: shared.tokens,
        rates,
    }))
}

/// What several listeners may authenticate by.
struct Shared {
    stored_users: Arc<StoredUsers>,
    tokens: Vec<Arc<TokenVerifier>>,
    hooks: Vec<Arc<HttpHook>>,
}

impl Shared {
    /// `before`: what is in force, whose fetched keys stay until there are others.
    fn new<E>(
        config: &Config,
        before: &AuthRules,
        stored_users: &Arc<StoredUsers>,
    ) -> Result<Self, E>
    where
        E: From<TokenError> + From<HookError>,
    {
        let verifier = |rules: &Jwt| {
            let mut of_before = before.tokens.iter();
            let replaced = of_before.find(|before| before.name() == rules.name);
            TokenVerifier::new(rules, replaced.map(|it| &**it)).map(Arc::new)
        };
        let tokens = config.jwt.iter().map(verifier);
        let tokens = tokens.collect::<Result<_, _>>()?;
        let hooks = config.http_auth.iter().map(HttpHook::start);
        let hooks = hooks.map(|hook| hook.map(Arc::new));
        Ok(Self {
            stored_users: Arc::clone(stored_users),
            tokens,
            hooks: hooks.collect::<Result<_, _>>()?,
        })
    }

    /// Reads the password file of a listener.
    fn listener_auth(&self, rule: &Listener) -> Result<Arc<ListenerAuth>, PasswordFileError> {
        let passwords = rule.password_file.as_deref().map(Passwords::read);
        let address = rule.address();
        let label = rule.name.clone().unwrap_or_else(|| address.to_string());
        let token = |name| self.tokens.iter().find(|it| it.name() == name).cloned();
        let hook = |name| self.hooks.iter().find(|it| it.name() == name).cloned();
        let sources = AuthSources {
            passwords: passwords.transpose()?.map(Arc::new),
            stored_users: rule.stored_users.then(|| Arc::clone(&self.stored_users)),
            tokens: rule.jwt.iter().filter_map(token).collect(),
            hooks: rule.http_auth.iter().filter_map(hook).collect(),
            allow_anonymous: rule.allow_anonymous,
            client_ids: rule.client_id_rules(),
            mount_point: rule.mount_point.clone(),
        };
        Ok(Arc::new(ListenerAuth::new(label.into(), sources)))
    }
}

pub(crate) fn listener_limits(rules: &[Listener]) -> Vec<Option<u32>> {
    rules.iter().map(|rule| rule.max_connections).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

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
    fn an_open_listener_that_is_to_be_another_one_keeps_all_its_rules() {
        let open = Listener {
            password_file: Some("users".into()),
            acl_file: Some("acl".into()),
            ..listener(1, false)
        };
        let secured = Listener {
            protocol: crate::config::Protocol::Mqtts,
            ..listener(1, true)
        };
        let of = |socket_mode| Listener {
            socket: Some("socket".into()),
            socket_mode: crate::config::FileMode(socket_mode),
            ..open.clone()
        };
        let narrowed = Listener {
            allow_anonymous: true,
            ..of(0o600)
        };
        for (open, new) in [(open.clone(), secured), (of(0o666), narrowed)] {
            let rules = Open::new(std::slice::from_ref(&open), std::slice::from_ref(&new));
            assert_eq!(rules.rules, std::slice::from_ref(&open));
            assert_eq!(rules.is_configured, [false]);
            let [old, new] = [open, new].map(|listener| Config {
                listeners: vec![listener],
                ..Config::default()
            });
            let applied = changes(&old, &new).into_iter();
            let applied = applied.filter(|it| it.applies == crate::config::Applies::Live);
            assert_eq!(applied.collect::<Vec<_>>(), []);
        }
    }

    #[test]
    fn a_reload_without_room_at_a_shard_records_no_rules_that_it_does_not_have() {
        let (sender, mut shard) = crate::channel::event_channel_of(1);
        let requests = Requests::new(vec![sender]);
        let config = |roles| Config {
            roles,
            ..Config::default()
        };
        let room = unbroken_broker_core::Room {
            places: 10,
            reserve: 1,
        };
        let start = config(Vec::new());
        let permits = ConnectionPermits::new(room, &start.limits, &[None]);
        let access = Arc::<AccessInForce>::default();
        let auth_rules = first_auth_rules::<ReloadError>(&start, access.users()).unwrap();
        let layers = layers_of(&start.listeners).unwrap();
        let totals = Arc::default();
        let in_force = InForce::new(start, (access, auth_rules), permits.into(), totals, layers);
        let waits = requests.ask(
            unbroken_broker_core::ShardId(0),
            Duration::ZERO,
            crate::request::Request::Counters,
        );
        assert!(matches!(waits.map(drop), Err(HandleError::Timeout(_))));
        let roles = || vec![Role::default()];
        let busy = in_force.reload(config(roles()), &requests);
        assert!(matches!(
            busy,
            Err(ReloadError::Handle(HandleError::Busy(_)))
        ));
        shard.try_recv().unwrap();
        let policy = std::thread::scope(|scope| {
            let takes = scope.spawn(|| {
                loop {
                    if let Ok(DriverEvent::Reconfigured { policy, .. }) = shard.try_recv() {
                        break policy;
                    }
                    std::thread::yield_now();
                }
            });
            in_force.reload(config(roles()), &requests).unwrap();
            takes.join().unwrap()
        });
        assert!(policy.is_some_and(|NewPolicy(policy)| policy.is_some()));
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
        let rules = |name: &str| {
            let now = ConfigRules::default();
            ConfigRules::read_again(open.configured(), (&open.named, &[role(name)]), &now)
        };
        for (name, number) in [("kept", 2), ("new", 1), ("gone", 3)] {
            let sets = rules(name).unwrap().sets(Vec::new());
            assert_eq!(sets[0].roles[0].members[0].listener, Some(number), "{name}");
        }
        assert!(rules("old").is_err());
    }
}
