//! Last wills: published when a client goes without DISCONNECT, at once or after their delay.
//!
//! A will is due at the earliest of its delay and the end of its session [MQTT-3.1.3-9]; a client
//! that comes back before that cancels it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unbroken_mqtt_proto::{Connect, Property, PropertyBuf, QoS};

use crate::ids::SessionId;
use crate::item::{Item, Storing};
use crate::message::{Message, Publication};
use crate::output::Event;
use crate::session::Will;
use crate::shard::Shard;
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
        // Taken out: it is published once. [MQTT-3.1.2-10, MQTT311-3.1.2-10]
        let Some(will) = self
            .clients
            .session_mut(id)
            .and_then(|session| session.will.take())
        else {
            return;
        };
        if let Some(client_id) = will.message.publisher().map(Arc::clone) {
            self.event(Event::WillPublished {
                client_id,
                topic: will.message.topic().into(),
            });
        }
        let mut publication = will.message.publication();
        publication.stamp = now;
        publication.expires = will.expiry.map(|interval| now + interval);
        // The last message of its client: accepted like the others, so what it says of itself is
        // verified, and it has the next number.
        self.verify_publisher(now, id, false, &publication);
        let mut stamped = std::mem::take(&mut self.stamped);
        self.put_mark(now, id, &mut publication, &mut stamped);
        let mut item = Item::borrowed(publication, will.message.publisher());
        if self.options.settings.durable && publication.qos > QoS::AtMostOnce {
            item.storing = Storing::IfWanted(None);
        }
        // [MQTT-3.1.2-14, MQTT311-3.1.2-16]
        if publication.retain {
            // [MQTT-3.1.2-15, MQTT311-3.1.2-17]; nobody waits for an acknowledgement.
            let _ = self.retain(now, &mut item, QoS::AtMostOnce);
        }
        self.route(now, &mut item, Some(id));
        item.finish(&mut self.clients.pool);
        self.stamped = stamped;
    }
}

/// The will of a CONNECT.
pub(crate) fn will_of(
    now: Instant,
    connect: &Connect<'_>,
    client_id: &Arc<str>,
) -> Option<Box<Will>> {
    let will = connect.will.as_ref()?; // [MQTT311-3.1.2-12]
    let mut properties = PropertyBuf::new();
    for property in will.properties {
        // The first two are the broker's to act on; the rest goes with the message [MQTT-3.1.3-10].
        if !matches!(
            property,
            Property::WillDelayInterval(_) | Property::MessageExpiryInterval(_)
        ) {
            crate::publish::add(&mut properties, property);
        }
    }
    let publication = Publication {
        topic: will.topic,
        properties: properties.as_properties(),
        payload: will.payload,
        qos: will.qos,
        retain: will.retain,
        expires: None,
        stamp: now,
        mark: None,
    };
    Some(Box::new(Will {
        message: Message::new(&publication, Some(client_id)),
        expiry: will
            .properties
            .message_expiry_interval()
            .map(|seconds| Duration::from_secs(seconds.into())),
        delay_s: will.properties.will_delay_interval().unwrap_or(0),
    }))
}
