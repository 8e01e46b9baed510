//! A method of enhanced authentication that the tests know.

use unbroken_broker_core::{AuthExchange, AuthStep};

use super::*;

/// An enhanced authentication in two steps, `TEST`: the first data is the user's name, and the
/// answer to a challenge is the challenge with a `!`.
pub(super) fn scripted(connection: ConnectionId, step: AuthStep) -> Input<'static> {
    let refused = |reason: ReasonCode| Admission::Refused {
        reason,
        detail: reason.name().into(),
    };
    let data = step.data.as_deref().unwrap_or_default();
    let admission = match (&*step.method, step.exchange) {
        ("TEST", None) => {
            let challenge = [data, b"?"].concat();
            return Input::Challenged {
                connection,
                data: challenge.clone().into(),
                exchange: AuthExchange::new(challenge, 100),
            };
        }
        ("TEST", Some(exchange)) => {
            let challenge: Vec<u8> = exchange.into_state().unwrap();
            if data == [&*challenge, b"!"].concat() {
                let user = data.strip_suffix(b"?!").unwrap_or_default();
                let user = String::from_utf8(user.to_vec()).unwrap();
                Admission::Granted(Grant {
                    user: Some(user.into()),
                    proof: Some(b"proof"[..].into()),
                    ..Grant::default()
                })
            } else {
                refused(ReasonCode::BadUserNameOrPassword)
            }
        }
        _ => refused(ReasonCode::BadAuthenticationMethod),
    };
    Input::Authenticated {
        connection,
        admission,
    }
}
