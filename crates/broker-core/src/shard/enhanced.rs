//! AUTH: the steps of an enhanced authentication, before a client is let in and again afterwards.
//!
//! ```text
//! CONNECT with a method ─▶ driver ─▶ AUTH 0x18 ─▶ client ─▶ AUTH 0x18 ─▶ driver ─▶ CONNACK
//! AUTH 0x19             ─▶ driver ─▶ AUTH 0x18 ─▶ client ─▶ AUTH 0x18 ─▶ driver ─▶ AUTH 0x00
//! ```
//!
//! Invariants:
//! - All AUTH packets of a connection have the method of its CONNECT [MQTT-4.12.0-5].
//! - Who authenticates again is the same user, or the connection ends.
//! - All steps together have the time that a CONNECT has. What is kept between them ends with the
//!   connection.
//!
//! Deliberately absent: methods, which the driver knows.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::connection::server::Phase;
use unbroken_mqtt_proto::{Auth, Packet, Property, PropertyBuf, ReasonCode};

use super::tick::NOT_HEARD;
use crate::connection::{AuthExchange, ConnectRequest, Connection, Enhanced, LastPacket};
use crate::ids::ConnectionId;
use crate::input::Admission;
use crate::message::add;
use crate::output::{Credentials, Output};
use crate::policy::Grant;
use crate::reason::Fault;
use crate::shard::Shard;
use crate::timers::Timer;

impl Shard {
    /// The driver wants another step of a client [MQTT-4.12.0-2].
    pub(crate) fn handle_challenge(
        &mut self,
        now: Instant,
        id: ConnectionId,
        data: &[u8],
        exchange: AuthExchange,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if !connection.challenge(exchange) {
            return;
        }
        self.send_auth(now, id, ReasonCode::ContinueAuthentication, Some(data));
        self.consume_unread(now, id);
        self.connections.count(id);
    }

    /// What CONNACK shows of the server, or nothing any more.
    pub(crate) fn show_proof(&mut self, id: ConnectionId, proof: Option<Box<[u8]>>) {
        let connection = self.connections.get_mut(id);
        if let Some(enhanced) = connection.and_then(Connection::enhanced) {
            enhanced.show(proof);
        }
    }

    /// A packet of a client that is to take the next step, and is not let in yet.
    pub(crate) fn handle_step(
        &mut self,
        now: Instant,
        id: ConnectionId,
        packet: Packet<'_>,
    ) -> Result<(), Fault> {
        let Packet::Auth(auth) = packet else {
            // DISCONNECT: it has given up.
            let last_words = self.final_bytes(now, id, LastPacket::None);
            self.forget_connection(id);
            if let Some((last_words, _)) = last_words {
                self.close(now, id, last_words);
            }
            return Ok(());
        };
        self.check_auth(id, &auth)?;
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        let data = auth.properties.authentication_data();
        let Some((step, until)) = connection.take_step(data) else {
            return Ok(());
        };
        let Some(request) = connection.request() else {
            return Ok(());
        };
        let credentials = Credentials {
            client_id: Arc::clone(&request.client_id),
            user_name: request.user_name.clone(),
            password: None,
            step: Some(step),
            peer: connection.peer().clone(),
        };
        self.outputs.push_back(Output::Authenticate {
            connection: id,
            credentials,
            until,
        });
        Ok(())
    }

    /// AUTH of a client that is let in: it authenticates again [MQTT-4.12.1-1].
    pub(crate) fn handle_auth(
        &mut self,
        now: Instant,
        id: ConnectionId,
        auth: Auth<'_>,
    ) -> Result<(), Fault> {
        self.check_auth(id, &auth)?;
        let patience = now + self.options.limits.connect_timeout;
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        let (user, peer) = (connection.user().cloned(), connection.peer().clone());
        let session = connection.session().and_then(|id| self.sessions.get(id));
        let client_id = session.map(|session| Arc::clone(&session.client_id));
        let Some(enhanced) = connection.enhanced() else {
            return Ok(());
        };
        if enhanced.is_deciding() {
            return Err(Fault::new(
                ReasonCode::ProtocolError,
                "AUTH before the answer to the last one",
            ));
        }
        let until = enhanced.decide(patience);
        let needs_timer = enhanced.needs_timer();
        let step = enhanced.step(auth.properties.authentication_data(), true);
        self.outputs.push_back(Output::Authenticate {
            connection: id,
            credentials: Credentials {
                client_id: client_id.unwrap_or_default(),
                user_name: user.as_deref().map(Into::into),
                password: None,
                step: Some(step),
                peer,
            },
            until,
        });
        if needs_timer {
            self.timers.set(until, Timer::Reauthentication(id));
        }
        Ok(())
    }

