//! The configuration as written: values by name, each with its origin, before they are checked.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::foreign::{instead_of, is_mosquitto, mosquitto_line, not_yet, protocol, unsupported};
use super::gateways::{GATEWAY_KEYS, GATEWAYS};
use super::http_auth::{HTTP_AUTH, HTTP_AUTH_KEYS};
use super::rates::{RATE_KEYS, RATES};
use super::table::SECTIONS;
use super::table_arrays::{ADDRESS, LISTENER_KEYS, LISTENERS, ROLE_KEYS, ROLES, RULE_KEYS, RULES};
use super::tokens::{JWT, JWT_KEYS};
use super::value::Form;

/// Where an effective value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// A line of the config file, from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The content of a file that an environment variable names.
    EnvironmentFile {
        /// The variable's name.
        variable: String,
        /// The file.
        path: PathBuf,
    },
    /// A flag of the command line.
    Flag {
        /// The flag.
        flag: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => write!(f, "environment {variable}"),
            Self::EnvironmentFile { variable, path } => {
                write!(f, "environment {variable} ({})", path.display())
            }
            Self::Flag { flag } => write!(f, "flag {flag}"),
        }
    }
}

/// A value given by a flag.
#[derive(Clone, Debug)]
pub struct FlagValue {
    /// What it sets: `broker.shards`, `listeners.0.port`.
    pub name: &'static str,
    /// The value, as in a config file but without quotes.
    pub value: String,
    /// The flag, for messages.
    pub flag: &'static str,
}

/// The name of one value: section, position for listeners, key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) section: &'static str,
    pub(super) index: Option<usize>,
    pub(super) key: &'static str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}.{index}.{}", self.section, self.key),
            None => write!(f, "{}.{}", self.section, self.key),
        }
    }
}

/// A value as written. `Debug` shows only its form: it may be a secret.
#[derive(Clone)]
pub(super) struct Raw {
    pub(super) text: String,
    pub(super) form: Form,
    pub(super) origin: Origin,
}

/// All written values, later sources over earlier ones.
#[derive(Default)]
pub(super) struct Written {
    pub(super) values: BTreeMap<Place, Raw>,
    /// How many tables each array of tables has: one for each of the file; values of the
    /// environment and of flags may add one.
    tables: BTreeMap<&'static str, usize>,
    pub(super) problems: Vec<Problem>,
}

impl Written {
    /// Reads a config file.
    pub(super) fn read_file(&mut self, path: &Path) {
        match fs::read_to_string(path) {
            Ok(text) => self.read_text(&text, path),
            Err(error) => self.problems.push(
                Problem::new(None, format!("cannot read {}: {error}", path.display())).help(
                    "give the file with -c FILE, or none; `unbroken check --example` prints one",
                ),
            ),
        }
    }

