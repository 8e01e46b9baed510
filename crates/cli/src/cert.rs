//! `unbroken cert`: an authority of one's own, and certificates of it, for those who have none.
//!
//! A directory is the authority: `ca.pem`, `ca.key`, and a pair of files for each certificate.
//!
//! Invariants:
//! - No file is replaced: one that is there may be in use.
//! - Keys are readable by their owner alone from their first moment on.
//!
//! Deliberately absent: revocation lists and requests of others (`openssl ca` has both), and the
//! renewal of certificates that others have issued.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use unbroken_broker::{CertificateInfo, certificates_of};

use crate::exit::{self, Failure};

/// Make an authority and certificates for TLS, and show certificates
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    NewCa(NewCa),
    Issue(Issue),
    Show(Show),
}

/// Make an authority: a directory with its certificate and its key
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  unbroken cert new-ca pki
  unbroken cert issue pki --server mqtt.example.org

Whoever has ca.key can issue certificates that all trust who trust ca.pem: keep it off the
broker's machine if you can. The key is ECDSA P-256.
Exit codes: 0 done; 2 wrong usage; 73 a file exists already or cannot be written.")]
struct NewCa {
    /// The directory; made if it is not there
    directory: PathBuf,
    /// Name of the authority
    #[arg(long, value_name = "NAME", default_value = "unbroken authority")]
    name: String,
    /// Days until it expires
    #[arg(long, value_name = "N", default_value_t = 3_650)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

/// Issue a certificate of an authority, with a key of its own
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  unbroken cert issue pki --server mqtt.example.org --server 10.0.0.7
                                       for the broker, by all names that clients use for it
  unbroken cert issue pki --client pump-7
                                       for a client, whose user is `pump-7` then

It prints the lines of the configuration, and the flags of a client. To renew one, move its
files away first.
Exit codes: 0 done; 2 wrong usage; 65 the authority's files are damaged; 66 they cannot be
read; 73 a file exists already or cannot be written.")]
struct Issue {
    /// The authority's directory
    directory: PathBuf,
    /// For a broker: a host name or an IP address, once for each
    #[arg(long, value_name = "NAME", required_unless_present = "client")]
    server: Vec<String>,
    /// For a client: its common name
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    client: Option<String>,
    /// Days until it expires, but not longer than the authority
    #[arg(long, value_name = "N", default_value_t = 825)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

/// Show the certificates of a file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 shown; 1 one of them has expired; 66 the file cannot be read.")]
struct Show {
    /// The file, in PEM
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::NewCa(args) => new_ca(args),
        Command::Issue(args) => issue(args),
        Command::Show(args) => show(args),
    }
}

fn new_ca(args: &NewCa) -> Result<ExitCode, Failure> {
    let mut params = params(common_name(&args.name)?, args.days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = new_key()?;
    let certificate = params.self_signed(&key).map_err(|error| internal(&error))?;
    make_directory(&args.directory)?;
    let files = Files::new(&args.directory, "ca");
    files.write(&certificate.pem(), &key.serialize_pem())?;
    let text = format!(
        "{}\nClients and brokers that trust this authority need {} alone.\n",
        files.written(&certificate_of(&files.certificate)?),
        absolute(&files.certificate)
    );
    print(&text)
}

fn issue(args: &Issue) -> Result<ExitCode, Failure> {
    let (ca, issuer) = authority(&args.directory)?;
    let (file, mut params) = match (&args.client, args.server.first()) {
        (Some(client), _) => (client, client_params(client, args.days)?),
        (None, Some(first)) => (first, server_params(&args.server, args.days)?),
        (None, None) => return Err(Failure::new(exit::USAGE, "it has no name")),
    };
    let until = date_time_ymd(1970, 1, 1) + seconds(ca.not_after);
    params.not_after = params.not_after.min(until);
    let files = Files::new(&args.directory, file_name(file)?);
    let key = new_key()?;
    let certificate = params
        .signed_by(&key, &issuer)
        .map_err(|error| internal(&error))?;
    files.write(&certificate.pem(), &key.serialize_pem())?;
    let written = files.written(&certificate_of(&files.certificate)?);
    let ca = absolute(&args.directory.join("ca.pem"));
    let (certificate, key) = (absolute(&files.certificate), absolute(&files.key));
    print(&if args.client.is_some() {
        format!(
            "{written}\n\
             In the table of the listener, beside its own certificate:\n\n\
             client_ca_file = {}\n\n\
             The client: unbroken pub --cafile {ca} --cert {certificate} --key {key} …\n",
            quoted(&ca)
        )
    } else {
        format!(
            "{written}\n\
             In the configuration of the broker:\n\n\
             [[listeners]]\n\
             protocol = \"mqtts\"\n\
             bind = \"*\"\n\
             certificate_file = {}\n\
             key_file = {}\n\
             stored_users = true    # unbroken user add NAME\n\n\
             A client: unbroken sub -h {file} -p 8883 --cafile {ca} -u NAME -P PASSWORD …\n",
            quoted(&certificate),
            quoted(&key)
        )
    })
}

fn show(args: &Show) -> Result<ExitCode, Failure> {
    let found = certificates_of(&args.file).map_err(unreadable)?;
    let has_expired = found.iter().any(|it| days_left(it) < 0);
    let shown: Vec<_> = found.iter().map(shown).collect();
    print(&(shown.join("\n\n") + "\n"))?;
    Ok(ExitCode::from(u8::from(has_expired)))
}

fn shown(certificate: &CertificateInfo) -> String {
    let state = match days_left(certificate) {
        ..0 => "expired".to_owned(),
        left => format!("{left} days left"),
    };
    let kind = if certificate.is_authority {
        "an authority"
    } else {
        "no authority"
    };
    format!(
        "subject  {}\nissuer   {}\nnames    {}\nvalid    {} to {} ({state})\nkind     {kind}",
        certificate.subject,
        certificate.issuer,
        certificate.names.join(", "),
        date(certificate.not_before),
        date(certificate.not_after),
    )
}

/// The two files of a certificate.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(directory: &Path, name: &str) -> Self {
        Self {
            certificate: directory.join(format!("{name}.pem")),
            key: directory.join(format!("{name}.key")),
        }
    }

