//! From the files of a listener to rustls' configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, ServerConfig,
    VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, SupportedProtocolVersion, version};
use sha2::{Digest, Sha256};
use x509_parser::revocation_list::CertificateRevocationList;

use super::expiry::{Expiring, Expiry};
use super::names::{self, CertificateInfo, Facts, fits};
use crate::bounds::CERTIFICATE_FILE_BYTES;
use crate::config::{CertificateUser, Tls, TlsVersion};
use crate::files;

/// The certificates, keys and trust of one listener, as its files were when they were read.
#[derive(Debug)]
pub(super) struct TlsRules {
    pub(super) config: Arc<ServerConfig>,
    /// `None`: clients need no certificate.
    verifier: Verifier,
    requires_certificate: bool,
    user_from: CertificateUser,
    /// Names all that decides whether a client's certificate is trusted.
    trust: [u8; 32],
    expiries: Vec<Expiry>,
}

type Verifier = Option<Arc<dyn ClientCertVerifier>>;

/// Why files cannot be used.
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
}

impl TlsRules {
    /// Reads the files. Tickets of `old` rules stay good if the trust is the same.
    pub(super) fn read(tls: &Tls, alpn: &[u8], old: Option<&Self>) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut expiries = Vec::new();
        let certificates = Certificates::read(tls, &provider, &mut expiries)?;
        let trust = Trust::read(tls)?;
        trust.note_expiries(&mut expiries);
        let (verifier, trust) = trust.verifier(tls, &provider)?;
        let internal = |error: rustls::Error| TlsError::Content {
            path: certificates.first.clone(),
            what: error.to_string(),
        };
        let ticketer: Arc<dyn ProducesTickets> = match old {
            Some(old) if old.trust == trust => Arc::clone(&old.config.ticketer),
            _ => aws_lc_rs::Ticketer::new().map_err(internal)?,
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(tls.min_version))
            .map_err(internal)?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.ticketer = ticketer;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            requires_certificate: verifier.is_some() && tls.require_client_certificate,
            verifier,
            user_from: tls.certificate_user,
            trust,
            expiries,
        })
    }

    pub(super) fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    pub(super) const fn requires_certificate(&self) -> bool {
        self.requires_certificate
    }

    /// Verifies a chain that other rules, or an earlier connection, have verified.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<(), rustls::Error> {
        let (Some(verifier), [first, rest @ ..]) = (&self.verifier, chain) else {
            return Ok(());
        };
        let verified = verifier.verify_client_cert(first, rest, UnixTime::now());
        verified.map(|_| ())
    }

    /// The user that a verified chain names. `None`: certificates name no users here, or are not
    /// verified any more.
    pub(super) fn user(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Result<Option<String>, Box<str>> {
        let names_users = self.verifier.is_some() && self.user_from != CertificateUser::Off;
        let (true, Some(first)) = (names_users, chain.first()) else {
            return Ok(None);
        };
        let user = names::user(first, self.user_from);
        let missing = || {
            let what = self.user_from.describe();
            format!("its certificate has no {what}, which `certificate_user` asks for").into()
        };
        user.map(Some).ok_or_else(missing)
    }
}

const fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_1_2: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match min {
        TlsVersion::V1_2 => &FROM_1_2,
        TlsVersion::V1_3 => FROM_1_2.split_at(1).0,
    }
}

/// The server's certificates. The client's name for the server (SNI) chooses one; without a name,
/// or with an unknown one, the first is used.
#[derive(Debug)]
struct Certificates {
    all: Vec<(Facts, Arc<CertifiedKey>)>,
    /// For messages.
    first: PathBuf,
}

impl Certificates {
    fn read(
        tls: &Tls,
        provider: &CryptoProvider,
        expiries: &mut Vec<Expiry>,
    ) -> Result<Self, TlsError> {
        let mut all = Vec::new();
        for (certificate_path, key_path) in tls.certificate_files.iter().zip(&tls.key_files) {
            let chain = certificates(certificate_path)?;
            let wrong = |path: &Path, what: String| TlsError::Content {
                path: path.to_owned(),
                what,
            };
            let facts = names::facts(&chain[0]).ok_or_else(|| {
                wrong(
                    certificate_path,
                    "its first certificate is malformed".into(),
                )
            })?;
            let ends = chain.iter().filter_map(|der| names::not_after(der));
            expiries.extend(expiry(certificate_path, Expiring::Certificate, ends));
            let pem = read(key_path)?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
                let what = "it contains no private key in PEM; an encrypted one cannot be used \
                            (decrypt it with `openssl pkey`)";
                wrong(key_path, what.into())
            })?;
            let key =
                CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        let what = format!(
                            "this key does not belong to the first certificate of {}",
                            certificate_path.display()
                        );
                        wrong(key_path, what)
                    }
                    error => wrong(key_path, error.to_string()),
                })?;
            all.push((facts, Arc::new(key)));
        }
        let first = tls.certificate_files.first().cloned().unwrap_or_default();
        if all.is_empty() {
            return Err(TlsError::Content {
                path: first,
                what: "the listener has no certificate".to_owned(),
            });
        }
        Ok(Self { all, first })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_named = |facts: &Facts| {
            let name = hello.server_name();
            name.is_some_and(|name| facts.hosts.iter().any(|host| fits(name, host)))
        };
        let can_verify = |key: &CertifiedKey| {
            let scheme = key.key.choose_scheme(hello.signature_schemes());
            scheme.is_some()
        };
        let rank = |facts: &Facts, key: &CertifiedKey| (is_named(facts), can_verify(key));
        let best = self.all.iter().rev(); // of equals, the last one is the largest
        let best = best.max_by_key(|(facts, key)| rank(facts, key));
        best.map(|(_, key)| Arc::clone(key))
    }
}

