//! From written values to the configuration: every value parsed, then all of them checked together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::RoleError;
use super::admin;
use super::error::{ConfigError, Problem};
use super::gateways::{self, GATEWAY_KEYS, GATEWAYS, SpGateway};
use super::http_auth::{self, HTTP_AUTH, HTTP_AUTH_KEYS};
use super::listener_checks::{check_addresses, complete};
use super::rates::{self, RATE_KEYS, RATES};
use super::table::{Key, SECTIONS};
use super::table_arrays::{LISTENER_KEYS, LISTENERS, ROLE_KEYS, ROLES, RULE_KEYS, RULES};
use super::tokens::{self, JWT, JWT_KEYS};
use super::value::{Kind, Value};
use super::written::{FlagValue, Origin, Place, Raw, Written};
use super::{Config, HttpAuth, Jwt, Listener, RateRule, Role};
use crate::logging::Logging;
use unbroken_broker_core::AuditRule;
use unbroken_mqtt_proto::TopicName;

/// Where configuration comes from. Kept by the broker, so that SIGHUP reads the same places again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The config file, if there is one.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `UNBROKEN__` are left alone.
    pub environment: Vec<(String, String)>,
    /// Values given on the command line.
    pub flags: Vec<FlagValue>,
}

/// A configuration in use and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    origins: BTreeMap<Place, Origin>,
}

/// One value, to be shown.
#[derive(Clone, Debug)]
pub struct EffectiveValue {
    /// `section.key` or `listeners.0.key`.
    pub name: String,
    /// As it would stand in a config file.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Sources {
    /// No file and no flags, but this process's environment.
    pub fn from_environment() -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()))
            .collect();
        Self {
            environment,
            ..Self::default()
        }
    }

    /// Reads all sources and checks the whole.
    pub fn load(&self) -> Result<Effective, ConfigError> {
        let mut written = Written::default();
        if let Some(path) = &self.file {
            written.read_file(path);
        }
        written.read_environment(&self.environment);
        written.read_flags(&self.flags);
        resolve(written)
    }
}

impl Effective {
    /// Another configuration, with the same origins.
    pub(crate) fn with(&self, config: Config) -> Self {
        Self {
            config,
            origins: self.origins.clone(),
        }
    }

    /// A configuration that was not read from anywhere.
    pub(crate) const fn without_origins(config: Config) -> Self {
        Self {
            config,
            origins: BTreeMap::new(),
        }
    }

    /// Every value, in the order of the table.
    pub fn values(&self) -> Vec<EffectiveValue> {
        let one = |place: Place, kind: Kind, value: &Value| EffectiveValue {
            name: place.to_string(),
            value: kind.show(value),
            origin: self.origins.get(&place).cloned().unwrap_or(Origin::Default),
        };
        let mut values = each_value(LISTENERS, LISTENER_KEYS, &self.config.listeners, one);
        values.extend(each_value(ROLES, ROLE_KEYS, &self.config.roles, one));
        values.extend(each_value(RATES, RATE_KEYS, &self.config.rates, one));
        values.extend(each_value(JWT, JWT_KEYS, &self.config.jwt, one));
        let hooks = &self.config.http_auth;
        values.extend(each_value(HTTP_AUTH, HTTP_AUTH_KEYS, hooks, one));
        values.extend(each_value(RULES, RULE_KEYS, &self.config.audit.rules, one));
        values.extend(each_value(
            GATEWAYS,
            GATEWAY_KEYS,
            &self.config.gateways,
            one,
        ));
        for section in SECTIONS {
            for key in section.keys {
                let place = Place {
                    section: section.name,
                    index: None,
                    key: key.name,
                };
                values.push(one(place, key.kind, &(key.get)(&self.config)));
            }
        }
        values
    }

    /// Where a value of a listener was written, or its nearest written neighbour, for messages.
    pub fn listener_origin(&self, index: usize, key: &str) -> Origin {
        self.origins
            .iter()
            .find(|(place, _)| {
                place.section == LISTENERS && place.index == Some(index) && place.key == key
            })
            .map_or(Origin::Default, |(_, origin)| origin.clone())
    }
}

