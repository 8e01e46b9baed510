//! Last wills: published when a client goes without DISCONNECT, at once or after their delay.
//!
//! A will is due at the earliest of its delay and the end of its session [MQTT-3.1.3-9]; a client
//! that comes back before that cancels it.
//!
//! A will that somebody can get after a restart of the broker is on disk from CONNACK until it was
//! published or DISCONNECT has removed it, also that of a session which ends with its connection.
//! It is removed with the message that it became, as far as that is this shard's; where another
//! shard has to retain it, or a group gives it to somebody, when that is stored. A crash in between
//! publishes it again; so may a stop in good order, which does not wait for what other shards store
//! last.
//!
//! A broker that is killed ends all connections. At the restart their wills are due as if they had
//! ended then; what was waiting for its delay goes on waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::QoS;

use crate::clients::Clients;
use crate::connection::ConnectRequest;
use crate::delivery::{Item, Storing};
use crate::durability::{Record, WaitFor, Waiter, Will};
use crate::ids::SessionId;
use crate::message::{Message, Publication};
use crate::shard::Shard;
use crate::telemetry::Event;
use crate::timers::Timer;

impl Shard {
    /// The client has gone: publishes its will, or sets the time for it
    /// [MQTT-3.1.2-8, MQTT311-3.1.2-8].
    pub(crate) fn schedule_will(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.clients.session_mut(id) else {
            return;
        };
        let Some(will) = &session.will else { return };
        if will.delay_s == 0 || session.expiry_s == 0 {
            self.publish_will(now, id);
        } else if will.delay_s < session.expiry_s || session.expiry_s == u32::MAX {
            let at = now + Duration::from_secs(will.delay_s.into());
            let absence = session.absence;
            self.timers.set(
                at,
                Timer::Will {
                    session: id,
                    absence,
                },
            );
        }
        // Otherwise the end of the session publishes it.
    }

    /// Has the will of a client that connects on disk before its CONNACK, in place of the one
    /// before.
    pub(crate) fn store_will(&mut self, id: SessionId) {
        if !self.options.settings.durable {
            return;
        }
        let clients = &mut self.clients;
        let Some(session) = clients.sessions.get_mut(id.index()) else {
            return;
        };
        let expiry_s = session.expiry_s;
        let will = session.will.as_deref();
        let Some(will) = will.filter(|will| will.outlives_broker(expiry_s)).cloned() else {
            return self.forget_stored_will(id);
        };
        session.will_on_disk = true;
        let client_id = Arc::clone(&session.client_id);
        session.asked = clients.gate.ask(Record::Will { client_id, will });
    }

    /// The client has said DISCONNECT: its will is not published.
    pub(crate) fn discard_will(&mut self, id: SessionId) {
        if let Some(session) = self.clients.session_mut(id) {
            session.will = None;
        }
        self.forget_stored_will(id);
    }

    fn forget_stored_will(&mut self, id: SessionId) {
        if let Some(session) = self.clients.session_mut(id)
            && std::mem::take(&mut session.will_on_disk)
        {
            let client_id = Arc::clone(&session.client_id);
            self.clients.end_stored_will(&client_id);
        }
    }

    pub(crate) fn publish_due_will(&mut self, now: Instant, id: SessionId, absence: u64) {
        if self
            .clients
            .session_mut(id)
            .is_some_and(|session| session.absence == absence)
        {
            self.publish_will(now, id);
        }
    }

    pub(crate) fn publish_will(&mut self, now: Instant, id: SessionId) {
        if self.stays_on_disk(id) {
            // It is published at the restart, also when the session has ended.
            let Clients { sessions, gate, .. } = &mut self.clients;
            if let Some(session) = sessions.get(id.index()) {
                gate.block(Arc::clone(&session.client_id));
            }
            return;
        }
        // Taken out: it is published once. [MQTT-3.1.2-10, MQTT311-3.1.2-10]
        let Some(session) = self.clients.session_mut(id) else {
            return;
        };
        let Some(will) = session.will.take() else {
            return;
        };
        let on_disk = std::mem::take(&mut session.will_on_disk);
        let client_id = Arc::clone(&session.client_id);
        let verdict = self.clients.access.due_will(id, will.message.topic());
        if verdict.is_denied() {
            let mut publication = will.message.publication();
            publication.stamp = now;
            self.drop_denied(now, id, &publication);
            if on_disk {
                self.clients.end_stored_will(&client_id);
            }
            return;
        }
        self.event(Event::WillPublished {
            client_id: Arc::clone(&client_id),
            topic: will.message.topic().into(),
        });
        let mut publication = will.message.publication();
        publication.stamp = now;
        publication.expires = will.expiry.map(|interval| now + interval);
        // The last message of its client: accepted like the others, so what it says of itself is
        // verified, and it has the next number.
        let own = self.verify_publisher(id, false, &publication);
        let mut stamped = std::mem::take(&mut self.stamped);
        self.put_mark(now, id, &mut publication, &mut stamped);
        let mut item = Item::borrowed(publication, will.message.publisher());
        // [MQTT-3.1.2-14, MQTT311-3.1.2-16]
        if publication.retain {
            // [MQTT-3.1.2-15, MQTT311-3.1.2-17]; nobody but the disk waits for an acknowledgement.
            let qos = if on_disk {
                QoS::AtLeastOnce
            } else {
                QoS::AtMostOnce
            };
            self.retain(now, &mut item, qos);
        }
        let mut over_with_message = false;
        if self.options.settings.durable && publication.qos > QoS::AtMostOnce {
            item.is_awaited = on_disk;
            over_with_message =
                on_disk && item.until.settled.is_none() && !self.is_shared(publication.topic);
            item.storing = if over_with_message {
                Storing::WillIfWanted
            } else {
                Storing::IfWanted(None)
            };
        }
        self.route(now, &mut item, Some(id));
        over_with_message &= matches!(item.storing, Storing::Asked);
        if let Some(token) = item.until.settled.filter(|_| on_disk) {
            let until = WaitFor {
                settled: Some(token),
                ..WaitFor::NOW
            };
            let waiter = Waiter::Will(client_id);
            self.clients.wake_when(now, until, waiter);
        } else if over_with_message {
            self.clients.note_will_over(&client_id);
        } else if on_disk {
            self.clients.end_stored_will(&client_id);
        }
        self.note_so_far(id, &item, own);
        item.finish(&mut self.clients.pool);
        self.stamped = stamped;
    }
}

/// The will of a CONNECT.
pub(crate) fn will_of(
    now: Instant,
    request: &ConnectRequest,
    client_id: &Arc<str>,
) -> Option<Box<Will>> {
    let will = request.will.as_deref()?; // [MQTT311-3.1.2-12]
    let publication = Publication {
        topic: &will.topic,
        properties: will.properties.as_properties(),
        payload: &will.payload,
        qos: will.qos,
        retain: will.retain,
        expires: None,
        stamp: now,
        mark: None,
    };
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    Some(Box::new(Will {
        message: Arc::new(Message::new(&publication, Some(client_id))),
        expiry: will.expiry_s.map(seconds),
        delay_s: will.delay_s,
    }))
}
