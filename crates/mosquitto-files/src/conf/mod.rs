//! `mosquitto.conf`: every option of Mosquitto 2.0 and 2.1, each with its place and its value.
//!
//! ```text
//! options   the table: names, kinds of values, where an option may stand
//! read      from lines to settings, included files among them
//! value     one value
//! check     what only the whole file shows: a bridge without an address, for one
//! ```
//!
//! A value is read as Mosquitto reads it, not more cleverly: `0x10` is 16, words behind a number
//! are ignored, a tab separates nothing.

mod check;
mod options;
mod read;
mod value;

use std::fmt;
use std::io;

use crate::mistake::{Mistakes, Place, Remark};
pub use options::{Spec, option, options};

/// Opens what `include_dir` names.
pub trait Directories {
    /// The names of the files in a directory, in any order. The path is as it is written.
    fn list(&mut self, directory: &str) -> io::Result<Vec<String>>;
    /// The bytes of one of them.
    fn read(&mut self, directory: &str, name: &str) -> io::Result<Vec<u8>>;
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conf {
    /// Every line that sets something, in the order in which Mosquitto reads them.
    pub settings: Vec<Setting>,
    /// The `listener` lines.
    pub listeners: Vec<Listener>,
    /// The names of the `connection` lines.
    pub bridges: Vec<Bridge>,
    /// The plugins, as they are first named.
    pub plugins: Vec<Plugin>,
    /// Options that are out of date or not known to every 2.x, and values that are not all used.
    pub remarks: Vec<Remark>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The option.
    pub option: &'static Spec,
    /// What it is about.
    pub owner: Owner,
    /// Its value.
    pub value: Value,
    /// Where the line is.
    pub place: Place,
}

/// What a setting is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The broker, and all listeners.
    Broker,
    /// The listener of `port` and of options that stand before any `listener`.
    DefaultListener,
    /// An index of [`Conf::listeners`].
    Listener(usize),
    /// An index of [`Conf::bridges`].
    Bridge(usize),
    /// An index of [`Conf::plugins`].
    Plugin(usize),
}

/// A `listener` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The port; 0: a Unix socket, whose path is the address.
    pub port: u16,
    /// The address or host name; `None`: all addresses.
    pub address: Option<String>,
    /// Where the line is.
    pub place: Place,
}

/// A `connection` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Where the line is.
    pub place: Place,
}

/// A line that loads a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The name that `plugin_load` gives it.
    pub name: Option<String>,
    /// The library.
    pub path: String,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// None: the option is a name only.
    None,
    /// `true` or `false`.
    Flag(bool),
    /// A number as it is written, in the unit of the option.
    Number(i64),
    /// Several numbers.
    Numbers(Vec<i64>),
    /// A duration in seconds.
    Seconds(u64),
    /// A text or a word.
    Text(String),
    /// Several words.
    Words(Vec<String>),
    /// A text that is not to be shown.
    Secret(Secret),
    /// The hosts and ports of a bridge, in the order in which they are tried.
    Addresses(Vec<(String, u16)>),
    /// A topic of a bridge.
    Topic(Topic),
    /// An option of a plugin, and its value.
    PluginOption(String, Secret),
}

/// A text that cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) String);

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A topic that a bridge carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// The topic filter; `None`: the prefixes are whole topics.
    pub filter: Option<String>,
    /// Which way.
    pub direction: Direction,
    /// The QoS, at most 2.
    pub qos: u8,
    /// What is put before the filter here.
    pub local_prefix: Option<String>,
    /// What is put before the filter there.
    pub remote_prefix: Option<String>,
}

/// Which way a bridge carries a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the other broker.
    Out,
    /// From the other broker.
    In,
    /// Both ways.
    Both,
}

impl Direction {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
            Self::Both => "both",
        }
    }
}

impl Conf {
    /// Reads a file, and through `directories` what it includes; `name` is what its places are
    /// called by.
    pub fn parse(
        name: &str,
        text: &[u8],
        directories: &mut dyn Directories,
    ) -> Result<Self, Mistakes> {
        read::conf(name, text, directories)
    }

    /// The settings of one owner.
    pub fn of(&self, owner: Owner) -> impl Iterator<Item = &Setting> {
        self.settings
            .iter()
            .filter(move |setting| setting.owner == owner)
    }

    /// The last value of an option for one owner, which is the one in force.
    pub fn get(&self, owner: Owner, name: &str) -> Option<&Setting> {
        self.of(owner)
            .filter(|setting| setting.option.name == name)
            .last()
    }
}

/// The value as it could be written in a file; a secret as `(secret)`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Numbers(numbers) => joined(f, numbers),
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
            Self::Text(text) => f.write_str(text),
            Self::Words(words) => joined(f, words),
            Self::Secret(_) | Self::PluginOption(..) => f.write_str("(secret)"),
            Self::Addresses(addresses) => joined(
                f,
                addresses
                    .iter()
                    .map(|(host, port)| format!("{host}:{port}")),
            ),
            Self::Topic(topic) => write!(f, "{topic}"),
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_empty = |text: &Option<String>| match text {
            Some(text) if text.contains(' ') => format!("\"{text}\""),
            Some(text) => text.clone(),
            None => "\"\"".to_owned(),
        };
        let (filter, direction) = (or_empty(&self.filter), self.direction.word());
        write!(f, "{filter} {direction} {}", self.qos)?;
        if self.local_prefix.is_some() || self.remote_prefix.is_some() {
            let (local, remote) = (&self.local_prefix, &self.remote_prefix);
            write!(f, " {} {}", or_empty(local), or_empty(remote))?;
        }
        Ok(())
    }
}

fn joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        let space = if index > 0 { " " } else { "" };
        write!(f, "{space}{item}")?;
    }
    Ok(())
}
