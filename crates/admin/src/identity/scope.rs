//! What a token is good for, beside its role: a method and the beginning of a path.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use serde::{Deserialize, Serialize};

use crate::limits::SCOPE_BYTES_MAX;

/// `GET /metrics`, `/api/v1/clients`; the second is for every method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Scope {
    method: Option<Method>,
    /// Whole segments of a path.
    path: String,
}

impl Scope {
    pub(crate) fn includes(&self, method: &Method, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        self.method.as_ref().is_none_or(|only| only == method)
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Scope {
    /// Whether it allows nothing that the other one does not.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let rest = self.path.strip_prefix(other.path.trim_end_matches('/'));
        (other.method.is_none() || other.method == self.method)
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method), path),
            None => (None, text),
        };
        let method = match method {
            None => None,
            Some(word) if ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&word) => {
                Some(Method::from_bytes(word.as_bytes()).map_err(|error| error.to_string())?)
            }
            Some(word) => {
                return Err(format!(
                    "{word:?} is no method: GET, POST, PUT, PATCH or DELETE"
                ));
            }
        };
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path || text.len() > SCOPE_BYTES_MAX {
            return Err(format!(
                "{path:?} is no beginning of a path of at most {SCOPE_BYTES_MAX} bytes, such as \
                 \"/api/v1/clients\""
            ));
        }
        Ok(Self {
            method,
            path: path.to_owned(),
        })
    }
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.method {
            Some(method) => write!(f, "{method} {}", self.path),
            None => f.write_str(&self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_includes_whole_segments() {
        for (scope, method, path, expected) in [
            ("/metrics", Method::GET, "/metrics", true),
            ("GET /metrics", Method::POST, "/metrics", false),
            ("/api/v1/clients", Method::GET, "/api/v1/clients/a", true),
            ("/api/v1/clients/", Method::GET, "/api/v1/clients", true),
            ("/api/v1/clients", Method::GET, "/api/v1/clientsx", false),
            ("/", Method::DELETE, "/api", true),
        ] {
            let scope: Scope = scope.parse().unwrap();
            assert_eq!(scope.includes(&method, path), expected, "{scope} {path}");
        }
        for (inner, outer, expected) in [
            ("GET /api/v1/clients/a", "/api/v1/clients", true),
            ("/api/v1/clients", "GET /api/v1/clients", false),
            ("POST /api/v1", "GET /api/v1", false),
            ("/api/v1/clients", "/api/v1/clients/", true),
            ("/api/v1/clientsx", "/api/v1/clients", false),
            ("/", "/api", false),
        ] {
            let (inner, outer): (Scope, Scope) = (inner.parse().unwrap(), outer.parse().unwrap());
            assert_eq!(inner.is_within(&outer), expected, "{inner} in {outer}");
        }
        for wrong in ["", "metrics", "get /metrics", "GET", "GET  /a", "GET /a b"] {
            assert!(wrong.parse::<Scope>().is_err(), "{wrong}");
        }
    }
}
