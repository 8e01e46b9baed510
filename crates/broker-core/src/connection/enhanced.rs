//! Enhanced authentication of one connection: its method, and what the driver keeps between two
//! steps.
//!
//! ```text
//! Idle --AUTH 0x19--> Deciding --answer of the driver--> Idle: AUTH 0x00
//!                       |   ^
//!                       v   | AUTH 0x18
//!                     Challenged
//! ```
//!
//! The states are those of a client that authenticates again; before it is let in, `Handshake` has
//! them.

use std::any::Any;
use std::mem;
use std::time::Instant;

use unbroken_mqtt_proto::connection::server::Phase;

use super::Connection;

#[derive(Debug)]
pub(crate) struct Enhanced {
    method: Box<str>,
    exchange: Option<AuthExchange>,
    /// For CONNACK, while the client is let in.
    proof: Option<Box<[u8]>>,
    again: Again,
    /// Whether a timer is set that ends it when it takes too long: there is one at most, however
    /// often the client authenticates again.
    has_timer: bool,
}

/// Where a client stands that is let in.
#[derive(Clone, Copy, Debug)]
enum Again {
    Idle,
    /// The driver decides about its step.
    Deciding(Instant),
    /// It is to take another step by then.
    Challenged(Instant),
}

impl Enhanced {
    pub(super) fn new(method: &str) -> Self {
        Self {
            method: method.into(),
            exchange: None,
            proof: None,
            again: Again::Idle,
            has_timer: false,
        }
    }

    pub(crate) const fn method(&self) -> &str {
        &self.method
    }

    /// What CONNACK shows of the server, or nothing any more.
    pub(crate) fn show(&mut self, proof: Option<Box<[u8]>>) {
        self.proof = proof;
    }

    pub(crate) fn proof(&self) -> Option<&[u8]> {
        self.proof.as_deref()
    }

    /// The phase of a client that is let in.
    pub(super) const fn phase(&self) -> Phase {
        match self.again {
            Again::Idle => Phase::Connected {
                extended_auth: true,
            },
            Again::Deciding(_) | Again::Challenged(_) => Phase::Reauthenticating,
        }
    }

    /// Bytes that it keeps from the allocator.
    pub(super) fn memory(&self) -> usize {
        let exchange = self.exchange.as_ref();
        size_of::<Self>() + self.method.len() + exchange.map_or(0, AuthExchange::bytes)
    }

    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.again {
            Again::Idle => None,
            Again::Deciding(until) | Again::Challenged(until) => Some(until),
        }
    }

    /// The driver decides about a step already: the client had to wait for its answer.
    pub(crate) const fn is_deciding(&self) -> bool {
        matches!(self.again, Again::Deciding(_))
    }

    /// The client has begun to authenticate again, or has taken the next step: the driver decides
    /// by `until`, or by the time that the first step has set.
    pub(crate) fn decide(&mut self, until: Instant) -> Instant {
        let until = self.until().unwrap_or(until);
        self.again = Again::Deciding(until);
        until
    }

    /// Whether a timer is to be set: none is, and from now on one is.
    pub(crate) const fn needs_timer(&mut self) -> bool {
        !mem::replace(&mut self.has_timer, true)
    }

    /// The timer has fired; `None`: there was nothing to wait for, and no timer is set any more.
    pub(crate) const fn on_timer(&mut self) -> Option<Instant> {
        let until = self.until();
        self.has_timer = until.is_some();
        until
    }

    /// The driver wants another step. Whether it had one to decide about.
    pub(super) fn challenge(&mut self) -> bool {
        if let Again::Deciding(until) = self.again {
            self.again = Again::Challenged(until);
            return true;
        }
        false
    }

    /// The driver has decided. Whether it had to.
    pub(crate) fn end(&mut self) -> bool {
        self.exchange = None;
        let is_due = self.is_deciding();
        if is_due {
            self.again = Again::Idle;
        }
        is_due
    }

    /// Until the next step.
    pub(super) fn keep(&mut self, exchange: AuthExchange) {
        self.exchange = Some(exchange);
    }

    /// What the driver is asked with.
    pub(crate) fn step(&mut self, data: Option<&[u8]>, is_again: bool) -> AuthStep {
        AuthStep {
            method: self.method.clone(),
            data: data.map(Into::into),
            exchange: self.exchange.take(),
            is_again,
        }
    }
}