/// Every value of an array of tables.
fn each_value<T>(
    section: &'static str,
    keys: &[Key<T>],
    tables: &[T],
    one: impl Fn(Place, Kind, &Value) -> EffectiveValue,
) -> Vec<EffectiveValue> {
    let mut values = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        for key in keys {
            let place = Place {
                section,
                index: Some(index),
                key: key.name,
            };
            values.push(one(place, key.kind, &(key.get)(table)));
        }
    }
    values
}

pub(super) fn resolve(written: Written) -> Result<Effective, ConfigError> {
    let count = |section| written.count(section);
    let (listeners, rules) = (count(LISTENERS), count(RULES));
    let (roles, gateways) = (count(ROLES), count(GATEWAYS));
    let rates = vec![RateRule::default(); count(RATES)];
    let jwt = vec![Jwt::default(); count(JWT)];
    let http_auth = vec![HttpAuth::default(); count(HTTP_AUTH)];
    let mut reader = Reader {
        values: written.values,
        origins: BTreeMap::new(),
        problems: written.problems,
    };
    let mut config = Config {
        listeners: vec![Listener::default(); listeners.max(1)],
        roles: vec![Role::default(); roles],
        rates,
        jwt,
        http_auth,
        ..Config::default()
    };
    for section in SECTIONS {
        for key in section.keys {
            reader.read(
                Place {
                    section: section.name,
                    index: None,
                    key: key.name,
                },
                key,
                &mut config,
            );
        }
    }
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        reader.table(LISTENERS, index, LISTENER_KEYS, listener);
        complete(index, listener, &mut reader);
    }
    for index in 0..rules {
        config.audit.rules.push(reader.audit_rule(index));
    }
    for (index, role) in config.roles.iter_mut().enumerate() {
        reader.role(index, role, &config.listeners);
    }
    for (index, rate) in config.rates.iter_mut().enumerate() {
        reader.rate(index, rate);
    }
    for (index, jwt) in config.jwt.iter_mut().enumerate() {
        reader.table(JWT, index, JWT_KEYS, jwt);
    }
    for (index, hook) in config.http_auth.iter_mut().enumerate() {
        reader.table(HTTP_AUTH, index, HTTP_AUTH_KEYS, hook);
    }
    for index in 0..gateways {
        config.gateways.push(read_gateway(index, &mut reader));
    }
    let Reader {
        origins,
        mut problems,
        ..
    } = reader;
    check_whole(&config, &origins, &mut problems);
    if problems.is_empty() {
        Ok(Effective { config, origins })
    } else {
        Err(ConfigError::new(problems))
    }
}

/// Checks what the kinds of single values cannot. A value that was refused stands at its default
/// here, which passes. Only a port may then be the default of several listeners.
fn check_whole(config: &Config, origins: &BTreeMap<Place, Origin>, problems: &mut Vec<Problem>) {
    let is_clear = problems.is_empty();
    let has_address = |index| is_clear || origin_of(origins, index, "port").is_some();
    problems.extend(check_addresses(&config.listeners, origins, has_address));
    problems.extend(check_limits(config, origins));
    problems.extend(check_log(config, origins));
    problems.extend(check_prefix(config, origins));
    problems.extend(admin::mistakes(&config.admin, |key| {
        let origins = origins.iter();
        let mut found = origins.filter(|(place, _)| place.section == "admin" && place.key == key);
        found.next().map(|(_, origin)| origin.clone())
    }));
    for mistake in gateways::mistakes(&config.gateways) {
        problems.push(mistake_in(GATEWAYS, GATEWAY_KEYS, origins, mistake));
    }
    // Those of a value that was refused itself would mislead.
    if is_clear {
        for (index, name) in tokens::missing(&config.jwt, &config.listeners) {
            let message =
                format!("`{LISTENERS}.{index}.jwt`: no `[[{JWT}]]` table is called `{name}`");
            let problem = Problem::new(origin_of(origins, index, "jwt"), message);
            problems.push(problem.help("add a table with this name"));
        }
        for (index, name) in http_auth::missing(&config.http_auth, &config.listeners) {
            let message = format!(
                "`{LISTENERS}.{index}.http_auth`: no `[[{HTTP_AUTH}]]` table is called `{name}`"
            );
            let problem = Problem::new(origin_of(origins, index, "http_auth"), message);
            problems.push(problem.help("add a table with this name"));
        }
        for mistake in rates::mistakes(&config.rates, &config.listeners) {
            problems.push(mistake_in(RATES, RATE_KEYS, origins, mistake));
        }
        for mistake in tokens::mistakes(&config.jwt, &config.listeners) {
            problems.push(mistake_in(JWT, JWT_KEYS, origins, mistake));
        }
        for mistake in http_auth::mistakes(&config.http_auth, &config.listeners) {
            problems.push(mistake_in(HTTP_AUTH, HTTP_AUTH_KEYS, origins, mistake));
        }
    }
}