    pub(super) fn read_text(&mut self, text: &str, path: &Path) {
        // The byte order mark that editors of Windows write.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let at = |offset: usize| Origin::File {
            path: path.to_owned(),
            line: line_of(text, offset),
        };
        let document = match DeTable::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                let problem = match mosquitto_line(text, line_of(text, offset)) {
                    Some(line) => {
                        let path = path.to_owned();
                        is_mosquitto(Origin::File { path, line })
                    }
                    None => Problem::new(Some(at(offset)), error.message()),
                };
                self.problems.push(problem);
                return;
            }
        };
        for (section, content) in document.get_ref() {
            let origin = at(section.span().start);
            match (section.get_ref().as_ref(), content.get_ref()) {
                (LISTENERS, tables) => self.read_tables(LISTENERS, tables, origin, text, &at),
                (ROLES, tables) => self.read_tables(ROLES, tables, origin, text, &at),
                (RATES, tables) => self.read_tables(RATES, tables, origin, text, &at),
                (JWT, tables) => self.read_tables(JWT, tables, origin, text, &at),
                (HTTP_AUTH, tables) => self.read_tables(HTTP_AUTH, tables, origin, text, &at),
                (AUDIT, DeValue::Table(keys)) => {
                    let mut keys = keys.clone();
                    let rules = keys.remove(RULE);
                    self.read_keys(AUDIT, None, &keys, text, &at);
                    if let Some(rules) = rules {
                        let origin = at(rules.span().start);
                        self.read_tables(RULES, rules.get_ref(), origin, text, &at);
                    }
                }
                (GATEWAY, DeValue::Table(kinds)) => self.read_gateways(kinds, text, &at),
                (GATEWAY, _) => self.wrong_shape(origin, GATEWAYS),
                (name, DeValue::Table(keys)) if section_names().any(|known| known == name) => {
                    self.read_keys(name, None, keys, text, &at);
                }
                (name, DeValue::Table(_)) => self.problems.push(unknown_section(origin, name)),
                (name, _) if unsupported(name).is_some() => {
                    self.problems.push(unknown_section(origin, name));
                }
                (name, _) if SECTIONS.iter().any(|section| section.name == name) => {
                    self.wrong_shape(origin, name);
                }
                (name, _) => {
                    let problem =
                        Problem::new(Some(origin), format!("`{name}` stands outside a section"));
                    let owner = SECTIONS
                        .iter()
                        .find(|s| s.keys.iter().any(|key| key.name == name));
                    self.problems.push(match (owner, instead_of(name)) {
                        (Some(owner), _) => {
                            problem.help(format!("write it below `[{}]`", owner.name))
                        }
                        (None, Some(hint)) => problem.help(hint),
                        (None, None) => problem.suggest(name, section_names()),
                    });
                }
            }
        }
    }

    /// Reads an array of tables.
    fn read_tables(
        &mut self,
        section: &'static str,
        tables: &DeValue<'_>,
        origin: Origin,
        text: &str,
        at: &dyn Fn(usize) -> Origin,
    ) {
        let DeValue::Array(tables) = tables else {
            return self.wrong_shape(origin, section);
        };
        for table in tables {
            let index = self.count(section);
            self.tables.insert(section, index + 1);
            match table.get_ref() {
                DeValue::Table(keys) => self.read_keys(section, Some(index), keys, text, at),
                _ => self.wrong_shape(at(table.span().start), section),
            }
        }
    }

    fn read_gateways(&mut self, kinds: &DeTable<'_>, text: &str, at: &dyn Fn(usize) -> Origin) {
        for (kind, tables) in kinds {
            let origin = at(kind.span().start);
            if kind.get_ref() == SP {
                self.read_tables(GATEWAYS, tables.get_ref(), origin, text, at);
            } else {
                let name = format!("{GATEWAY}.{}", kind.get_ref());
                self.problems.push(unknown_section(origin, &name));
            }
        }
    }

    /// How many tables an array of tables has.
    pub(super) fn count(&self, section: &str) -> usize {
        self.tables.get(section).copied().unwrap_or(0)
    }

    fn read_keys(
        &mut self,
        section: &str,
        index: Option<usize>,
        keys: &DeTable<'_>,
        text: &str,
        at: &dyn Fn(usize) -> Origin,
    ) {
        for (key, value) in keys {
            let (written, form) = match value.get_ref() {
                DeValue::String(text) => (text.to_string(), Form::Text),
                DeValue::Integer(n) if n.radix() == 10 => (n.as_str().to_owned(), Form::Integer),
                DeValue::Boolean(flag) => (flag.to_string(), Form::Flag),
                DeValue::Array(_) => {
                    let written = text.get(value.span()).unwrap_or_default();
                    (written.to_owned(), Form::Array)
                }
                DeValue::Table(_) => ("{…}".to_owned(), Form::Other),
                DeValue::Integer(n) => (n.as_str().to_owned(), Form::Other),
                DeValue::Float(n) => (n.as_str().to_owned(), Form::Other),
                DeValue::Datetime(time) => (time.to_string(), Form::Other),
            };
            let raw = Raw {
                text: written,
                form,
                origin: at(key.span().start),
            };
            self.put(section, index, key.get_ref(), raw);
        }
    }

    fn wrong_shape(&mut self, origin: Origin, section: &str) {
        let header = if ARRAYS.contains(&section) {
            format!("[[{section}]]")
        } else {
            format!("[{section}]")
        };
        self.problems.push(
            Problem::new(Some(origin), format!("`{section}` is not a table")).help(format!(
                "write `{header}` on a line of its own and its keys below"
            )),
        );
    }

    /// Reads `UNBROKEN__SECTION__KEY` and `UNBROKEN__SECTION__KEY_FILE`; leaves all else alone.
    pub(super) fn read_environment(&mut self, variables: &[(String, String)]) {
        for (variable, value) in variables {
            let Some(name) = variable.strip_prefix(ENVIRONMENT_PREFIX) else {
                continue;
            };
            let name = name.to_lowercase().replace("__", ".");
            let origin = Origin::Environment {
                variable: variable.clone(),
            };
            let in_file = name
                .strip_suffix("_file")
                .filter(|_| !is_known(&name))
                .filter(|n| is_known(n));
            let Some(name) = in_file else {
                self.put_by_name(
                    &name,
                    Raw {
                        text: value.clone(),
                        form: Form::Text,
                        origin,
                    },
                );
                continue;
            };
            match fs::read_to_string(value) {
                Ok(text) => {
                    let origin = Origin::EnvironmentFile {
                        variable: variable.clone(),
                        path: value.into(),
                    };
                    let text = text.trim_end_matches(['\r', '\n']).to_owned();
                    self.put_by_name(
                        name,
                        Raw {
                            text,
                            form: Form::Text,
                            origin,
                        },
                    );
                }
                Err(error) => self.problems.push(Problem::new(
                    Some(origin),
                    format!("cannot read `{value}`: {error}"),
                )),
            }
        }
    }

    /// Takes the values of the command line.
    pub(super) fn read_flags(&mut self, flags: &[FlagValue]) {
        for FlagValue { name, value, flag } in flags {
            let origin = Origin::Flag { flag };
            self.put_by_name(
                name,
                Raw {
                    text: value.clone(),
                    form: Form::Text,
                    origin,
                },
            );
        }
    }

    /// `name` is `section.key` or `listeners.INDEX.key`.
    fn put_by_name(&mut self, name: &str, raw: Raw) {
        let parts: Vec<&str> = name.split('.').collect();
        match *parts.as_slice() {
            [LISTENERS, index, key] => match index.parse::<usize>() {
                Ok(index) if index <= self.count(LISTENERS) => {
                    self.put_in_table(LISTENERS, index, key, raw);
                }
                Ok(index) => self.problems.push(Problem::new(
                    Some(raw.origin),
                    format!(
                        "there is no listener {index}; the next one is {}",
                        self.count(LISTENERS)
                    ),
                )),
                Err(_) => self.problems.push(
                    Problem::new(
                        Some(raw.origin),
                        format!("`{index}` is not the number of a listener"),
                    )
                    .help("listeners are numbered from 0: UNBROKEN__LISTENERS__0__PORT"),
                ),
            },
            [AUDIT, RULE, index, key] => self.put_numbered(RULES, "rule", index, key, raw),
            [ROLES, index, key] => self.put_numbered(ROLES, "role", index, key, raw),
            [RATES, index, key] => self.put_numbered(RATES, "table", index, key, raw),
            [JWT, index, key] => self.put_numbered(JWT, "table", index, key, raw),
            [HTTP_AUTH, index, key] => self.put_numbered(HTTP_AUTH, "table", index, key, raw),
            [GATEWAY, SP, index, key] => self.put_numbered(GATEWAYS, "gateway", index, key, raw),
            [section, key] if !ARRAYS.contains(&section) => {
                self.put(section, None, key, raw);
            }
            _ => self.problems.push(
                Problem::new(
                    Some(raw.origin),
                    format!("`{name}` is not the name of a value"),
                )
                .help("names are UNBROKEN__SECTION__KEY, or UNBROKEN__LISTENERS__0__KEY"),
            ),
        }
    }

    fn put_numbered(
        &mut self,
        section: &'static str,
        what: &str,
        index: &str,
        key: &str,
        raw: Raw,
    ) {
        let next = self.count(section);
        match index.parse::<usize>() {
            Ok(index) if index <= next => self.put_in_table(section, index, key, raw),
            _ => {
                let message =
                    format!("`{index}` is not the number of a {what}; the next is {next}");
                self.problems.push(Problem::new(Some(raw.origin), message));
            }
        }
    }

    /// Puts a value in a table that is there, or is the next one.
    fn put_in_table(&mut self, section: &'static str, index: usize, key: &str, raw: Raw) {
        let count = self.count(section).max(index + 1);
        self.tables.insert(section, count);
        self.put(section, Some(index), key, raw);
    }

    fn put(&mut self, section: &str, index: Option<usize>, key: &str, raw: Raw) {
        let Some(known_section) = section_names().find(|name| *name == section) else {
            self.problems.push(unknown_section(raw.origin, section));
            return;
        };
        if section == LISTENERS && key == ADDRESS {
            self.put_address(index, raw);
            return;
        }
        if section == LISTENERS
            && key == PROTOCOL
            && let Some(problem) = wrong_protocol(&raw)
        {
            self.problems.push(problem);
            return;
        }
        let Some(known_key) = key_names(section).find(|name| *name == key) else {
            self.problems.push(unknown_key(raw.origin, section, key));
            return;
        };
        self.values.insert(
            Place {
                section: known_section,
                index,
                key: known_key,
            },
            raw,
        );
    }

    /// Splits `host:port`; later steps know only `bind` and `port`.
    fn put_address(&mut self, index: Option<usize>, raw: Raw) {
        let Some((bind, port)) = raw.text.rsplit_once(':') else {
            let message = format!("`{}` is not an address and a port", raw.text);
            self.problems.push(
                Problem::new(Some(raw.origin), message)
                    .help("write it as \"127.0.0.1:1883\" or \"[::1]:1883\""),
            );
            return;
        };
        for (key, text) in [("bind", bind), ("port", port)] {
            self.put(
                LISTENERS,
                index,
                key,
                Raw {
                    text: text.to_owned(),
                    ..raw.clone()
                },
            );
        }
    }
}