/// Which clients' certificates are trusted.
#[derive(Default)]
struct Trust {
    authorities: Option<(PathBuf, Vec<CertificateDer<'static>>)>,
    revocations: Option<(PathBuf, Vec<CertificateRevocationListDer<'static>>)>,
}

impl Trust {
    fn read(tls: &Tls) -> Result<Self, TlsError> {
        let mut trust = Self::default();
        if let Some(path) = &tls.client_ca_file {
            trust.authorities = Some((path.clone(), certificates(path)?));
        }
        if let Some(path) = &tls.crl_file {
            trust.revocations = Some((path.clone(), revocation_lists(path)?));
        }
        Ok(trust)
    }

    fn note_expiries(&self, expiries: &mut Vec<Expiry>) {
        if let Some((path, authorities)) = &self.authorities {
            let ends = authorities.iter().filter_map(|der| names::not_after(der));
            expiries.extend(expiry(path, Expiring::Authority, ends));
        }
        if let Some((path, lists)) = &self.revocations {
            let ends = lists.iter().filter_map(|der| next_update(der));
            expiries.extend(expiry(path, Expiring::RevocationList, ends));
        }
    }

    /// What verifies certificates, and the name of all that it depends on.
    fn verifier(
        self,
        tls: &Tls,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Verifier, [u8; 32]), TlsError> {
        let mut digest = Sha256::new();
        digest.update([u8::from(tls.require_client_certificate)]);
        digest.update([tls.certificate_user as u8, u8::from(tls.enforce_crl_expiry)]);
        let Some((path, authorities)) = self.authorities else {
            return Ok((None, digest.finalize().into()));
        };
        let wrong = |path: &Path, what: String| TlsError::Content {
            path: path.to_owned(),
            what,
        };
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            digest.update(&authority);
            roots
                .add(authority)
                .map_err(|error| wrong(&path, error.to_string()))?;
        }
        let provider = Arc::clone(provider);
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if let Some((_, lists)) = self.revocations {
            for list in &lists {
                digest.update(list);
            }
            builder = builder.with_crls(lists);
            if tls.enforce_crl_expiry {
                builder = builder.enforce_revocation_expiration();
            }
        }
        if !tls.require_client_certificate {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(error) => {
                let path = tls.crl_file.as_deref().unwrap_or(&path);
                wrong(path, format!("{error:?}"))
            }
            error => wrong(&path, error.to_string()),
        })?;
        Ok((Some(verifier), digest.finalize().into()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path, CERTIFICATE_FILE_BYTES).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// What the certificates of a PEM file say; at least one.
pub fn certificates_of(path: &Path) -> Result<Vec<CertificateInfo>, TlsError> {
    let malformed = || TlsError::Content {
        path: path.to_owned(),
        what: "a certificate in it is malformed".to_owned(),
    };
    let found = certificates(path)?.into_iter();
    found
        .map(|der| names::info(&der).ok_or_else(malformed))
        .collect()
}

/// The certificates of a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    objects(path, "certificate")
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    objects(path, "certificate revocation list")
}

fn objects<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, TlsError> {
    let pem = read(path)?;
    let content = |what: String| TlsError::Content {
        path: path.to_owned(),
        what,
    };
    let objects: Result<Vec<T>, _> = T::pem_slice_iter(&pem).collect();
    let objects = objects.map_err(|error| content(format!("it is malformed PEM: {error}")))?;
    if objects.is_empty() {
        return Err(content(format!("it contains no {what} in PEM")));
    }
    Ok(objects)
}

/// When a file ends that has what ends then.
fn expiry(path: &Path, what: Expiring, ends: impl Iterator<Item = i64>) -> Option<Expiry> {
    Some(Expiry {
        file: path.to_owned(),
        what,
        not_after: ends.min()?,
    })
}

/// When the list should have been renewed.
fn next_update(list: &CertificateRevocationListDer<'_>) -> Option<i64> {
    use x509_parser::prelude::FromDer;

    // rustls reports one that is malformed.
    let (_, list) = CertificateRevocationList::from_der(list).ok()?;
    list.next_update().map(|time| time.timestamp())
}