    /// Writes both or none.
    fn write(&self, certificate: &str, key: &str) -> Result<(), Failure> {
        create(&self.key, key, 0o600)?;
        create(&self.certificate, certificate, 0o644).inspect_err(|_| {
            // It was made just now, and belongs to nothing.
            let _ = fs::remove_file(&self.key);
        })
    }

    fn written(&self, certificate: &CertificateInfo) -> String {
        format!(
            "wrote {} and {}, valid until {}\n",
            self.certificate.display(),
            self.key.display(),
            date(certificate.not_after)
        )
    }
}

/// Writes a file that is not there yet.
fn create(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(mode);
    #[cfg(not(unix))]
    let _ = mode;
    let write = || options.open(path)?.write_all(text.as_bytes());
    write().map_err(|error| {
        let path = path.display();
        let why = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{path} exists already, and nothing is replaced: move it away first")
            }
            _ => format!("cannot write {path}: {error}"),
        };
        Failure::new(exit::CANNOT_CREATE, why)
    })
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(path).map_err(|error| {
        let why = format!("cannot make the directory {}: {error}", path.display());
        Failure::new(exit::CANNOT_CREATE, why)
    })
}

/// The authority of a directory, to issue with.
fn authority(directory: &Path) -> Result<(CertificateInfo, Issuer<'static, KeyPair>), Failure> {
    let files = Files::new(directory, "ca");
    let info = certificate_of(&files.certificate)?;
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| {
            let why = format!(
                "cannot read {}: {error}; `unbroken cert new-ca DIR` makes an authority",
                path.display()
            );
            Failure::new(exit::NO_INPUT, why)
        })
    };
    let damaged = |path: &Path, error: rcgen::Error| {
        Failure::new(exit::DATA, format!("{}: {error}", path.display()))
    };
    let key = KeyPair::from_pem(&read(&files.key)?).map_err(|error| damaged(&files.key, error))?;
    let issuer = Issuer::from_ca_cert_pem(&read(&files.certificate)?, key);
    let issuer = issuer.map_err(|error| damaged(&files.certificate, error))?;
    if !info.is_authority {
        let why = format!("{} is no authority", files.certificate.display());
        return Err(Failure::new(exit::DATA, why));
    }
    if days_left(&info) < 0 {
        let why = format!(
            "the authority {} expired on {}",
            files.certificate.display(),
            date(info.not_after)
        );
        return Err(Failure::new(exit::DATA, why));
    }
    Ok((info, issuer))
}

