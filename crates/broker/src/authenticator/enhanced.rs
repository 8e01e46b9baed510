//! The steps of MQTT 5.0's enhanced authentication: SCRAM by the users of a password file, and of
//! the store.
//!
//! Entries `$7$` are what SCRAM-SHA-512 needs, `$scram-sha-…$` are made for it; others cannot
//! serve, and their users are refused as if they did not exist.
//!
//! Invariants:
//! - A step computes some hashes, never PBKDF2: a shard takes it at once.
//! - Who authenticates again is the same user: `broker-core` sees to it.
//! - An address that has failed too often proves nothing more, except for users who have proved
//!   themselves from it a short time ago: others behind the same address lock nobody out.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use unbroken_broker_core::{Admission, AuthExchange, AuthStep, Grant, Peer};
use unbroken_mqtt_proto::ReasonCode;

use super::admission_of;
use super::chain::{ListenerAuth, refused};
use super::login_queue::Refusal;
use super::recent_logins::{LoginTag, RecentLogins};
use crate::scram::{self, ScramError, ScramExchange, ScramHash};

/// What a step has come to.
#[derive(Debug)]
pub(crate) enum Decision {
    Admission(Admission),
    /// This goes to the client, and that is kept for its next step.
    Challenge(Box<[u8]>, AuthExchange),
}

/// Takes the next step of a client that has this user name in CONNECT, if any. `may_prove`: whether
/// this user's proof is looked at.
pub(super) fn take(
    auth: &ListenerAuth,
    user_name: Option<&str>,
    step: AuthStep,
    may_prove: impl FnOnce(&str) -> bool,
) -> Decision {
    let Some(hash) = ScramHash::of_mechanism(&step.method) else {
        // [MQTT-4.12.0-1]
        return Decision::Admission(refused(ReasonCode::BadAuthenticationMethod));
    };
    let data = step.data.as_deref().unwrap_or_default();
    let Some(exchange) = step.exchange else {
        return begin(auth, hash, data);
    };
    let Some(exchange) = exchange.into_state::<ScramExchange>() else {
        return Decision::Admission(refused(ReasonCode::UnspecifiedError));
    };
    if !may_prove(exchange.user()) {
        return Decision::Admission(admission_of(Refusal::TooManyFailures));
    }
    match exchange.finish(data) {
        // A client cannot be two users at the same time.
        Ok((user, _)) if user_name.is_some_and(|name| name != &*user) => {
            failed(ScramError::OtherUser)
        }
        Ok((user, proof)) => Decision::Admission(Admission::Granted(Grant {
            proof: Some(proof.into()),
            ..Grant::user(user)
        })),
        Err(error) => failed(error),
    }
}

/// Names a user who proves itself from this address.
pub(super) fn tag(recent: &RecentLogins, user: &str, peer: &Peer, auth: &ListenerAuth) -> LoginTag {
    let address = peer.address.map(|address| address.ip().to_canonical());
    let address = address.map_or_else(String::new, |address| address.to_string());
    recent.tag_of(&[
        b"scram",
        user.as_bytes(),
        address.as_bytes(),
        &peer.listener.to_le_bytes(),
        auth.scram_generation(user).as_bytes(),
    ])
}

fn begin(auth: &ListenerAuth, hash: ScramHash, data: &[u8]) -> Decision {
    let mut random = [0; NONCE_BYTES];
    if getrandom::fill(&mut random).is_err() {
        return Decision::Admission(refused(ReasonCode::ServerUnavailable));
    }
    let nonce = STANDARD_NO_PAD.encode(random);
    let keys = |user: &str| auth.scram_keys(hash, user);
    match ScramExchange::begin(hash, data, &nonce, keys) {
        Ok((exchange, answer)) => {
            let bytes = 2 * scram::MESSAGE_BYTES_MAX;
            Decision::Challenge(answer.into(), AuthExchange::new(exchange, bytes))
        }
        Err(error) => failed(error),
    }
}

fn failed(error: ScramError) -> Decision {
    let reason = match error {
        ScramError::Proof => ReasonCode::BadUserNameOrPassword,
        _ => ReasonCode::NotAuthorized,
    };
    Decision::Admission(Admission::Refused {
        reason,
        detail: Cow::Owned(error.to_string()),
    })
}

/// Of our nonce: as many as a key has.
const NONCE_BYTES: usize = 18;
