//! `unbroken check --mosquitto FILE` and `--acl FILE`: what is understood of Mosquitto's files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use unbroken_mosquitto_files::acl::{Acl, Who};
use unbroken_mosquitto_files::conf::{Conf, Directories, Owner, Setting, Value};
use unbroken_mosquitto_files::{Mistakes, Place, Remark, users};

use crate::exit::{Failure, NO_INPUT};

/// What was read, as lines and as JSON.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    settings: Vec<Json>,
    rules: Vec<Json>,
    remarks: Vec<Remark>,
    /// The mistakes of each file.
    mistakes: Vec<String>,
}

/// Reads a configuration, and the files with rights and passwords that it names.
pub(crate) fn conf(path: &Path, is_json: bool) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    match Conf::parse(&path.display().to_string(), &read(path)?, &mut OnDisk) {
        Ok(conf) => report.conf(&conf),
        Err(mistakes) => report.mistaken(&mistakes),
    }
    report.write(is_json)
}

/// Reads an access control list.
pub(crate) fn acl(path: &Path, is_json: bool) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    let text = read(path)?;
    report.acl(path, &text);
    report.write(is_json)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error| Failure::new(NO_INPUT, format!("cannot read {}: {error}", path.display()));
    fs::read(path).map_err(unreadable)
}

struct OnDisk;

impl Directories for OnDisk {
    fn list(&mut self, directory: &str) -> io::Result<Vec<String>> {
        let names = fs::read_dir(directory)?.map(|entry| {
            let name = entry?.file_name().into_string();
            name.map_err(|name| {
                io::Error::other(format!("a file name that is no text: {}", name.display()))
            })
        });
        names.collect()
    }

    fn read(&mut self, directory: &str, name: &str) -> io::Result<Vec<u8>> {
        fs::read(Path::new(directory).join(name))
    }
}

impl Report {
    fn conf(&mut self, conf: &Conf) {
        let named: Vec<_> = conf
            .settings
            .iter()
            .map(|setting| named(conf, setting))
            .collect();
        let width = |of: fn(&(String, String)) -> &String| {
            named
                .iter()
                .map(|named| of(named).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (owners, texts) = (width(|named| &named.0), width(|named| &named.1));
        for ((owner, text), setting) in named.iter().zip(&conf.settings) {
            let place = &setting.place;
            self.lines
                .push(format!("{owner:owners$}  {text:texts$}  # {place}"));
            self.settings.push(with_place(place, json!({
                "owner": owner, "option": setting.option.name, "value": setting.value.to_string(),
            })));
        }
        self.remarks.extend(conf.remarks.iter().cloned());
        for setting in &conf.settings {
            if let Value::Text(path) = &setting.value {
                match setting.option.name {
                    "acl_file" => self.named_file(setting, path, Self::acl),
                    "password_file" => self.named_file(setting, path, Self::passwords),
                    _ => {}
                }
            }
        }
    }

    /// Reads a file that a setting names.
    fn named_file(
        &mut self,
        setting: &Setting,
        path: &str,
        read: impl Fn(&mut Self, &Path, &[u8]),
    ) {
        match fs::read(path) {
            Ok(text) => read(self, Path::new(path), &text),
            Err(error) => self.mistakes.push(format!(
                "{}: expected a file that can be read behind `{}`, found an error: {path}: {error}",
                setting.place, setting.option.name
            )),
        }
    }

    fn acl(&mut self, path: &Path, text: &[u8]) {
        match Acl::parse(&path.display().to_string(), text) {
            Ok(acl) => {
                for rule in &acl.rules {
                    let who = match &rule.who {
                        Who::Anonymous => "clients without a name".to_owned(),
                        Who::User(name) => format!("user {name}"),
                        Who::Everyone => "every client".to_owned(),
                    };
                    let (access, filter) = (rule.access.word(), &rule.filter);
                    let line = format!("{who}  {access} {filter}  # {}", rule.place);
                    self.lines.push(line);
                    self.rules.push(with_place(
                        &rule.place,
                        json!({ "who": who, "access": access, "filter": filter }),
                    ));
                }
                self.remarks.extend(acl.remarks);
            }
            Err(mistakes) => self.mistaken(&mistakes),
        }
    }

    fn passwords(&mut self, path: &Path, text: &[u8]) {
        let name = path.display().to_string();
        match users::users(&name, &String::from_utf8_lossy(text)) {
            Ok(users) => self.lines.push(format!("# {name}: {} users", users.len())),
            Err(mistakes) => self.mistaken(&mistakes),
        }
    }

    fn mistaken(&mut self, mistakes: &Mistakes) {
        self.mistakes.push(mistakes.to_string());
    }

    fn write(self, is_json: bool) -> Result<ExitCode, Failure> {
        let is_valid = self.mistakes.is_empty();
        let written = if is_json {
            self.write_json()
        } else {
            self.write_lines()
        };
        written.map_err(|error| Failure::output(&error))?;
        Ok(if is_valid {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }

    fn write_lines(&self) -> io::Result<()> {
        let mut errors = io::stderr().lock();
        for mistakes in &self.mistakes {
            writeln!(errors, "{mistakes}")?;
        }
        if !self.mistakes.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        for remark in &self.remarks {
            writeln!(out, "# note: {remark}")?;
        }
        out.flush()
    }

    fn write_json(&self) -> io::Result<()> {
        let remark = |remark: &Remark| with_place(&remark.place, json!({ "text": remark.text }));
        let remarks: Vec<_> = self.remarks.iter().map(remark).collect();
        let mistakes: Vec<_> = self.mistakes.iter().flat_map(|all| all.lines()).collect();
        let whole = json!({
            "valid": mistakes.is_empty(),
            "settings": self.settings,
            "rules": self.rules,
            "remarks": remarks,
            "mistakes": mistakes,
        });
        let mut out = io::stdout().lock();
        writeln!(out, "{whole}")?;
        out.flush()
    }
}

fn with_place(place: &Place, mut object: Json) -> Json {
    object["file"] = json!(&*place.file);
    object["line"] = json!(place.line);
    object["column"] = json!(place.column);
    object
}

/// What a setting is about, and the setting.
fn named(conf: &Conf, setting: &Setting) -> (String, String) {
    let owner = match setting.owner {
        Owner::Broker => "broker".to_owned(),
        Owner::DefaultListener => "default listener".to_owned(),
        Owner::Listener(index) => match conf.listeners.get(index) {
            Some(listener) => format!("listener {}", listener.port),
            None => "listener".to_owned(),
        },
        Owner::Bridge(index) => match conf.bridges.get(index) {
            Some(bridge) => format!("bridge {}", bridge.name),
            None => "bridge".to_owned(),
        },
        Owner::Plugin(index) => format!("plugin {}", index + 1),
    };
    let name = match &setting.value {
        Value::PluginOption(option, _) => format!("{}{option}", setting.option.name),
        _ => setting.option.name.to_owned(),
    };
    (owner, format!("{name} = {}", setting.value))
}
