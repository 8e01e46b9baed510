//! Requests and answers of the wire protocol: JSON arrays of a name and what belongs to it.

use std::fmt;

use serde_json::{Value, json};

/// What Cucumber asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Which definitions fit a step with this text.
    StepMatches {
        /// The step without its keyword.
        name: String,
    },
    /// To carry out a definition that was among the matches.
    Invoke {
        /// The definition, as it was named in the match.
        id: String,
        /// What the match captured, and behind it the text or table under the step.
        args: Vec<Value>,
    },
    /// A scenario begins.
    BeginScenario {
        /// The tags of the scenario and its feature, without `@`.
        tags: Vec<String>,
    },
    /// The scenario has ended, however that was.
    EndScenario {
        /// Those it began with.
        tags: Vec<String>,
    },
    /// How a definition would begin that fits this step.
    SnippetText {
        /// `Given`, `When` or `Then`.
        keyword: String,
        /// The step without its keyword.
        name: String,
        /// What is under the step.
        under: Multiline,
    },
    /// Tables that a step sent to be compared are equal.
    DiffOk,
    /// Tables that a step sent to be compared differ.
    DiffFailed,
}

/// What is under a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiline {
    /// Nothing.
    None,
    /// A text.
    Text,
    /// A table.
    Table,
}

/// Why a line is no request. The answer says so, and Cucumber may send another.
#[derive(Debug)]
pub enum RequestError {
    /// It is not JSON.
    Json(serde_json::Error),
    /// It is JSON, but not an array that begins with a name.
    NoName,
    /// No message is called so.
    Unknown(String),
    /// A message lacks this, or has it in another type.
    Lacks(&'static str),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "the request is not JSON: {error}"),
            Self::NoName => f.write_str("the request is not an array that begins with a name"),
            Self::Unknown(name) => write!(f, "no request is called {name:?}"),
            Self::Lacks(key) => write!(f, "the request lacks {key:?}, or it has another type"),
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::NoName | Self::Unknown(_) | Self::Lacks(_) => None,
        }
    }
}

impl Request {
    /// Reads one line.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let value: Value = serde_json::from_slice(line).map_err(RequestError::Json)?;
        let name = value[0].as_str().ok_or(RequestError::NoName)?;
        let parameters = &value[1];
        let text = |key| {
            let text = parameters[key].as_str().map(str::to_owned);
            text.ok_or(RequestError::Lacks(key))
        };
        Ok(match name {
            "step_matches" => Self::StepMatches {
                name: text("name_to_match")?,
            },
            "invoke" => Self::Invoke {
                id: text("id")?,
                args: list(parameters, "args")?,
            },
            "begin_scenario" => Self::BeginScenario {
                tags: tags(parameters)?,
            },
            "end_scenario" => Self::EndScenario {
                tags: tags(parameters)?,
            },
            "snippet_text" => Self::SnippetText {
                keyword: text("step_keyword")?,
                name: text("step_name")?,
                under: match text("multiline_arg_class")? {
                    class if class.ends_with("Table") => Multiline::Table,
                    class if class.ends_with("String") => Multiline::Text,
                    _ => Multiline::None,
                },
            },
            "diff_ok" => Self::DiffOk,
            "diff_failed" => Self::DiffFailed,
            other => return Err(RequestError::Unknown(other.to_owned())),
        })
    }
}

fn list(parameters: &Value, key: &'static str) -> Result<Vec<Value>, RequestError> {
    let list = parameters[key].as_array().cloned();
    list.ok_or(RequestError::Lacks(key))
}

/// A scenario without tags has no parameters at all.
fn tags(parameters: &Value) -> Result<Vec<String>, RequestError> {
    const KEY: &str = "tags";
    if parameters.is_null() {
        return Ok(Vec::new());
    }
    let tags = list(parameters, KEY)?.into_iter();
    let tags = tags.map(|tag| tag.as_str().map(str::to_owned));
    tags.collect::<Option<_>>().ok_or(RequestError::Lacks(KEY))
}

/// An answer to Cucumber, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(Value);

/// A definition that fits a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// By which Cucumber asks for it.
    pub id: String,
    /// What its groups captured, each with where that begins in the step, in characters. `None` is
    /// a group that took no part.
    pub args: Vec<Option<(usize, String)>>,
    /// The file and line of the definition.
    pub source: String,
    /// Its pattern.
    pub pattern: String,
}

impl Answer {
    /// It is done.
    pub fn success() -> Self {
        Self(json!(["success"]))
    }

    /// These definitions fit.
    pub fn matches(matches: &[Match]) -> Self {
        let argument = |arg: &Option<(usize, String)>| match arg {
            Some((pos, val)) => json!({"val": val, "pos": pos}),
            None => json!({"val": null, "pos": null}),
        };
        let matches = matches.iter().map(|found| {
            json!({
                "id": found.id,
                "args": found.args.iter().map(argument).collect::<Vec<_>>(),
                "source": found.source,
                "regexp": found.pattern,
            })
        });
        Self(json!(["success", matches.collect::<Vec<_>>()]))
    }

    /// The beginning of a definition.
    pub fn snippet(text: &str) -> Self {
        Self(json!(["success", text]))
    }

    /// The step has no outcome, for this reason.
    pub fn pending(why: &str) -> Self {
        Self(json!(["pending", why]))
    }

    /// It cannot be done.
    pub fn fail(message: impl Into<String>) -> Self {
        Self(json!(["fail", {"message": message.into()}]))
    }

    /// The step failed, by an exception of this name.
    pub fn exception(message: &str, exception: &str) -> Self {
        Self(json!(["fail", {"message": message, "exception": exception}]))
    }
}

/// An answer as somebody else wrote it down.
impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
