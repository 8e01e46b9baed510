//! The server's side of SCRAM (RFC 5802) with SHA-256 (RFC 7677) and SHA-512.
//!
//! ```text
//! client                                   server
//!   n,,n=USER,r=NONCE            ───▶  begin    keys of the user, or a stand-in
//!                                ◀───  r=NONCE+OURS,s=SALT,i=ITERATIONS
//!   c=biws,r=NONCE+OURS,p=PROOF  ───▶  finish   the proof shows the password
//!                                ◀───  v=SIGNATURE shows that the server has its keys
//! ```
//!
//! Invariants:
//! - No password crosses the network, and what is kept of it here cannot be used to log in.
//! - A user that does not exist gets the same answers until the proof: salt and iterations are
//!   those that its name gets until users or passwords change.
//! - Proofs are compared in constant time. Messages have a limit, and nothing here panics.
//! - No `Debug` shows a key.
//!
//! Deliberately absent: channel binding (`-PLUS`), normalisation of names (SASLprep: the file's
//! names and passwords are bytes), where keys are stored, and packets.

use std::fmt;
use std::hint;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

/// The hash of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScramHash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

/// What is stored of a password. No `Debug`: it can be guessed at.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// The salt of PBKDF2.
    pub salt: Vec<u8>,
    /// Verifies the client.
    pub stored_key: Vec<u8>,
    /// Shows the client that this is the server.
    pub server_key: Vec<u8>,
}

/// An exchange that waits for the client's proof.
pub struct ScramExchange {
    hash: ScramHash,
    user: Box<str>,
    keys: ScramKeys,
    /// Nobody is let in by a stand-in.
    is_known: bool,
    /// What `c=` must be: the beginning of the first message.
    binding: String,
    nonce: String,
    /// The client's first message without its beginning, and ours.
    messages: String,
}

/// Why an exchange has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScramError {
    /// A message is not one of SCRAM.
    #[error("a message of the SCRAM exchange cannot be understood")]
    Malformed,
    /// A message is longer than one needs to be.
    #[error("a message of the SCRAM exchange has more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// It asks for something that is not there.
    #[error("the client asks for an extension or a channel binding that is not supported")]
    Unsupported,
    /// It wants to be somebody else than the one whose password it has.
    #[error("the client wants to act for another user")]
    OtherUser,
    /// The nonce is not the one of this exchange.
    #[error("the nonce is not that of this exchange")]
    Nonce,
    /// No such user, or another password.
    #[error("the user name or the password is wrong")]
    Proof,
}

impl ScramHash {
    /// The mechanism's hash; `None`: it is no SCRAM that is known.
    pub fn of_mechanism(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Bytes of a hash.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    pub(crate) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        fn mac<M: KeyInit + Mac>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
            let mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
            mac.chain_update(bytes).finalize().into_bytes().to_vec()
        }
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, bytes),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, bytes),
        }
    }

    fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.bytes()];
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }
}

impl ScramKeys {
    /// The keys of a password. Takes as long as `iterations` say.
    pub fn of_password(hash: ScramHash, password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = hash.pbkdf2(password, salt, iterations);
        Self::of_salted(hash, &salted, salt, iterations)
    }

    /// Those of a password that was hashed by PBKDF2 already.
    pub fn of_salted(hash: ScramHash, salted: &[u8], salt: &[u8], iterations: u32) -> Self {
        let client_key = hash.hmac(salted, b"Client Key");
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(salted, b"Server Key"),
        }
    }
}

impl ScramExchange {
    /// Takes the client's first message; answers with ours. `nonce`: printable, without commas, and
    /// new for each exchange. `keys`: those of a user, or of a stand-in and `false`.
    pub fn begin(
        hash: ScramHash,
        message: &[u8],
        nonce: &str,
        keys: impl FnOnce(&str) -> (ScramKeys, bool),
    ) -> Result<(Self, Vec<u8>), ScramError> {
        let first = FirstMessage::parse(message)?;
        let (keys, is_known) = keys(&first.user);
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = STANDARD.encode(&keys.salt);
        let answer = format!("r={nonce},s={salt},i={}", keys.iterations);
        let exchange = Self {
            hash,
            user: first.user.into(),
            keys,
            is_known,
            binding: STANDARD.encode(first.header),
            nonce,
            messages: format!("{},{answer}", first.bare),
        };
        Ok((exchange, answer.into_bytes()))
    }

