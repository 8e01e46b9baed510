//! Flags that say what lies below MQTT: TLS, WebSocket, a unix socket. Mosquitto's names and
//! meanings.

use std::fs;
use std::path::{Path, PathBuf};

use unbroken_client::{Tls, TlsOptions, TlsVersion, Transport};

use crate::url::Scheme;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS, WebSocket, unix sockets")]
pub(crate) struct TransportArgs {
    /// Authorities that are trusted, in PEM; TLS is used [default with mqtts: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    cafile: Option<PathBuf>,
    /// The same: all files of a directory that end in .pem or .crt
    #[arg(long, global = true, value_name = "DIR")]
    capath: Option<PathBuf>,
    /// Use TLS and trust the authorities of the system
    #[arg(long, global = true)]
    tls_use_os_certs: bool,
    /// Certificate of this client and its chain, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Kind of the private key: pem; engines are not supported
    #[arg(long, global = true, value_name = "KIND", requires = "key")]
    keyform: Option<String>,
    /// Use this version of TLS alone: tlsv1.2 or tlsv1.3 [default: the newest that the broker has]
    #[arg(long, global = true, value_name = "VERSION")]
    tls_version: Option<String>,
    /// Use these cipher suites alone: names of OpenSSL with colons between them
    #[arg(long, global = true, value_name = "LIST")]
    ciphers: Option<String>,
    /// Accept a certificate that is for another host; its authority is verified
    #[arg(long, global = true)]
    insecure: bool,
    /// Protocol to ask for in the TLS handshake (ALPN)
    #[arg(long, global = true, value_name = "NAME")]
    tls_alpn: Option<String>,
    /// Use WebSocket
    #[arg(long, global = true, conflicts_with = "unix")]
    ws: bool,
    /// Path of WebSocket requests
    #[arg(long, global = true, value_name = "PATH", default_value = "/mqtt")]
    ws_path: String,
    /// Connect to this unix socket
    #[arg(long, global = true, value_name = "PATH")]
    unix: Option<String>,

    /// Unsupported flags, so that their message says so
    #[arg(long, global = true, alias = "psk-identity", hide = true)]
    psk: Option<String>,
    /// As `psk`
    #[arg(long, global = true, alias = "tls-engine-kpass-sha1", hide = true)]
    tls_engine: Option<String>,
    /// As `psk`
    #[arg(long, global = true, hide = true)]
    proxy: Option<String>,
}

impl TransportArgs {
    /// The path of the unix socket; not to be taken for the name of a host.
    pub(crate) fn unix(&self) -> Option<String> {
        let path = self.unix.as_ref()?;
        let is_path = path.starts_with(['/', '.']);
        Some(if is_path {
            path.clone()
        } else {
            format!("./{path}")
        })
    }

    /// What the flags and a URL ask for.
    pub(crate) fn resolve(&self, scheme: Option<Scheme>) -> Result<Transport, String> {
        self.refuse_unsupported()?;
        let mut transport = Transport::default();
        let has_tls = self.cafile.is_some()
            || self.capath.is_some()
            || self.cert.is_some()
            || self.tls_use_os_certs
            || self.tls_version.is_some()
            || self.ciphers.is_some()
            || self.insecure;
        if has_tls || scheme.is_some_and(|scheme| scheme.has_tls) {
            let options = TlsOptions {
                authorities: self.authorities()?,
                certificate: self.cert.clone().zip(self.key.clone()),
                any_host: self.insecure,
                protocol: self.tls_alpn.clone(),
                version: self.version()?,
                cipher_suites: self.cipher_suites(),
            };
            transport = transport.tls(Tls::new(&options).map_err(|error| error.to_string())?);
        }
        if self.ws || scheme.is_some_and(|scheme| scheme.has_websocket) {
            transport = transport.websocket(self.ws_path.as_str());
        }
        Ok(transport)
    }

    fn refuse_unsupported(&self) -> Result<(), String> {
        let why = if self.psk.is_some() {
            "pre-shared keys are not supported; use a client certificate (--cert, --key)"
        } else if self.tls_engine.is_some() {
            ENGINES
        } else if self.proxy.is_some() {
            "--proxy is not supported; connect directly, or through a tunnel"
        } else {
            return Ok(());
        };
        Err(why.to_owned())
    }

    fn version(&self) -> Result<Option<TlsVersion>, String> {
        match self.keyform.as_deref() {
            None | Some("pem" | "PEM") => {}
            Some("engine") => return Err(ENGINES.to_owned()),
            Some(other) => return Err(format!("--keyform {other}: the key is read as pem alone")),
        }
        match self.tls_version.as_deref() {
            None => Ok(None),
            Some("tlsv1.2") => Ok(Some(TlsVersion::V1_2)),
            Some("tlsv1.3") => Ok(Some(TlsVersion::V1_3)),
            Some(other) => Err(format!(
                "--tls-version {other}: it is tlsv1.2 or tlsv1.3; older ones are not safe, and not \
                 supported"
            )),
        }
    }

    /// As OpenSSL separates them; what excludes suites that rustls never has means nothing here.
    fn cipher_suites(&self) -> Vec<String> {
        let list = self.ciphers.as_deref().unwrap_or_default();
        let names = list.split([':', ',', ' ']).filter(|name| !name.is_empty());
        let names = names.filter(|name| !name.starts_with(['!', '-']));
        let is_all = |name: &str| matches!(name, "ALL" | "DEFAULT" | "HIGH");
        let names: Vec<_> = names.map(str::to_owned).collect();
        if names.iter().any(|name| is_all(name)) {
            return Vec::new();
        }
        names
    }

    fn authorities(&self) -> Result<Vec<PathBuf>, String> {
        let mut files: Vec<_> = self.cafile.iter().cloned().collect();
        if let Some(directory) = &self.capath {
            let unreadable = |error| format!("cannot read {}: {error}", directory.display());
            for entry in fs::read_dir(directory).map_err(unreadable)? {
                let path = entry.map_err(unreadable)?.path();
                if is_certificate(&path) {
                    files.push(path);
                }
            }
            if files.is_empty() {
                let directory = directory.display();
                return Err(format!("{directory} has no file *.pem or *.crt"));
            }
        }
        Ok(files)
    }
}

/// Why a key in an engine is refused.
const ENGINES: &str = "engines of OpenSSL are not supported: give the key as a file in PEM (--key)";

fn is_certificate(path: &Path) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    matches!(extension, Some("pem" | "crt"))
}
