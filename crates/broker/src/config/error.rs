//! Errors of a configuration: every mistake, each with its place and a remedy.

use std::fmt;

use super::written::Origin;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    pub(super) problems: Vec<Problem>,
}

impl ConfigError {
    /// All mistakes: those of the file in the order of its lines, then the others. Never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl ConfigError {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match &problem.origin {
            Some(Origin::File { line, .. }) => (0, *line),
            _ => (1, 0),
        });
        Self { problems }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was made; `None`: in no single place.
    pub origin: Option<Origin>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Problem {
    pub(super) fn new(origin: Option<Origin>, message: impl Into<String>) -> Self {
        Self {
            origin,
            message: message.into(),
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds "did you mean" if one of `known` resembles `written`.
    pub(super) fn suggest<'a>(
        self,
        written: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        /// Jaro-Winkler similarity from which a suggestion helps more than it confuses.
        const ALIKE: f64 = 0.75;
        let nearest = known
            .into_iter()
            .map(|name| {
                (
                    strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase()),
                    name,
                )
            })
            .filter(|(alike, _)| *alike >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((_, name)) => self.help(format!("did you mean `{name}`?")),
            None => self,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.message)?,
            None => write!(f, "configuration: {}", self.message)?,
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}
