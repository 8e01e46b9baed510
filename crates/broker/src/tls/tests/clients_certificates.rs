//! Certificates of clients: who is let in, under which name, and what tickets do not bypass.

use rcgen::SanType;
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::{Authority, Client, Files};
use crate::config::CertificateUser;
use crate::tls::Expiring;

/// A listener's files that ask for certificates of this authority.
fn files(clients: &Authority) -> Files {
    let mut files = Files::new();
    files.tls.client_ca_file = Some(files.write("clients.pem", &clients.pem()));
    files
}

fn client(files: &Files, certificate: Option<(Vec<u8>, Vec<u8>)>) -> Client {
    Client::new(&files.authority, &[&TLS12, &TLS13], certificate)
}

#[test]
fn only_a_certificate_of_the_authority_lets_a_client_in() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    let listener = files.listener();
    let mut known = client(&files, Some(clients.client(1, "ann", vec![])));
    known.connect(&listener, "localhost").unwrap();
    assert_eq!(known.user().as_deref(), Some("ann"));
    let stranger = Authority::new("clients").client(1, "ann", vec![]);
    for certificate in [None, Some(stranger)] {
        let refused = client(&files, certificate.clone()).connect(&listener, "localhost");
        assert!(refused.is_err());
        files.tls.require_client_certificate = false;
        let optional = files.listener();
        files.tls.require_client_certificate = true;
        let connected = client(&files, certificate.clone()).connect(&optional, "localhost");
        assert_eq!(connected.is_ok(), certificate.is_none());
    }
}

#[test]
fn a_certificate_names_its_user_by_the_rule_of_the_listener() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    let names = vec![
        SanType::Rfc822Name("ann@example.org".try_into().unwrap()),
        SanType::DnsName("pump-7.example.org".try_into().unwrap()),
        SanType::URI("urn:device:7".try_into().unwrap()),
    ];
    let certificate = clients.client(1, "ann", names);
    let nameless = clients.client(2, "", vec![]);
    for (from, user) in [
        (CertificateUser::CommonName, Some("ann")),
        (CertificateUser::Email, Some("ann@example.org")),
        (CertificateUser::Dns, Some("pump-7.example.org")),
        (CertificateUser::Uri, Some("urn:device:7")),
        (CertificateUser::Off, None),
    ] {
        files.tls.certificate_user = from;
        let listener = files.listener();
        let mut named = client(&files, Some(certificate.clone()));
        named.connect(&listener, "localhost").unwrap();
        assert_eq!(named.user().as_deref(), user);
        let connected = client(&files, Some(nameless.clone())).connect(&listener, "localhost");
        assert_eq!(connected.is_ok(), user.is_none(), "{connected:?}");
    }
}

#[test]
fn a_revoked_certificate_is_refused_also_with_a_ticket_from_before() {
    let clients = Authority::new("clients");
    for version in [&TLS12, &TLS13] {
        let mut files = files(&clients);
        let listener = files.listener();
        let of = |serial| Some(clients.client(serial, "ann", vec![]));
        let mut good = Client::new(&files.authority, &[version], of(1));
        let mut bad = Client::new(&files.authority, &[version], of(2));
        for client in [&mut good, &mut bad] {
            client.connect(&listener, "localhost").unwrap();
            client.connect(&listener, "localhost").unwrap();
            assert_eq!(client.handshake_kind(), Some(HandshakeKind::Resumed));
            assert_eq!(client.user().as_deref(), Some("ann"));
        }
        let list = files.write("list.pem", &clients.revoked(&[2], 2100));
        files.tls.crl_file = Some(list);
        // One that is in the middle of its handshake has begun it with the old rules.
        let mut halfway = Client::new(&files.authority, &[version], of(2));
        halfway.accept(&listener);
        listener.put_in_force(listener.read_again(&files.tls).unwrap());
        assert!(halfway.shake_hands("localhost").is_err());
        assert!(halfway.refusal().unwrap().contains("Revoked"));
        assert!(bad.connect(&listener, "localhost").is_err());
        good.connect(&listener, "localhost").unwrap();
        assert_ne!(good.handshake_kind(), Some(HandshakeKind::Resumed));
        good.connect(&listener, "localhost").unwrap();
        assert_eq!(good.handshake_kind(), Some(HandshakeKind::Resumed));
    }
}

#[test]
fn a_certificate_names_no_user_once_nobody_verifies_it() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    let listener = files.listener();
    let mut halfway = client(&files, Some(clients.client(1, "ann", vec![])));
    halfway.accept(&listener);
    files.tls.client_ca_file = None;
    listener.put_in_force(listener.read_again(&files.tls).unwrap());
    halfway.shake_hands("localhost").unwrap();
    assert_eq!(halfway.user(), None);
}

#[test]
fn a_ticket_of_a_listener_without_certificates_opens_no_other() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    let strict = files.listener();
    files.tls.client_ca_file = None;
    let open = files.listener();
    let mut client = client(&files, None);
    client.connect(&open, "localhost").unwrap();
    assert!(client.connect(&strict, "localhost").is_err());
}

#[test]
fn an_expired_list_is_used_unless_it_must_be_renewed() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    files.tls.crl_file = Some(files.write("list.pem", &clients.revoked(&[2], 2026)));
    for (is_enforced, serial, is_let_in) in [
        (false, 1, true),
        (false, 2, false),
        (true, 1, false),
        (true, 2, false),
    ] {
        files.tls.enforce_crl_expiry = is_enforced;
        let certificate = clients.client(serial, "ann", vec![]);
        let connected = client(&files, Some(certificate)).connect(&files.listener(), "localhost");
        assert_eq!(
            connected.is_ok(),
            is_let_in,
            "{is_enforced} {serial} {connected:?}"
        );
    }
}

#[test]
fn each_file_that_expires_is_listed_with_its_end() {
    let clients = Authority::new("clients");
    let mut files = files(&clients);
    files.tls.crl_file = Some(files.write("list.pem", &clients.revoked(&[2], 2026)));
    let expiries = files.listener().expiries();
    let kinds: Vec<_> = expiries.iter().map(|it| it.what).collect();
    let expected = [
        Expiring::Certificate,
        Expiring::Authority,
        Expiring::RevocationList,
    ];
    assert_eq!(kinds, expected);
    assert!(expiries[..2].iter().all(|it| it.days_left() > 0));
    let list = &expiries[2];
    assert!(list.file.ends_with("list.pem"));
    // The first day of 2026.
    assert_eq!(list.not_after, 1_767_225_600);
    assert!(list.days_left() < 0);
}