    /// Who the client says it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Takes the client's last message; answers with the user and our last message.
    pub fn finish(self, message: &[u8]) -> Result<(Box<str>, Vec<u8>), ScramError> {
        let text = text(message)?;
        let (bare, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut parts = bare.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let binding = part("c=").ok_or(ScramError::Malformed)?;
        let nonce = part("r=").ok_or(ScramError::Malformed)?;
        if parts.any(|extension| extension.starts_with("m=")) {
            return Err(ScramError::Unsupported);
        }
        if binding != self.binding {
            return Err(ScramError::Unsupported);
        }
        if nonce != self.nonce {
            return Err(ScramError::Nonce);
        }
        let proof = STANDARD.decode(proof).map_err(|_| ScramError::Malformed)?;
        let signed = format!("{},{bare}", self.messages);
        let signature = self.hash.hmac(&self.keys.stored_key, signed.as_bytes());
        if proof.len() != signature.len() {
            return Err(ScramError::Malformed);
        }
        let client_key: Vec<_> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let is_right = equal(&self.hash.digest(&client_key), &self.keys.stored_key);
        if !(is_right & self.is_known) {
            return Err(ScramError::Proof);
        }
        let signature = self.hash.hmac(&self.keys.server_key, signed.as_bytes());
        let answer = format!("v={}", STANDARD.encode(signature));
        Ok((self.user, answer.into_bytes()))
    }
}

struct FirstMessage<'a> {
    /// The beginning, which the last message repeats.
    header: &'a str,
    bare: &'a str,
    user: String,
    nonce: &'a str,
}

impl<'a> FirstMessage<'a> {
    fn parse(message: &'a [u8]) -> Result<Self, ScramError> {
        let text = text(message)?;
        let mut parts = text.splitn(3, ',');
        let mut part = || parts.next().ok_or(ScramError::Malformed);
        let (binding, acts_for, bare) = (part()?, part()?, part()?);
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => return Err(ScramError::Unsupported),
            _ => return Err(ScramError::Malformed),
        }
        let header = &text[..text.len() - bare.len()];
        if bare.starts_with("m=") {
            return Err(ScramError::Unsupported);
        }
        // What comes behind are extensions, which a server may leave alone.
        let mut parts = bare.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let user = part("n=").and_then(name_of).ok_or(ScramError::Malformed)?;
        let nonce = part("r=").ok_or(ScramError::Malformed)?;
        let is_printable = nonce.bytes().all(|byte| byte.is_ascii_graphic());
        if nonce.is_empty() || !is_printable {
            return Err(ScramError::Malformed);
        }
        if !acts_for.is_empty() {
            let other = acts_for.strip_prefix("a=").and_then(name_of);
            if other.ok_or(ScramError::Malformed)? != user {
                return Err(ScramError::OtherUser);
            }
        }
        Ok(Self {
            header,
            bare,
            user,
            nonce,
        })
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::TooLong);
    }
    let text = std::str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
    if text.contains('\0') {
        return Err(ScramError::Malformed);
    }
    Ok(text)
}

/// A name in which `=2C` is a comma and `=3D` is `=`.
fn name_of(text: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('=') {
        name.push_str(before);
        let (code, character) = [("2C", ','), ("3D", '=')]
            .into_iter()
            .find(|(code, _)| behind.starts_with(code))?;
        name.push(character);
        rest = &behind[code.len()..];
    }
    name.push_str(rest);
    (!name.is_empty()).then_some(name)
}

/// In a time that depends on the lengths alone.
fn equal(left: &[u8], right: &[u8]) -> bool {
    let difference = left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    (left.len() == right.len()) & (hint::black_box(difference) == 0)
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramKeys").finish_non_exhaustive()
    }
}