/// A mistake in a table of an array, at its key or at another one that is written.
fn mistake_in<T>(
    section: &'static str,
    keys: &[Key<T>],
    origins: &BTreeMap<Place, Origin>,
    (index, key, message, help): (usize, &'static str, String, &'static str),
) -> Problem {
    let near = |key| origin_in(section, origins, index, key);
    let origin = near(key).or_else(|| keys.iter().find_map(|key| near(key.name)));
    Problem::new(origin, format!("`{section}.{index}.{key}`: {message}")).help(help)
}

/// The default address to listen on does not count where one to connect to is written.
fn read_gateway(index: usize, reader: &mut Reader) -> SpGateway {
    let mut gateway = SpGateway::default();
    reader.table(GATEWAYS, index, GATEWAY_KEYS, &mut gateway);
    if gateway.connect.is_empty() {
        return gateway;
    }
    let listen = origin_in(GATEWAYS, &reader.origins, index, "listen");
    if listen.is_some() && !gateway.listen.is_empty() {
        let message = format!("`{GATEWAYS}.{index}` has both `listen` and `connect`");
        let problem = Problem::new(listen, message).help("a gateway does one of them: remove one");
        reader.problems.push(problem);
    }
    gateway.listen = String::new();
    gateway
}

pub(super) struct Reader {
    values: BTreeMap<Place, Raw>,
    pub(super) origins: BTreeMap<Place, Origin>,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    fn read<T>(&mut self, place: Place, key: &Key<T>, whole: &mut T) {
        let Some(Raw { text, form, origin }) = self.values.remove(&place) else {
            return;
        };
        let value = key
            .kind
            .parse(&text, form)
            .map(|value| match (key.kind, value) {
                (Kind::Path, Value::Text(path)) => Value::Text(beside(&origin, path)),
                (Kind::Paths, Value::List(paths)) => {
                    let paths = paths.into_iter().map(|path| beside(&origin, path));
                    Value::List(paths.collect())
                }
                (_, value) => value,
            });
        let problem = match value {
            Ok(value) => {
                if (key.set)(whole, value) {
                    self.origins.insert(place, origin);
                    return;
                }
                format!("`{place}`: `{text}` is not {}", key.kind.expects())
            }
            Err(why) => format!("`{place}`: {why}"),
        };
        self.problems.push(Problem::new(Some(origin), problem));
    }

    /// Reads the keys of one table of an array.
    fn table<T>(
        &mut self,
        section: &'static str,
        index: usize,
        keys: &'static [Key<T>],
        whole: &mut T,
    ) {
        for key in keys {
            let place = Place {
                section,
                index: Some(index),
                key: key.name,
            };
            self.read(place, key, whole);
        }
    }

    fn audit_rule(&mut self, index: usize) -> AuditRule {
        let mut rule = AuditRule::any();
        self.table(RULES, index, RULE_KEYS, &mut rule);
        if !rule.has_valid_topic() {
            let message = format!(
                "`{RULES}.{index}.topic`: `{}` is not a topic filter",
                rule.topic
            );
            let place = Place {
                section: RULES,
                index: Some(index),
                key: "topic",
            };
            let origin = self.origins.get(&place).cloned();
            self.problems.push(Problem::new(origin, message));
        }
        rule
    }

