//! From lines to settings, and into included files.

use std::collections::HashSet;

use super::options::{Spec, Type, Where, option, options};
use super::value::{Read, Words};
use super::{Bridge, Conf, Directories, Listener, Owner, Plugin, Secret, Setting, Value, check};
use crate::bounds::TEXT_BYTES_MAX;
use crate::filter;
use crate::lex::{Lexer, Line, Token, each_line};
use crate::mistake::{Findings, Mistake, Mistakes, Remark, Source};

pub(super) fn conf(
    name: &str,
    text: &[u8],
    directories: &mut dyn Directories,
) -> Result<Conf, Mistakes> {
    let mut reader = Reader {
        conf: Conf::default(),
        findings: Findings::default(),
        is_per_listener: false,
        has_security: false,
        set: HashSet::new(),
        directories,
    };
    File::new(&mut reader, Source::new(name, text), false).read();
    let Reader {
        mut conf,
        mut findings,
        ..
    } = reader;
    // After a mistake it would miss what a line was to set.
    if !findings.has_mistakes() {
        check::whole(&conf, &mut findings);
    }
    conf.remarks = findings.finish()?;
    Ok(conf)
}

/// What all files of a configuration share.
struct Reader<'d> {
    conf: Conf,
    findings: Findings,
    /// Whether `per_listener_settings` is true.
    is_per_listener: bool,
    /// Whether an option that it concerns was set.
    has_security: bool,
    /// What was set for whom.
    set: HashSet<(Owner, &'static str)>,
    directories: &'d mut dyn Directories,
}

/// One file. What a line belongs to is remembered within a file only, as in Mosquitto.
struct File<'r, 't, 'd> {
    reader: &'r mut Reader<'d>,
    source: Source<'t>,
    listener: Option<Owner>,
    bridge: Option<Owner>,
    plugin: Option<Owner>,
    is_included: bool,
}

impl<'r, 't, 'd> File<'r, 't, 'd> {
    fn new(reader: &'r mut Reader<'d>, source: Source<'t>, is_included: bool) -> Self {
        Self {
            reader,
            source,
            listener: None,
            bridge: None,
            plugin: None,
            is_included,
        }
    }

    fn read(mut self) {
        match self.source.unreadable() {
            Some(mistake) => self.reader.findings.mistake(mistake),
            None => each_line(Lexer::conf(self.source.text), |line| {
                if let Err(mistake) = self.line(line) {
                    self.reader.findings.mistake(*mistake);
                }
            }),
        }
    }

    fn line(&mut self, line: &Line) -> Read<()> {
        let [key, words @ ..] = line.tokens.as_slice() else {
            return Ok(());
        };
        let key = *key;
        let spec = self.option(key)?;
        if line.is_too_long {
            return Err(Box::new(self.source.wrong(key, "fewer words in a line")));
        }
        let owner = self.owner(key, spec)?;
        self.refuse_exclusive(key, spec, owner)?;
        let source = self.source.clone();
        let mut words = Words::new(&source, key, words);
        let (owner, value) = match spec.value {
            Type::ListenerLine => self.listener(key, &mut words)?,
            Type::Connection => self.connection(key, &mut words)?,
            Type::Path if spec.place != Where::Listener => self.plugin(None, &mut words)?,
            Type::PluginLoad => {
                let name = words.word("a name and a path")?.1.to_owned();
                self.plugin(Some(name), &mut words)?
            }
            Type::PluginUse => self.use_plugin(key, owner, &mut words)?,
            Type::PluginOption => (owner, self.plugin_option(key, spec, &mut words)?),
            Type::Include => return self.include(key, line.tokens.last()),
            kind => (owner, words.value(kind, spec.is_secret)?),
        };
        self.check_value(key, spec, &value)?;
        self.remark(key, spec, words.ignored());
        self.set(key, spec, owner, value)
    }

