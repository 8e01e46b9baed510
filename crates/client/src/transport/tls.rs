//! TLS of a client, by rustls.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion, version,
};

use super::stream::{Layer, Stream};

/// How a client uses TLS: which brokers it trusts, and its own certificate. The files are read
/// once.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls") // it may have a key
    }
}

/// Why files cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file does not contain what it is named for.
    #[error("{}: {what}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The system has no authorities that are trusted.
    #[error(
        "this system names no authorities that are trusted: name a file with them ({0} problems)"
    )]
    NoSystemRoots(usize),
    /// A cipher suite that this client does not have.
    #[error("`{name}` is no cipher suite of this client, which has {known}")]
    UnknownCipherSuite {
        /// As it was named.
        name: String,
        /// Those that it has, with colons between them.
        known: String,
    },
    /// The parts do not fit.
    #[error("{0}")]
    Config(#[from] Error),
}

/// The files and choices of [`Tls`].
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Files with the authorities that are trusted, in PEM; none: those of the system.
    pub authorities: Vec<PathBuf>,
    /// A certificate with its chain, and its key, both in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Whether a broker's certificate may be for another host.
    pub any_host: bool,
    /// The protocol to ask for (ALPN).
    pub protocol: Option<String>,
    /// The only version to use; `None`: the newest that the broker has.
    pub version: Option<TlsVersion>,
    /// The only cipher suites to use, by the names of OpenSSL or of RFC 8446; empty: all.
    pub cipher_suites: Vec<String>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the ones everybody knows")]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

impl Tls {
    /// Reads the files.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        choose_suites(&mut provider, &options.cipher_suites)?;
        let provider = Arc::new(provider);
        let roots = Arc::new(roots(&options.authorities)?);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions(options.version))?;
        let builder = if options.any_host {
            let verifier = AnyHost::new(roots, provider)?;
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(Arc::new(verifier))
        } else {
            builder.with_root_certificates(roots)
        };
        let mut config = match &options.certificate {
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                builder.with_client_auth_cert(chain, private_key(key)?)?
            }
            None => builder.with_no_client_auth(),
        };
        let protocol = options.protocol.iter();
        config.alpn_protocols = protocol.map(|name| name.as_bytes().to_vec()).collect();
        let config = Arc::new(config);
        Ok(Self { config })
    }

    /// As rustls has it.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// The handshake.
    pub(super) async fn connect(&self, socket: Stream, host: &str) -> io::Result<Box<dyn Layer>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(Box::new(connector.connect(name, socket).await?))
    }
}

fn versions(only: Option<TlsVersion>) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match only {
        None => &ALL,
        Some(TlsVersion::V1_3) => &ALL[..1],
        Some(TlsVersion::V1_2) => &ALL[1..],
    }
}

/// Leaves the suites with these names.
fn choose_suites(provider: &mut CryptoProvider, names: &[String]) -> Result<(), TlsError> {
    let name_of = |suite: CipherSuite| SUITES.iter().find(|(known, _)| *known == suite);
    let is_called = |suite: CipherSuite, name: &str| {
        let openssl = name_of(suite).is_some_and(|(_, openssl)| *openssl == name);
        // rustls writes `TLS13_` where RFC 8446 has `TLS_`.
        let rfc = format!("{suite:?}").replace("TLS13_", "TLS_");
        openssl || rfc == name
    };
    let all: Vec<_> = provider
        .cipher_suites
        .iter()
        .map(SupportedCipherSuite::suite)
        .collect();
    let is_known = |name: &&String| all.iter().any(|suite| is_called(*suite, name));
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known = all.iter().filter_map(|suite| name_of(*suite));
        let known: Vec<_> = known.map(|(_, openssl)| *openssl).collect();
        return Err(TlsError::UnknownCipherSuite {
            name: unknown.clone(),
            known: known.join(":"),
        });
    }
    if !names.is_empty() {
        let is_chosen = |suite| names.iter().any(|name| is_called(suite, name));
        provider.cipher_suites.retain(|it| is_chosen(it.suite()));
    }
    Ok(())
}

/// The names of OpenSSL, which scripts for other clients have.
const SUITES: [(CipherSuite, &str); 9] = [
    (
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        "TLS_AES_256_GCM_SHA384",
    ),
    (
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        "TLS_AES_128_GCM_SHA256",
    ),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

fn roots(files: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for path in files {
        for certificate in certificates(path)? {
            roots.add(certificate)?;
        }
    }
    if files.is_empty() {
        let found = rustls_native_certs::load_native_certs();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            return Err(TlsError::NoSystemRoots(found.errors.len()));
        }
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let content = |what: String| TlsError::Content {
        path: path.to_owned(),
        what,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| content(format!("it is malformed PEM: {error}")))?;
    if found.is_empty() {
        return Err(content("it contains no certificate in PEM".to_owned()));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::Content {
        path: path.to_owned(),
        what: "it contains no private key in PEM, or an encrypted one: decrypt it with \
               `openssl pkey`"
            .to_owned(),
    })
}

/// Verifies a certificate as usual, except the host that it is for.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl AnyHost {
    fn new(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
        let verifier = builder.build();
        verifier
            .map(Self)
            .map_err(|error| Error::General(error.to_string()))
    }
}

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<CipherSuite>, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        choose_suites(&mut provider, &names)?;
        Ok(provider
            .cipher_suites
            .iter()
            .map(SupportedCipherSuite::suite)
            .collect())
    }

    #[test]
    fn cipher_suites_have_the_names_of_openssl_and_of_the_standard() {
        let all = chosen(&[]).unwrap();
        assert!(
            all.iter()
                .all(|it| SUITES.iter().any(|(known, _)| known == it))
        );
        for (name, suite) in [
            (
                "TLS_AES_128_GCM_SHA256",
                CipherSuite::TLS13_AES_128_GCM_SHA256,
            ),
            (
                "ECDHE-RSA-AES128-GCM-SHA256",
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ),
            (
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ),
        ] {
            assert_eq!(chosen(&[name]).unwrap(), [suite], "{name}");
        }
        let error = chosen(&["TLS_AES_128_GCM_SHA256", "RC4-MD5"]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`RC4-MD5`") && text.contains("ECDHE-RSA-"),
            "{text}"
        );
    }
}
