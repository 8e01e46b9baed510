//! Tokens that were made for the test, by keys that were made for it.

use std::fs;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self, KeyPair as _};
use jsonwebtoken::{EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use serde_json::json;

use super::*;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const NOW_S: u64 = 2_000_000_000;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S)
}

fn rules(algorithms: &[&str]) -> Jwt {
    Jwt {
        name: "test".to_owned(),
        algorithms: algorithms.iter().map(|name| (*name).to_owned()).collect(),
        ..Jwt::default()
    }
}

/// Verifies with a key in a file.
fn with_key(directory: &Path, rules: &Jwt, key: &[u8]) -> TokenVerifier {
    let path = directory.join("key");
    fs::write(&path, key).unwrap();
    let rules = Jwt {
        key_file: Some(path),
        ..rules.clone()
    };
    TokenVerifier::new(&rules, None).unwrap()
}

fn with_secret(rules: &Jwt) -> TokenVerifier {
    let directory = tempfile::tempdir().unwrap();
    with_key(directory.path(), rules, SECRET)
}

fn claims() -> Value {
    json!({ "sub": "ann", "exp": NOW_S + 3600 })
}

fn with(more: Value) -> Value {
    let mut claims = claims();
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn signed(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    encode(&Header::new(Algorithm::HS256), claims, &key).unwrap()
}

fn user(verdict: &TokenVerdict) -> Option<&str> {
    match verdict {
        TokenVerdict::Valid(grant) => grant.user.as_deref(),
        _ => None,
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// A private key, and its public one in PEM.
fn key_pair(algorithm: Algorithm) -> (EncodingKey, String) {
    let kind = match algorithm {
        Algorithm::ES256 => &PKCS_ECDSA_P256_SHA256,
        Algorithm::ES384 => &PKCS_ECDSA_P384_SHA384,
        Algorithm::EdDSA => &PKCS_ED25519,
        _ => {
            let key = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
            let public: PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
            let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
            let private = pem("PRIVATE KEY", private.as_ref());
            let key = EncodingKey::from_rsa_pem(private.as_bytes()).unwrap();
            return (key, pem("PUBLIC KEY", public.as_ref()));
        }
    };
    let pair = KeyPair::generate_for(kind).unwrap();
    let der = pair.serialize_der();
    let key = match algorithm {
        Algorithm::EdDSA => EncodingKey::from_ed_der(&der),
        _ => EncodingKey::from_ec_der(&der),
    };
    (key, pair.public_key_pem())
}

#[test]
fn each_algorithm_verifies_its_signature_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    for algorithm in [
        Algorithm::RS256,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
    ] {
        let name = format!("{algorithm:?}");
        let (key, public) = key_pair(algorithm);
        let verifier = with_key(directory.path(), &rules(&[&name]), public.as_bytes());
        let token = encode(&Header::new(algorithm), &claims(), &key).unwrap();
        let verdict = verifier.verify(None, token.as_bytes(), now());
        assert_eq!(user(&verdict), Some("ann"), "{name}: {verdict:?}");

        let (other, _) = key_pair(algorithm);
        let forged = encode(&Header::new(algorithm), &claims(), &other).unwrap();
        let verdict = verifier.verify(None, forged.as_bytes(), now());
        let wrong = TokenVerdict::Invalid("the signature of its token is wrong");
        assert_eq!(verdict, wrong, "{name}");

        // The public key is no secret of an HMAC.
        let secret = EncodingKey::from_secret(public.as_bytes()).unwrap();
        let confused = encode(&Header::new(Algorithm::HS256), &claims(), &secret).unwrap();
        for allowed in [vec![&*name], vec![&*name, "HS256"]] {
            let rules = rules(&allowed);
            let verifier = with_key(directory.path(), &rules, public.as_bytes());
            let verdict = verifier.verify(None, confused.as_bytes(), now());
            assert!(
                matches!(verdict, TokenVerdict::Invalid(_)),
                "{name}: {verdict:?}"
            );
        }
    }
}

#[test]
fn a_token_without_a_signature_is_none() {
    let verifier = with_secret(&rules(&["HS256"]));
    let token = signed(&claims());
    let (signed_part, _) = token.rsplit_once('.').unwrap();
    let none = "eyJhbGciOiJub25lIn0"; // {"alg":"none"}
    let payload = signed_part.split('.').nth(1).unwrap();
    for token in [
        format!("{none}.{payload}."),
        format!("{none}.{payload}"),
        "a.b.c".to_owned(),
        "secret".to_owned(),
        String::new(),
        "...".to_owned(),
    ] {
        let verdict = verifier.verify(None, token.as_bytes(), now());
        assert_eq!(verdict, TokenVerdict::NotMine, "{token}");
    }
    for token in [format!("{signed_part}."), format!("{signed_part}.AAAA")] {
        let verdict = verifier.verify(None, token.as_bytes(), now());
        assert!(
            matches!(verdict, TokenVerdict::Invalid(_)),
            "{token}: {verdict:?}"
        );
    }
}

#[test]
fn only_listed_algorithms_count() {
    let key = EncodingKey::from_secret(SECRET).unwrap();
    let token = encode(&Header::new(Algorithm::HS512), &claims(), &key).unwrap();
    let verifier = with_secret(&rules(&["HS256", "HS384"]));
    let verdict = verifier.verify(None, token.as_bytes(), now());
    let wrong = "its token is signed by an algorithm that is not allowed";
    assert_eq!(verdict, TokenVerdict::Invalid(wrong));
    let verifier = with_secret(&rules(&["HS512"]));
    assert_eq!(
        user(&verifier.verify(None, token.as_bytes(), now())),
        Some("ann")
    );
}

#[test]
fn times_count_with_the_leeway() {
    let verifier = with_secret(&rules(&["HS256"]));
    let check = |claims: &Value| verifier.verify(None, signed(claims).as_bytes(), now());
    assert!(user(&check(&with(json!({ "exp": NOW_S - 29 })))).is_some());
    let fraction = 2_000_000_000.5;
    assert!(user(&check(&with(json!({ "exp": fraction })))).is_some());
    assert_eq!(
        check(&with(json!({ "exp": NOW_S - 30 }))),
        TokenVerdict::Expired
    );
    assert!(user(&check(&with(json!({ "nbf": NOW_S + 30 })))).is_some());
    let invalid = TokenVerdict::Invalid;
    let early = invalid("its token is not valid yet");
    assert_eq!(check(&with(json!({ "nbf": NOW_S + 31 }))), early);
    let endless = invalid("its token has no end");
    assert_eq!(check(&json!({ "sub": "ann" })), endless);
    assert_eq!(check(&with(json!({ "exp": null }))), endless);
    let odd = invalid("its token has a time that is no number");
    assert_eq!(check(&with(json!({ "exp": "tomorrow" }))), odd);
    let list = check(&with(json!({ "nbf": [1] })));
    assert!(matches!(list, TokenVerdict::Invalid(_)), "{list:?}");

    let verdict = check(&with(json!({ "exp": NOW_S + 60 })));
    let TokenVerdict::Valid(grant) = verdict else {
        panic!("{verdict:?}");
    };
    let left = grant.until.unwrap().duration_since(Instant::now());
    assert!(
        left <= Duration::from_secs(90) && left > Duration::from_secs(30),
        "{left:?}"
    );
    let for_ever = check(&with(json!({ "exp": 1e300 })));
    assert!(
        user(&for_ever).is_some(),
        "no clock goes so far: {for_ever:?}"
    );

    let endless_is_welcome = Jwt {
        require_expiry: false,
        ..rules(&["HS256"])
    };
    let verifier = with_secret(&endless_is_welcome);
    let verdict = verifier.verify(None, signed(&json!({ "sub": "ann" })).as_bytes(), now());
    assert_eq!(
        verdict,
        TokenVerdict::Valid(Grant {
            claims: Some(claims_of(&[], &[("sub", "ann")])),
            ..Grant::user("ann")
        })
    );
}

fn claims_of(roles: &[&str], values: &[(&str, &str)]) -> Arc<Claims> {
    let roles = roles.iter().map(|role| Arc::from(*role)).collect();
    let values = values.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Arc::new(Claims::new(roles, values.collect()).unwrap())
}

#[test]
fn issuer_and_audience_are_those_of_the_configuration() {
    let named = Jwt {
        issuer: Some("https://id.example.org".to_owned()),
        audience: vec!["mqtt".to_owned(), "broker".to_owned()],
        ..rules(&["HS256"])
    };
    let verifier = with_secret(&named);
    let check = |more: Value| verifier.verify(None, signed(&with(more)).as_bytes(), now());
    let iss = "https://id.example.org";
    assert!(user(&check(json!({ "iss": iss, "aud": "mqtt" }))).is_some());
    assert!(user(&check(json!({ "iss": iss, "aud": ["x", "broker"] }))).is_some());
    let wrong = TokenVerdict::Invalid("its token is for another audience");
    assert_eq!(check(json!({ "iss": iss, "aud": "web" })), wrong);
    let lacks = TokenVerdict::Invalid("its token lacks a claim");
    assert_eq!(check(json!({ "iss": iss })), lacks);
    for other in [
        json!({ "iss": "https://evil.example.org", "aud": "mqtt" }),
        json!({}),
    ] {
        assert_eq!(
            check(other),
            TokenVerdict::NotMine,
            "it is for the next one"
        );
    }
    let none = with_secret(&rules(&["HS256"]));
    let for_web = none.verify(
        None,
        signed(&with(json!({ "aud": "web" }))).as_bytes(),
        now(),
    );
    assert_eq!(for_web, wrong, "an audience that is not named here");
}

#[test]
fn the_user_is_the_claim_and_may_have_to_be_the_user_name() {
    let verifier = with_secret(&rules(&["HS256"]));
    for user_name in [None, Some("ann"), Some("bob")] {
        let verdict = verifier.verify(user_name, signed(&claims()).as_bytes(), now());
        assert_eq!(user(&verdict), Some("ann"));
    }
    let matching = Jwt {
        match_user_name: true,
        user_claim: "client".to_owned(),
        ..rules(&["HS256"])
    };
    let verifier = with_secret(&matching);
    let token = signed(&with(json!({ "client": "c7" })));
    let check = |user_name| verifier.verify(user_name, token.as_bytes(), now());
    assert_eq!(user(&check(Some("c7"))), Some("c7"));
    let other = TokenVerdict::Invalid("its user name is not the one in its token");
    assert_eq!(check(Some("ann")), other);
    assert_eq!(check(None), other);
    for nobody in [json!({ "client": 7 }), json!({ "client": "" }), json!({})] {
        let token = signed(&with(nobody));
        let verdict = verifier.verify(Some(""), token.as_bytes(), now());
        assert_eq!(verdict, TokenVerdict::Invalid("its token names no user"));
    }
}

#[test]
fn roles_and_values_are_taken_whole_or_the_token_is_refused() {
    let check = |roles_claim: &str, more: Value| {
        let rules = Jwt {
            roles_claim: roles_claim.to_owned(),
            ..rules(&["HS256"])
        };
        let token = signed(&with(more));
        match with_secret(&rules).verify(None, token.as_bytes(), now()) {
            TokenVerdict::Valid(grant) => Ok(grant.claims.map(|claims| {
                let roles: Vec<_> = claims.roles().map(str::to_owned).collect();
                (roles, claims.value("site").map(str::to_owned))
            })),
            verdict => Err(verdict),
        }
    };
    let found = |roles: &[&str], site: Option<&str>| {
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        Ok(Some((roles, site.map(str::to_owned))))
    };
    let roles = json!({ "roles": ["b", "a", "b"], "site": "north" });
    assert_eq!(check("roles", roles), found(&["a", "b"], Some("north")));
    assert_eq!(
        check("scope", json!({ "scope": "x  y" })),
        found(&["x", "y"], None)
    );
    let nested = json!({ "realm_access": { "roles": ["r"] }, "site": 7 });
    assert_eq!(
        check("realm_access.roles", nested),
        found(&["r"], Some("7"))
    );
    let url = json!({ "https://example.org/roles": ["r"], "site": true });
    assert_eq!(
        check("https://example.org/roles", url),
        found(&["r"], Some("true"))
    );
    assert_eq!(
        check("roles", json!({ "site": ["no", "text"] })),
        found(&[], None)
    );
    let invalid = |why| Err(TokenVerdict::Invalid(why));
    let odd = invalid("a role in its token is no text");
    assert_eq!(check("roles", json!({ "roles": ["a", 1] })), odd);
    assert_eq!(
        check("roles", json!({ "roles": 1 })),
        invalid("the roles in its token are no list")
    );
    let much = json!({ "site": "x".repeat(9_000) });
    assert_eq!(
        check("roles", much),
        invalid("its token claims too much to be remembered")
    );
}

#[test]
fn a_set_has_a_key_for_each_id_and_algorithm() {
    let (key, other) = (
        signature::Ed25519KeyPair::generate(),
        KeyPair::generate().unwrap(),
    );
    let key = key.unwrap();
    let url = |bytes: &[u8]| {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
    };
    let x = url(key.public_key().as_ref());
    let point = other.public_key_raw();
    let jwks = json!({ "keys": [
        { "kty": "OKP", "crv": "Ed25519", "kid": "new", "alg": "EdDSA", "x": x },
        { "kty": "EC", "crv": "P-256", "kid": "old", "use": "enc",
          "x": url(&point[1..33]), "y": url(&point[33..]) },
        { "kty": "EC", "crv": "P-256", "kid": "ec",
          "x": url(&point[1..33]), "y": url(&point[33..]) },
        { "kty": "strange", "kid": "strange" },
    ] });
    let keys = KeySet::of_jwks(jwks.to_string().as_bytes()).unwrap();
    assert_eq!(
        keys.len(),
        2,
        "for encryption and of unknown kinds are left out"
    );
    let count = |id, algorithm| keys.candidates(id, algorithm).count();
    assert_eq!(count(Some("new"), Algorithm::EdDSA), 1);
    assert_eq!(count(None, Algorithm::EdDSA), 1);
    assert_eq!(count(Some("ec"), Algorithm::EdDSA), 0);
    assert_eq!(count(Some("ec"), Algorithm::ES256), 1);
    assert_eq!(count(Some("old"), Algorithm::ES256), 0);
    assert_eq!(count(Some("new"), Algorithm::HS256), 0);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    fs::write(&path, jwks.to_string()).unwrap();
    let rules = Jwt {
        jwks_file: Some(path),
        ..rules(&["EdDSA", "ES256"])
    };
    let verifier = TokenVerifier::new(&rules, None).unwrap();
    let mut header = Header::new(Algorithm::ES256);
    for (id, expected) in [(Some("ec"), true), (None, true), (Some("gone"), false)] {
        header.kid = id.map(str::to_owned);
        let key = EncodingKey::from_ec_der(&other.serialize_der());
        let token = encode(&header, &claims(), &key).unwrap();
        let verdict = verifier.verify(None, token.as_bytes(), now());
        assert_eq!(user(&verdict).is_some(), expected, "{id:?}: {verdict:?}");
    }
}

#[test]
fn a_key_that_cannot_verify_is_refused_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let check = |algorithms: &[&str], text: &str, is_set: bool, words: &str| {
        let path = directory.path().join("key");
        fs::write(&path, text).unwrap();
        let mut rules = rules(algorithms);
        let source = if is_set {
            &mut rules.jwks_file
        } else {
            &mut rules.key_file
        };
        *source = Some(path);
        let error = TokenVerifier::new(&rules, None).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("key: "), "{error}");
    };
    check(
        &["HS256"],
        "short",
        false,
        "5 bytes; HS256 needs at least 32",
    );
    check(
        &["HS256", "HS512"],
        &"x".repeat(40),
        false,
        "HS512 needs at least 64",
    );
    check(&["RS256"], "no PEM", false, "no public key in PEM");
    let (_, ec) = key_pair(Algorithm::ES256);
    check(&["EdDSA"], &ec, false, "no public key in PEM");
    check(&["ES256"], "{}", true, "no set of keys");
    check(&["ES256"], "{\"keys\":[]}", true, "none of its keys");
    let many = json!({ "keys": vec![json!({}); 65] }).to_string();
    check(&["ES256"], &many, true, "more than 64 keys");
    let missing = Jwt {
        key_file: Some(directory.path().join("missing")),
        ..rules(&["HS256"])
    };
    let error = TokenVerifier::new(&missing, None).unwrap_err().to_string();
    assert!(error.contains("jwt `test`: cannot read"), "{error}");
}

#[test]
fn no_secret_can_be_printed() {
    let verifier = with_secret(&rules(&["HS256"]));
    let shown = format!("{verifier:?}");
    assert!(shown.contains("KeySet { keys: 1, .. }"), "{shown}");
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}