    fn option(&self, key: Token) -> Read<&'static Spec> {
        let bytes = key.of(self.source.text);
        let name = std::str::from_utf8(bytes).unwrap_or_default();
        if let Some(spec) = option(name) {
            return Ok(spec);
        }
        let known = |name: &str| option(name).map(|spec| spec.name);
        let alike = || options().iter().map(|spec| spec.name);
        let expected = if name.starts_with('#') {
            "`#` in the first column, or an option".to_owned()
        } else if let Some(expected) = self.source.key_with_tab(key, known) {
            expected
        } else if let Some(nearest) = nearest(name, alike()) {
            format!("an option such as `{nearest}`")
        } else {
            "an option of Mosquitto".to_owned()
        };
        Err(Box::new(self.source.wrong(key, expected)))
    }

    /// Whom a line is about. Some lines choose the listener of the lines that follow.
    fn owner(&mut self, key: Token, spec: &Spec) -> Read<Owner> {
        let missing = |what: &str| {
            let expected = format!("{what} above `{}`", spec.name);
            Box::new(self.source.wrong(key, expected))
        };
        let own = |listener: &Owner| matches!(listener, Owner::Listener(_));
        if ["port", "bind_address"].contains(&spec.name) {
            self.listener = Some(Owner::DefaultListener);
            return Ok(Owner::DefaultListener);
        }
        Ok(match spec.place {
            Where::Anywhere => Owner::Broker,
            Where::Security => {
                self.reader.has_security = true;
                match self.listener {
                    _ if !self.reader.is_per_listener => Owner::Broker,
                    Some(listener) => listener,
                    None => return Err(missing("a `listener` line")),
                }
            }
            Where::SomeListener => *self.listener.get_or_insert(Owner::DefaultListener),
            Where::Listener => self.listener.ok_or_else(|| missing("a `listener` line"))?,
            Where::OwnListener => {
                let listener = self.listener.filter(own);
                listener.ok_or_else(|| missing("a `listener` line"))?
            }
            Where::Bridge => self.bridge.ok_or_else(|| missing("a `connection` line"))?,
            Where::Plugin => self.plugin.ok_or_else(|| missing("a `plugin` line"))?,
        })
    }

    fn refuse_exclusive(&self, key: Token, spec: &Spec, owner: Owner) -> Read<()> {
        let is_set = |name: &&&str| self.reader.set.contains(&(owner, **name));
        match spec.excludes.iter().find(is_set) {
            Some(other) => {
                let expected = format!("either `{}` or `{other}`, which is above", spec.name);
                Err(Box::new(self.source.wrong(key, expected)))
            }
            None => Ok(()),
        }
    }

    fn listener(&mut self, key: Token, words: &mut Words<'_, '_>) -> Read<(Owner, Value)> {
        let port = words.integer(0, 65_535)?;
        let port = u16::try_from(port).unwrap_or_default();
        let address = words.before_comment();
        if port == 0 && address.is_none() {
            return Err(Box::new(
                words.missing("the path of a Unix socket behind port 0"),
            ));
        }
        let owner = Owner::Listener(self.reader.conf.listeners.len());
        self.reader.conf.listeners.push(Listener {
            port,
            address: address.map(|(_, address)| address.to_owned()),
            place: self.source.place(key.line, key.start as usize),
        });
        self.listener = Some(owner);
        let address = address.map_or("", |(_, address)| address);
        let value = Value::Text(format!("{port} {address}").trim_end().to_owned());
        Ok((owner, value))
    }

    fn connection(&mut self, key: Token, words: &mut Words<'_, '_>) -> Read<(Owner, Value)> {
        let (token, name) = words.word("a name for the bridge")?;
        let bridges = &mut self.reader.conf.bridges;
        if bridges.iter().any(|bridge| bridge.name == name) {
            let expected = "a name that no bridge above has";
            return Err(Box::new(self.source.wrong(token, expected)));
        }
        let owner = Owner::Bridge(bridges.len());
        bridges.push(Bridge {
            name: name.to_owned(),
            place: self.source.place(key.line, key.start as usize),
        });
        self.bridge = Some(owner);
        Ok((owner, Value::Text(name.to_owned())))
    }

    fn plugin(&mut self, name: Option<String>, words: &mut Words<'_, '_>) -> Read<(Owner, Value)> {
        let plugins = &self.reader.conf.plugins;
        if name.is_some() && plugins.iter().any(|plugin| plugin.name == name) {
            return Err(Box::new(
                words.wrong_last("a name that no plugin above has"),
            ));
        }
        let path = words.text(TEXT_BYTES_MAX)?;
        let value = Value::Text(path.clone());
        let owner = Owner::Plugin(plugins.len());
        self.reader.conf.plugins.push(Plugin { name, path });
        self.plugin = Some(owner);
        Ok((owner, value))
    }

    fn use_plugin(
        &mut self,
        key: Token,
        owner: Owner,
        words: &mut Words<'_, '_>,
    ) -> Read<(Owner, Value)> {
        let name = words.text(TEXT_BYTES_MAX)?;
        let mut plugins = self.reader.conf.plugins.iter();
        let Some(index) = plugins.position(|plugin| plugin.name.as_deref() == Some(&name)) else {
            let expected = "a `plugin_load` line above with this name";
            return Err(Box::new(self.source.wrong(key, expected)));
        };
        self.plugin = Some(Owner::Plugin(index));
        Ok((owner, Value::Text(name)))
    }

    fn plugin_option(&mut self, key: Token, spec: &Spec, words: &mut Words<'_, '_>) -> Read<Value> {
        /// Mosquitto wants this many bytes behind the prefix.
        const NAME_BYTES_MIN: usize = 3;
        let whole = self.source.utf8(key, "an option")?;
        let name = whole.strip_prefix(spec.name).unwrap_or_default();
        if name.len() < NAME_BYTES_MIN {
            let expected = format!("`{}` and {NAME_BYTES_MIN} characters or more", spec.name);
            return Err(Box::new(self.source.wrong(key, expected)));
        }
        let value = words.text(TEXT_BYTES_MAX)?;
        Ok(Value::PluginOption(name.to_owned(), Secret(value)))
    }

    /// What only some options ask of their values.
    fn check_value(&mut self, key: Token, spec: &Spec, value: &Value) -> Read<()> {
        let wrong = |expected: &str| Err(Box::new(self.source.wrong(key, expected)));
        match (spec.name, value) {
            ("mount_point", Value::Text(text)) if text.contains(['+', '#']) => {
                wrong("a topic without wildcards behind `mount_point`")
            }
            ("mount_point", Value::Text(text)) => match filter::problem(text.as_bytes()) {
                Some((_, expected)) => wrong(&format!("{expected} behind `mount_point`")),
                None => Ok(()),
            },
            ("tls_engine_kpass_sha1", Value::Secret(Secret(text))) => {
                let is_digest = text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
                if is_digest {
                    return Ok(());
                }
                wrong("40 hexadecimal digits behind `tls_engine_kpass_sha1`")
            }
            ("per_listener_settings", Value::Flag(true)) if self.reader.is_per_listener => Ok(()),
            ("per_listener_settings", Value::Flag(true)) if self.reader.has_security => {
                wrong("`per_listener_settings` above all options that it concerns")
            }
            ("per_listener_settings", Value::Flag(flag)) => {
                self.reader.is_per_listener |= *flag;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn remark(&mut self, key: Token, spec: &Spec, ignored: Option<Token>) {
        let mut remark = |token: Token, text: String| {
            let place = self.source.place(token.line, token.start as usize);
            self.reader.findings.remark(Remark { place, text });
        };
        if let Some(advice) = spec.deprecated {
            remark(key, format!("`{}` is out of date: {advice}", spec.name));
        }
        if spec.is_new {
            remark(key, format!("Mosquitto 2.0 does not know `{}`", spec.name));
        }
        if let Some(token) = ignored {
            remark(
                token,
                "what is from here to the end of the line has no effect".to_owned(),
            );
        }
    }

    fn set(&mut self, key: Token, spec: &'static Spec, owner: Owner, value: Value) -> Read<()> {
        let name = match (&value, spec.name) {
            (_, "addresses") => "address",
            (Value::Words(_), "log_dest") => "log_dest file",
            (_, name) => name,
        };
        let is_single = match spec.value {
            Type::Text | Type::Prefix(_) => !spec.is_replaced,
            Type::Addresses => true,
            Type::LogDest => name != spec.name,
            _ => false,
        };
        let is_second = !self.reader.set.insert((owner, name));
        if is_single && is_second {
            let expected = format!("one `{name}`, which is above");
            return Err(Box::new(self.source.wrong(key, expected)));
        }
        self.reader.conf.settings.push(Setting {
            option: spec,
            owner,
            value,
            place: self.source.place(key.line, key.start as usize),
        });
        Ok(())
    }

    /// The files of a directory whose names end in `.conf`, in Mosquitto's order.
    fn include(&mut self, key: Token, last: Option<&Token>) -> Read<()> {
        const SUFFIX: &str = ".conf";
        let wrong = |expected: &str| Box::new(self.source.wrong(key, expected));
        if self.is_included {
            return Err(wrong("`include_dir` in the first file only"));
        }
        let end = last.map_or(key.end, |last| last.end);
        if end == key.end {
            return Err(Box::new(self.source.ends(key, "a directory")));
        }
        let token = Token {
            start: key.end + 1,
            end,
            ..key
        };
        let directory = self.source.utf8(token, "a directory")?.to_owned();
        let unreadable = |source: &Source<'_>, error: &dyn std::fmt::Display| Mistake {
            found: format!("an error: {error}"),
            ..source.wrong(token, "a directory whose files can be read")
        };
        let names = self.reader.directories.list(&directory);
        let mut names = names.map_err(|error| Box::new(unreadable(&self.source, &error)))?;
        names.retain(|name| name.len() > SUFFIX.len() && name.ends_with(SUFFIX));
        names.sort_by_cached_key(|name| (name.to_ascii_uppercase(), name.clone()));
        for name in names {
            let bytes = match self.reader.directories.read(&directory, &name) {
                Ok(bytes) => bytes,
                Err(error) => return Err(Box::new(unreadable(&self.source, &error))),
            };
            let path = format!("{}/{name}", directory.trim_end_matches('/'));
            File::new(self.reader, Source::new(&path, &bytes), true).read();
        }
        Ok(())
    }
}

/// The known name that is most like a written one, if any is like it.
fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Jaro-Winkler similarity from which a suggestion helps more than it confuses.
    const ALIKE: f64 = 0.85;
    let alike = known.map(|name| (strsim::jaro_winkler(&written.to_lowercase(), name), name));
    let likely = alike.filter(|(alike, _)| *alike >= ALIKE);
    likely
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}
