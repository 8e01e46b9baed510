//! Certificates for a broker under test and its clients.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

/// An authority, and the directory of its files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    /// Writes `ca.pem`, `server.pem` and `server.key` for `localhost`.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let authority = Self { issuer, directory };
        authority.write("ca.pem", &authority.issuer.pem());
        authority.issue_server();
        authority
    }

    /// Replaces the certificate of the broker and its key.
    pub(crate) fn issue_server(&self) {
        self.issue_for("server", &["localhost", "127.0.0.1"]);
    }

    /// Writes `FILE.pem` and `FILE.key` for a broker on a host with these names.
    pub(crate) fn issue_for(&self, file: &str, hosts: &[&str]) {
        let names: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names of a host");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, params);
    }

    /// Replaces the certificate of the broker by one that expires with the first day of this year.
    pub(crate) fn issue_server_until(&self, year: i32) {
        let names = vec!["localhost".to_owned()];
        let mut params = CertificateParams::new(names).expect("names of a host");
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        self.issue("server", params);
    }

    /// Writes `NAME.pem` and `NAME.key` for a client.
    pub(crate) fn issue_client(&self, serial: u64, name: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params);
    }

    fn issue(&self, name: &str, params: CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// Writes `list.pem`.
    pub(crate) fn revoke(&self, serials: &[u64]) {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("a list");
        self.write("list.pem", &list.pem().expect("a list in PEM"));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the directory is writable");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same as text.
    pub(crate) fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A file of this directory in a configuration.
    pub(crate) fn in_config(&self, config: &str) -> String {
        let directory: &Path = self.directory.path();
        config.replace("DIRECTORY", &directory.display().to_string())
    }
}
