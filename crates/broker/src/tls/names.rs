//! What a certificate says: the names in it, and how long it holds.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::config::CertificateUser;

/// The parts of a certificate that the broker uses itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// Host names, in lower case; `*.` stands for any first label.
    pub(super) hosts: Vec<String>,
}

/// What a certificate says, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// Whose it is, as a distinguished name.
    pub subject: String,
    /// Who has issued it.
    pub issuer: String,
    /// Its alternative names: hosts, addresses, mail addresses, URIs.
    pub names: Vec<String>,
    /// The first second in which it is valid, since 1970.
    pub not_before: i64,
    /// The last one.
    pub not_after: i64,
    /// Whether it may issue others.
    pub is_authority: bool,
}

/// The same of a certificate in DER. `None`: it is none.
pub(super) fn info(der: &[u8]) -> Option<CertificateInfo> {
    let certificate = parse(der)?;
    let validity = certificate.validity();
    let names = alternatives(&certificate, |name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    });
    Some(CertificateInfo {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        names: names.collect(),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
        is_authority: certificate.is_ca(),
    })
}

/// Reads a certificate in DER. `None`: it is none.
pub(super) fn facts(der: &[u8]) -> Option<Facts> {
    let certificate = parse(der)?;
    let hosts = alternatives(&certificate, |name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Some(Facts {
        hosts: hosts.collect(),
    })
}

/// The last second in which a certificate is valid, since 1970.
pub(super) fn not_after(der: &[u8]) -> Option<i64> {
    Some(parse(der)?.validity().not_after.timestamp())
}

/// The user that a client's certificate names; the first, if it names several.
pub(super) fn user(der: &[u8], from: CertificateUser) -> Option<String> {
    let certificate = parse(der)?;
    let name = match from {
        CertificateUser::Off => None,
        CertificateUser::CommonName => {
            let name = certificate.subject().iter_common_name().next()?;
            name.as_str().ok().map(str::to_owned)
        }
        CertificateUser::Dns => alternatives(&certificate, |name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .next(),
        CertificateUser::Email => alternatives(&certificate, |name| match name {
            GeneralName::RFC822Name(name) => Some((*name).to_owned()),
            _ => None,
        })
        .next(),
        CertificateUser::Uri => alternatives(&certificate, |name| match name {
            GeneralName::URI(name) => Some((*name).to_owned()),
            _ => None,
        })
        .next(),
    };
    name.filter(|name| !name.is_empty() && !name.contains('\0'))
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(certificate)
}

/// Subject alternative names of one kind.
fn alternatives<'a>(
    certificate: &'a X509Certificate<'_>,
    of_kind: impl Fn(&'a GeneralName<'a>) -> Option<String> + 'a,
) -> impl Iterator<Item = String> + 'a {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension.map(|it| it.value.general_names.as_slice());
    names.unwrap_or_default().iter().filter_map(of_kind)
}

/// Whether a host name fits one of a certificate.
pub(super) fn fits(host: &str, pattern: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(domain)),
        None => host.eq_ignore_ascii_case(pattern),
    }
}
