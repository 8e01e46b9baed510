//! Certificates of a run: one authority, a broker's with each kind of key, and a client's.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version,
};
use tempfile::TempDir;

use super::rows::{Door, Key};

/// The name that the broker's certificates are for.
pub(super) const HOST: &str = "localhost";

/// Files of certificates, as long as it lives.
#[derive(Debug)]
pub(super) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    pub(super) fn make() -> io::Result<Self> {
        let directory = TempDir::with_prefix("unbroken-bench-certificates-")?;
        let ecdsa = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(io::Error::other);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(params, ecdsa()?).map_err(io::Error::other)?;
        let made = Self { directory };
        fs::write(made.authority(), authority.pem())?;
        let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        let keys = [
            ("ecdsa", HOST, ecdsa()?),
            ("rsa", HOST, rsa.map_err(io::Error::other)?),
            ("client", "device", ecdsa()?),
        ];
        for (file, name, key) in keys {
            let mut params =
                CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
            params.distinguished_name.push(DnType::CommonName, name);
            let signed = params
                .signed_by(&key, &authority)
                .map_err(io::Error::other)?;
            fs::write(made.path(file, "pem"), signed.pem())?;
            fs::write(made.path(file, "key"), key.serialize_pem())?;
        }
        Ok(made)
    }

    fn path(&self, name: &str, ending: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.{ending}"))
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.path("authority", "pem")
    }

    /// The broker's certificate and its key.
    pub(super) fn broker(&self, key: Key) -> [PathBuf; 2] {
        let name = match key {
            Key::Ecdsa => "ecdsa",
            Key::Rsa => "rsa",
        };
        ["pem", "key"].map(|ending| self.path(name, ending))
    }

    /// What a client needs for a door; `None` without TLS.
    pub(super) fn client(&self, door: Door) -> io::Result<Option<Arc<ClientConfig>>> {
        let Some(tls) = door.tls() else {
            return Ok(None);
        };
        let mut roots = RootCertStore::empty();
        let authority = certificate(&self.authority())?;
        roots.add(authority).map_err(io::Error::other)?;
        let versions: &[&SupportedProtocolVersion] = if tls.is_1_2 {
            &[&version::TLS12]
        } else {
            &[&version::TLS13]
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let mut config = if tls.has_client_certificate {
            let chain = vec![certificate(&self.path("client", "pem"))?];
            let key = PrivateKeyDer::from_pem_file(self.path("client", "key"));
            let key = key.map_err(io::Error::other)?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(io::Error::other)?
        } else {
            builder.with_no_client_auth()
        };
        if !tls.resumes {
            config.resumption = Resumption::disabled();
        }
        Ok(Some(Arc::new(config)))
    }
}

fn certificate(path: &Path) -> io::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).map_err(io::Error::other)
}
