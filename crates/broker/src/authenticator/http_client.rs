//! Requests to services that help to authenticate: an issuer's keys, a hook.
//!
//! Invariants:
//! - A request ends within its timeout, and reads a bounded answer.
//! - Certificates are verified, by the configured authorities or the system's.
//! - No redirect is followed, and no proxy of the environment is used: what is sent may be a
//!   password, and goes to the configured place alone.
//!
//! Deliberately absent: threads. A call blocks; no shard makes one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::Agent;
use ureq::http::{HeaderValue, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::bounds::CERTIFICATE_FILE_BYTES;
use crate::files;

/// A client with a pool of connections.
#[derive(Debug)]
pub(super) struct HttpClient(Agent);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpClientError {
    /// A file of authorities cannot be used.
    #[error("cannot read authorities from {}: {problem}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The system knows no authority.
    #[error("the system has no certificates of authorities; name some in `ca_file`")]
    NoAuthorities,
}

impl HttpClient {
    /// One for this URL, whose requests take at most `timeout`, with so many connections at a time.
    pub(super) fn new(
        url: &str,
        ca_file: Option<&Path>,
        timeout: Duration,
        connections: usize,
    ) -> Result<Self, HttpClientError> {
        let roots = match ca_file {
            Some(path) => authorities(path)?,
            None if !url.starts_with("https:") => Vec::new(), // none is asked for
            None => rustls_native_certs::load_native_certs().certs,
        };
        if roots.is_empty() && url.starts_with("https:") {
            return Err(HttpClientError::NoAuthorities);
        }
        let roots = roots
            .iter()
            .map(|der| Certificate::from_der(der).to_owned());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(timeout))
            .max_redirects(0)
            .proxy(None)
            .http_status_as_error(false)
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .user_agent("unbroken")
            .build();
        Ok(Self(config.new_agent()))
    }

    /// The body that is there, of at most so many bytes.
    pub(super) fn get(&self, url: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
        let answer = self.0.get(url).call();
        body(answer, bytes_max)
    }

    /// Sends JSON; the answer is as that of [`Self::get`].
    pub(super) fn post_json(
        &self,
        url: &str,
        authorization: Option<&HeaderValue>,
        json: &[u8],
        bytes_max: u64,
    ) -> Result<Vec<u8>, String> {
        let mut request = self.0.post(url).content_type("application/json");
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        body(request.send(json), bytes_max)
    }
}

/// A URL as the log may show it: what comes behind `?` may be secret.
pub(super) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

fn body(
    answer: Result<Response<ureq::Body>, ureq::Error>,
    bytes_max: u64,
) -> Result<Vec<u8>, String> {
    let mut answer = answer.map_err(|error| error.to_string())?;
    if answer.status() != 200 {
        return Err(format!("it answered {}", answer.status()));
    }
    let body = answer.body_mut().with_config().limit(bytes_max);
    body.read_to_vec().map_err(|error| error.to_string())
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, HttpClientError> {
    let problem = |problem: String| HttpClientError::Authorities {
        path: path.to_owned(),
        problem,
    };
    let pem =
        files::read(path, CERTIFICATE_FILE_BYTES).map_err(|error| problem(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| problem(error.to_string()))?;
    if found.is_empty() {
        return Err(problem("it has no certificates in PEM".to_owned()));
    }
    Ok(found)
}