    /// Whether AUTH continues what is under way, by the method of CONNECT.
    fn check_auth(&self, id: ConnectionId, auth: &Auth<'_>) -> Result<(), Fault> {
        let connection = self.connections.get(id);
        let phase = connection.map_or(Phase::Closed, Connection::phase);
        phase.handle_auth(auth.reason).map_err(|violation| Fault {
            reason: violation.reason(),
            detail: Cow::Owned(violation.to_string()),
        })?;
        let method = connection.and_then(Connection::auth_method);
        if method == auth.properties.authentication_method() {
            return Ok(());
        }
        // [MQTT-4.12.0-5] [MQTT-4.12.1-1]
        Err(Fault::new(
            ReasonCode::ProtocolError,
            "AUTH with another authentication method than CONNECT",
        ))
    }

    /// The driver has decided about a client that authenticates again.
    pub(crate) fn handle_readmission(
        &mut self,
        now: Instant,
        id: ConnectionId,
        admission: Admission,
    ) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if !connection.enhanced().is_some_and(Enhanced::end) {
            return;
        }
        match admission {
            Admission::Granted(grant) => self.readmit(now, id, grant),
            Admission::Refused { reason, detail } => {
                // CONNACK alone has words for a wrong password. [MQTT-4.12.1-2]
                let reason = match reason {
                    ReasonCode::BadUserNameOrPassword => ReasonCode::NotAuthorized,
                    reason => reason,
                };
                self.disconnect(now, id, Fault { reason, detail });
            }
        }
    }

    fn readmit(&mut self, now: Instant, id: ConnectionId, mut grant: Grant) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.user() != grant.user.as_ref() {
            let detail = "the client authenticated again as another user";
            return self.disconnect(now, id, Fault::new(ReasonCode::NotAuthorized, detail));
        }
        let proof = grant.proof.take();
        connection.identify(grant);
        let session = connection.session();
        self.watch_grant(id);
        if let Some(session) = session
            && let Err(fault) = self.judge_again(now, id, session)
        {
            return self.disconnect(now, id, fault);
        }
        self.send_auth(now, id, ReasonCode::Success, proof.as_deref());
        self.connections.count(id);
    }

    /// AUTH to a client; one that takes no packet as long is ended.
    fn send_auth(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reason: ReasonCode,
        data: Option<&[u8]>,
    ) {
        let Some(connection) = self.connections.get(id) else {
            return;
        };
        let mut properties = PropertyBuf::new();
        let method = connection.auth_method().unwrap_or_default();
        add(&mut properties, Property::AuthenticationMethod(method));
        if let Some(data) = data {
            add(&mut properties, Property::AuthenticationData(data));
        }
        let auth = Packet::Auth(Auth {
            reason,
            properties: properties.as_properties(),
        });
        if connection.takes(&auth) {
            self.connections.send(&mut self.telemetry, id.index, &auth);
            return;
        }
        let detail = "the client takes no packet as long as its AUTH";
        let fault = Fault::new(ReasonCode::PacketTooLarge, detail);
        match connection.request().map(ConnectRequest::caller) {
            Some(caller) => self.refuse(now, id, caller, fault),
            None => self.disconnect(now, id, fault),
        }
    }

    /// Ends a client that does not finish what it has begun.
    pub(crate) fn check_reauthentication(
        &mut self,
        now: Instant,
        heard: Instant,
        id: ConnectionId,
    ) {
        let connection = self.connections.get_mut(id);
        let enhanced = connection.and_then(Connection::enhanced);
        let Some(until) = enhanced.and_then(Enhanced::on_timer) else {
            return;
        };
        if until > now || until > heard {
            let at = until.max(now + NOT_HEARD);
            self.timers.set(at, Timer::Reauthentication(id));
            return;
        }
        let detail = "the client did not finish authenticating again in time";
        self.disconnect(now, id, Fault::new(ReasonCode::NotAuthorized, detail));
    }
}