impl fmt::Debug for ScramExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramExchange")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Bytes of one message; a name and two nonces need a few hundred.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The example of RFC 7677, section 3: user `user`, password `pencil`.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const OUR_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const ANSWER: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const END: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn keys() -> ScramKeys {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        ScramKeys::of_password(ScramHash::Sha256, b"pencil", &salt, 4096)
    }

    fn begin(message: &str) -> Result<(ScramExchange, Vec<u8>), ScramError> {
        let begun = |user: &str| (keys(), user == "user");
        ScramExchange::begin(ScramHash::Sha256, message.as_bytes(), OUR_NONCE, begun)
    }

    fn finish(first: &str, last: &str) -> Result<(Box<str>, Vec<u8>), ScramError> {
        let (exchange, _) = begin(first).unwrap();
        exchange.finish(last.as_bytes())
    }

    #[test]
    fn the_example_of_rfc_7677() {
        let (exchange, answer) = begin(FIRST).unwrap();
        assert_eq!(answer, ANSWER.as_bytes());
        let (user, end) = exchange.finish(LAST.as_bytes()).unwrap();
        assert_eq!((&*user, end.as_slice()), ("user", END.as_bytes()));
    }

    /// What a client computes, as RFC 5802 has it.
    pub(crate) fn last_of(
        hash: ScramHash,
        password: &str,
        first_bare: &str,
        answer: &str,
    ) -> String {
        let mut parts = answer.split(',').map(|part| &part[2..]);
        let (nonce, salt, iterations) = (
            parts.next().unwrap(),
            STANDARD.decode(parts.next().unwrap()).unwrap(),
            parts.next().unwrap().parse().unwrap(),
        );
        let salted = hash.pbkdf2(password.as_bytes(), &salt, iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        let stored_key = hash.digest(&client_key);
        let bare = format!("c=biws,r={nonce}");
        let signed = format!("{first_bare},{answer},{bare}");
        let signature = hash.hmac(&stored_key, signed.as_bytes());
        let proof: Vec<_> = client_key
            .iter()
            .zip(signature)
            .map(|(a, b)| a ^ b)
            .collect();
        format!("{bare},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn both_hashes_accept_the_password_and_no_other_and_nobody_who_is_unknown() {
        for hash in [ScramHash::Sha256, ScramHash::Sha512] {
            let keys = ScramKeys::of_password(hash, b"secret", b"salt", 7);
            for (password, is_known, expected) in [
                ("secret", true, true),
                ("secret", false, false),
                ("Secret", true, false),
            ] {
                let bare = "n=a=2Cb=3Dc,r=x";
                let message = format!("n,,{bare}");
                let begun = |_: &str| (keys.clone(), is_known);
                let (exchange, answer) =
                    ScramExchange::begin(hash, message.as_bytes(), "y", begun).unwrap();
                let answer = String::from_utf8(answer).unwrap();
                let last = last_of(hash, password, bare, &answer);
                let end = exchange.finish(last.as_bytes());
                let user = end.map(|(user, _)| user);
                let expected = if expected {
                    Ok("a,b=c".into())
                } else {
                    Err(ScramError::Proof)
                };
                assert_eq!(user, expected, "{hash:?} {password}");
            }
        }
    }

    #[test]
    fn what_is_not_as_it_must_be_is_refused() {
        use ScramError::{Malformed, OtherUser, TooLong, Unsupported};

        let check = |first: &str, expected| {
            assert_eq!(begin(first).map(drop), Err(expected), "{first}");
        };
        check("", Malformed);
        check("n", Malformed);
        check("n,,", Malformed);
        check("n,,n=user", Malformed);
        check("n,,r=x,n=user", Malformed);
        check("n,,n=,r=x", Malformed);
        check("n,,n=user,r=", Malformed);
        check("n,,n=us=er,r=x", Malformed);
        check("n,,n=us=2cer,r=x", Malformed);
        check("n,,n=user,r=a b", Malformed);
        check("n,,n=user,r=\u{e9}", Malformed);
        check("n,,n=us\0er,r=x", Malformed);
        check("x,,n=user,r=x", Malformed);
        check("n,b=x,n=user,r=x", Malformed);
        check("p=tls-unique,,n=user,r=x", Unsupported);
        check("n,,m=x,n=user,r=x", Unsupported);
        check("n,a=root,n=user,r=x", OtherUser);
        check(&format!("n,,n=user,r={}", "x".repeat(4096)), TooLong);
        for fine in [
            "y,,n=user,r=x",
            "n,a=user,n=user,r=x",
            "n,,n=user,r=x,z=ext",
        ] {
            assert!(begin(fine).is_ok(), "{fine}");
        }
        let binary = ScramExchange::begin(ScramHash::Sha256, &[0xff; 9], "y", |_| (keys(), true));
        assert_eq!(binary.map(drop), Err(Malformed));
    }

    #[test]
    fn a_last_message_of_another_exchange_is_refused() {
        let check = |last: String, expected| {
            assert_eq!(finish(FIRST, &last), Err(expected), "{last}");
        };
        let nonce = &ANSWER[2..52];
        let proof = &LAST[LAST.len() - 44..];
        check(LAST.replace("rOpr", "rOps"), ScramError::Nonce);
        check(
            format!("c=biws,r=rOprNGfwEbeRWgbNEkqO,p={proof}"),
            ScramError::Nonce,
        );
        check(LAST.replace("c=biws", "c=eSws"), ScramError::Unsupported);
        check(LAST.replace("p=dH", "p=eH"), ScramError::Proof);
        check(
            format!("c=biws,r={nonce},m=x,p={proof}"),
            ScramError::Unsupported,
        );
        check(format!("c=biws,r={nonce},p=AAAA"), ScramError::Malformed);
        check(format!("c=biws,r={nonce},p=?"), ScramError::Malformed);
        check(format!("c=biws,r={nonce}"), ScramError::Malformed);
        check(format!("r={nonce},p={proof}"), ScramError::Malformed);
        check(String::new(), ScramError::Malformed);
        let repeated = finish("y,,n=user,r=rOprNGfwEbeRWgbNEkqO", LAST);
        assert_eq!(repeated, Err(ScramError::Unsupported), "it said y before");
    }

    #[test]
    fn no_key_can_be_printed() {
        let (exchange, _) = begin(FIRST).unwrap();
        let shown = format!("{exchange:?} {:?}", keys());
        assert_eq!(shown, "ScramExchange { hash: Sha256, .. } ScramKeys { .. }");
    }
}