/// Valid from an hour ago, because clocks differ.
fn params(name: DistinguishedName, days: u32) -> CertificateParams {
    const HOUR: Duration = Duration::from_hours(1);
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let epoch = date_time_ymd(1970, 1, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(HOUR);
    params.not_before = epoch + now.saturating_sub(HOUR);
    params.not_after = epoch + now + Duration::from_hours(24 * u64::from(days));
    params
}

fn server_params(names: &[String], days: u32) -> Result<CertificateParams, Failure> {
    let wrong = |name: &str| {
        let why = format!("`{name}` is neither the name of a host nor an IP address");
        Failure::new(exit::USAGE, why)
    };
    let is_host = |name: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_*:".contains(&byte);
        !name.is_empty() && name.bytes().all(is_known)
    };
    if let Some(name) = names.iter().find(|name| !is_host(name)) {
        return Err(wrong(name));
    }
    let first = names.first().map_or("", String::as_str);
    let named = CertificateParams::new(names).map_err(|_| wrong(first))?;
    // A name that is too long for it is among the alternative names, which count.
    let name = common_name(first).unwrap_or_default();
    let mut params = params(name, days);
    params.subject_alt_names = named.subject_alt_names;
    leaf(&mut params, ExtendedKeyUsagePurpose::ServerAuth);
    Ok(params)
}

fn client_params(name: &str, days: u32) -> Result<CertificateParams, Failure> {
    let mut params = params(common_name(name)?, days);
    leaf(&mut params, ExtendedKeyUsagePurpose::ClientAuth);
    Ok(params)
}

fn leaf(params: &mut CertificateParams, purpose: ExtendedKeyUsagePurpose) {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params.use_authority_key_identifier_extension = true;
}

fn common_name(name: &str) -> Result<DistinguishedName, Failure> {
    // ub-common-name of RFC 5280.
    if name.is_empty() || name.chars().count() > 64 || name.contains(char::is_control) {
        let why = format!("`{name}` cannot be a common name: it has 1 to 64 characters");
        return Err(Failure::new(exit::USAGE, why));
    }
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    Ok(names)
}

/// The name of the files of a certificate with this name.
fn file_name(name: &str) -> Result<&str, Failure> {
    if name.contains(['/', '\\', '\0']) || name.starts_with('.') {
        let why = format!("`{name}` cannot be the name of a file: it has / or \\ or begins with .");
        return Err(Failure::new(exit::USAGE, why));
    }
    Ok(name)
}

fn new_key() -> Result<KeyPair, Failure> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| internal(&error))
}

fn certificate_of(path: &Path) -> Result<CertificateInfo, Failure> {
    let found = certificates_of(path).map_err(unreadable)?;
    let none = || Failure::new(exit::DATA, format!("{} has no certificate", path.display()));
    found.into_iter().next().ok_or_else(none)
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::new(exit::NO_INPUT, error)
}

fn internal(error: &rcgen::Error) -> Failure {
    Failure::new(
        exit::INTERNAL,
        format!("cannot make the certificate: {error}"),
    )
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).display().to_string()
}

/// As a text of TOML.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn days_left(certificate: &CertificateInfo) -> i64 {
    (certificate.not_after - Timestamp::now().as_second()).div_euclid(86_400)
}

/// The day of a time in seconds since 1970, in UTC.
pub(crate) fn date(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds);
    time.map_or_else(
        |_| seconds.to_string(),
        |time| time.strftime("%Y-%m-%d").to_string(),
    )
}

fn seconds(since_1970: i64) -> Duration {
    Duration::from_secs(u64::try_from(since_1970).unwrap_or(0))
}