    fn role(&mut self, index: usize, role: &mut Role, listeners: &[Listener]) {
        let place = |key| Place {
            section: ROLES,
            index: Some(index),
            key,
        };
        self.table(ROLES, index, ROLE_KEYS, role);
        let origin = |key| self.origins.get(&place(key)).map(Origin::to_string);
        // The last name taken out of a list does not make the role everybody's.
        let is_written = |key, is_empty| is_empty && origin(key).is_some();
        role.is_for_none = is_written("users", role.users.is_empty()) && !role.anonymous
            || is_written("clients", role.clients.is_empty())
            || is_written("listeners", role.listeners.is_empty())
            || is_written("addresses", role.addresses.is_empty())
            || is_written("granted", role.granted.is_empty());
        role.allow_origin = origin("allow").unwrap_or_default();
        role.deny_origin = origin("deny").unwrap_or_default();
        if let Err(RoleError { key, problem }) = role.compile(listeners) {
            let message = format!("`{}`: {problem}", place(key));
            let origin = self.origins.get(&place(key)).cloned();
            self.problems.push(Problem::new(origin, message));
        }
    }

    fn rate(&mut self, index: usize, rate: &mut RateRule) {
        self.table(RATES, index, RATE_KEYS, rate);
        // The last name taken out of a list does not make it a rate of all clients.
        let is_written = |key, names: &[String]| {
            names.is_empty() && origin_in(RATES, &self.origins, index, key).is_some()
        };
        rate.is_for_none = is_written("users", &rate.users)
            || is_written("roles", &rate.roles)
            || is_written("listeners", &rate.listeners);
    }

    /// The place of a listener's value, or of any other of its values.
    pub(super) fn near(&self, index: usize, keys: &[&'static str]) -> Option<Origin> {
        keys.iter()
            .find_map(|key| origin_of(&self.origins, index, key))
    }
}

/// A file named in the config file lies beside it; named elsewhere, in the working directory.
fn beside(origin: &Origin, path: String) -> String {
    match origin {
        Origin::File { path: file, .. } => match file.parent() {
            Some(directory) => directory.join(path).display().to_string(),
            None => path,
        },
        _ => path,
    }
}

pub(super) fn origin_of(
    origins: &BTreeMap<Place, Origin>,
    index: usize,
    key: &'static str,
) -> Option<Origin> {
    origin_in(LISTENERS, origins, index, key)
}

fn origin_in(
    section: &'static str,
    origins: &BTreeMap<Place, Origin>,
    index: usize,
    key: &'static str,
) -> Option<Origin> {
    let index = Some(index);
    let place = Place {
        section,
        index,
        key,
    };
    origins.get(&place).cloned()
}

fn check_limits(config: &Config, origins: &BTreeMap<Place, Origin>) -> Option<Problem> {
    let message = config.limits.check().err()?.to_string();
    let name = message.split(' ').next().unwrap_or_default();
    let origin = origins.iter().find(|(place, _)| place.to_string() == name);
    Some(Problem::new(
        origin.map(|(_, origin)| origin.clone()),
        message.clone(),
    ))
}

fn check_prefix(config: &Config, origins: &BTreeMap<Place, Origin>) -> Option<Problem> {
    let prefix = &config.audit.prefix;
    let is_taken = prefix.starts_with('$') || prefix.ends_with('/');
    if !is_taken && TopicName::parse(prefix).is_ok() {
        return None;
    }
    let place = Place {
        section: "audit",
        index: None,
        key: "prefix",
    };
    let message = format!(
        "`{place}`: `{prefix}` cannot begin a topic of clients; give one or more levels, such as `audit`"
    );
    Some(Problem::new(origins.get(&place).cloned(), message))
}

fn check_log(config: &Config, origins: &BTreeMap<Place, Origin>) -> Option<Problem> {
    let error = Logging::check(&config.log).err()?;
    let place = Place {
        section: "log",
        index: None,
        key: "filter",
    };
    Some(Problem::new(
        origins.get(&place).cloned(),
        error.to_string(),
    ))
}

#[cfg(test)]
mod tests;