/// A protocol of listeners of other brokers that is not supported.
fn wrong_protocol(raw: &Raw) -> Option<Problem> {
    let what = protocol(&raw.text)?;
    let origin = raw.origin.clone();
    let feature = what.feature;
    let message = format!("`{PROTOCOL}` in `{LISTENERS}`: {feature} is not supported yet");
    Some(not_yet(Problem::new(Some(origin), message), &what))
}

fn unknown_section(origin: Origin, section: &str) -> Problem {
    if let Some(what) = unsupported(section) {
        let message = format!("`{section}`: {} is not supported yet", what.feature);
        return not_yet(Problem::new(Some(origin), message), &what);
    }
    let problem = Problem::new(Some(origin), format!("unknown section `{section}`"));
    match instead_of(section) {
        Some(hint) => problem.help(hint),
        None => problem.suggest(section, section_names()),
    }
}

fn unknown_key(origin: Origin, section: &str, key: &str) -> Problem {
    let elsewhere = SECTIONS
        .iter()
        .find(|s| s.keys.iter().any(|k| k.name == key));
    if elsewhere.is_none()
        && let Some(what) = unsupported(key)
    {
        let feature = what.feature;
        let message = format!("`{key}` in `{section}`: {feature} is not supported yet");
        return not_yet(Problem::new(Some(origin), message), &what);
    }
    let problem = Problem::new(Some(origin), format!("unknown key `{key}` in `{section}`"));
    match (elsewhere, instead_of(key)) {
        (Some(owner), _) => problem.help(format!("`{key}` belongs to `[{}]`", owner.name)),
        (None, Some(hint)) => problem.help(hint),
        (None, None) => problem.suggest(key, key_names(section)),
    }
}