/// A step of an enhanced authentication. No `Debug` of its data.
pub struct AuthStep {
    /// The method that CONNECT named.
    pub method: Box<str>,
    /// What the client sent with this step.
    pub data: Option<Box<[u8]>>,
    /// What the driver has kept of the step before; `None`: this is the first.
    pub exchange: Option<AuthExchange>,
    /// The client is let in, and authenticates again.
    pub is_again: bool,
}

/// What a driver keeps between two steps of an authentication. The shard has it with the
/// connection, so that it ends with it.
pub struct AuthExchange {
    state: Box<dyn Any + Send>,
    bytes: usize,
}

impl AuthExchange {
    /// Keeps a value that has so many bytes.
    pub fn new(state: impl Any + Send, bytes: usize) -> Self {
        let state = Box::new(state);
        Self { state, bytes }
    }

    /// The value; `None`: it was another one.
    pub fn into_state<T: Any>(self) -> Option<T> {
        self.state.downcast().ok().map(|state| *state)
    }

    /// Its bytes, as the driver has said.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl std::fmt::Debug for AuthExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthExchange").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AuthStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthStep")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// CONNECT named an authentication method.
    pub(crate) fn begin_enhanced(&mut self, method: &str) {
        self.login.enhanced = Some(Box::new(Enhanced::new(method)));
    }

    /// The enhanced authentication, if CONNECT named a method.
    pub(crate) fn enhanced(&mut self) -> Option<&mut Enhanced> {
        self.login.enhanced.as_deref_mut()
    }

    /// The method that CONNECT named.
    pub(crate) fn auth_method(&self) -> Option<&str> {
        self.login
            .enhanced
            .as_ref()
            .map(|enhanced| enhanced.method())
    }

    /// What CONNACK shows of the server.
    pub(crate) fn auth_proof(&self) -> Option<&[u8]> {
        self.login.enhanced.as_ref()?.proof()
    }

    /// The driver wants another step of the client. Whether it had one to decide about.
    pub(crate) fn challenge(&mut self, exchange: AuthExchange) -> bool {
        let is_first = self.handshake.challenge();
        let Some(enhanced) = self.enhanced() else {
            return false;
        };
        (is_first || enhanced.challenge()) && {
            enhanced.keep(exchange);
            true
        }
    }

    /// The client has taken the next step before it is let in: what the driver is asked with.
    pub(crate) fn take_step(&mut self, data: Option<&[u8]>) -> Option<(AuthStep, Instant)> {
        let until = self.handshake.until()?;
        self.handshake.decide_again();
        Some((self.enhanced()?.step(data, false), until))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
    fn a_client_that_authenticates_again_and_again_has_one_timer() {
        let (mut enhanced, start) = (Enhanced::new("m"), Instant::now());
        let mut set = 0;
        for second in 0..100 {
            enhanced.decide(start + Duration::from_secs(second));
            set += u32::from(enhanced.needs_timer());
            assert!(enhanced.end());
        }
        assert_eq!(set, 1);
        let until = start + Duration::from_secs(200);
        enhanced.decide(until);
        assert!(!enhanced.needs_timer());
        assert_eq!(enhanced.on_timer(), Some(until), "it is set again");
        assert!(!enhanced.needs_timer());
        assert!(enhanced.end());
        assert_eq!(enhanced.on_timer(), None);
        enhanced.decide(until);
        assert!(enhanced.needs_timer());
    }
}