/// The section of [`RULES`], and its name in there.
const AUDIT: &str = "audit";
/// A key of listeners that users of other brokers write.
const PROTOCOL: &str = "protocol";
const RULE: &str = "rule";
/// The section of [`GATEWAYS`], and its name in there.
const GATEWAY: &str = "gateway";
const SP: &str = "sp";
/// What the name of an environment variable that sets a value begins with.
const ENVIRONMENT_PREFIX: &str = "UNBROKEN__";

/// The arrays of tables.
const ARRAYS: [&str; 7] = [LISTENERS, RULES, ROLES, RATES, JWT, HTTP_AUTH, GATEWAYS];

fn section_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|section| section.name).chain(ARRAYS)
}

fn key_names(section: &str) -> impl Iterator<Item = &'static str> {
    let listeners = section == LISTENERS;
    let listener_keys = if listeners { LISTENER_KEYS } else { &[] };
    let keys = SECTIONS
        .iter()
        .find(|s| s.name == section)
        .map_or(&[][..], |s| s.keys);
    let rule_keys = if section == RULES { RULE_KEYS } else { &[] };
    let role_keys = if section == ROLES { ROLE_KEYS } else { &[] };
    let rate_keys = if section == RATES { RATE_KEYS } else { &[] };
    let jwt_keys = if section == JWT { JWT_KEYS } else { &[] };
    let hook_keys = if section == HTTP_AUTH {
        HTTP_AUTH_KEYS
    } else {
        &[]
    };
    let gateway_keys = if section == GATEWAYS {
        GATEWAY_KEYS
    } else {
        &[]
    };
    keys.iter()
        .map(|key| key.name)
        .chain(gateway_keys.iter().map(|key| key.name))
        .chain(rule_keys.iter().map(|key| key.name))
        .chain(role_keys.iter().map(|key| key.name))
        .chain(rate_keys.iter().map(|key| key.name))
        .chain(jwt_keys.iter().map(|key| key.name))
        .chain(hook_keys.iter().map(|key| key.name))
        .chain(listener_keys.iter().map(|key| key.name))
        .chain(listeners.then_some(ADDRESS))
}

fn is_known(name: &str) -> bool {
    name.split_once('.')
        .zip(name.rsplit_once('.'))
        .is_some_and(|((section, _), (_, key))| key_names(section).any(|known| known == key))
}

/// The line of the byte at `offset`, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        + 1
}
