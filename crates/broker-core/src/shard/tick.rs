//! What a shard does when the time has come that it asked for.

use std::time::{Duration, Instant};

use unbroken_mqtt_proto::ReasonCode;

use crate::ids::{ConnectionId, SessionId};
use crate::reason::Fault;
use crate::shard::Shard;
use crate::timers::Timer;

impl Shard {
    pub(crate) fn handle_timeout(&mut self, now: Instant, heard: Instant) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Connect(id) => self.check_admission(now, heard, id),
                Timer::KeepAlive(id) => self.check_keep_alive(now, heard, id),
                // Both are on disk; after the restart they go on.
                Timer::Will { .. } | Timer::SessionExpiry { .. } if self.is_stopping_to_go_on() => {
                }
                Timer::Will { session, absence } => self.publish_due_will(now, session, absence),
                Timer::SessionExpiry { session, absence } => {
                    self.expire_session(now, session, absence);
                }
                Timer::Retained(message) => self.expire_retained(now, &message),
                Timer::Scan(session) => self.pump_retained(now, session),
                Timer::Spread => self.go_on_spreading(now),
                Timer::TellDrops => self.report_drops(now),
                Timer::Progress => self.tell_progress(),
                Timer::Tail => self.tell_tail(),
                Timer::Laggards => self.look_for_laggards(now),
                Timer::Count => self.count_on(),
                Timer::Sys => self.publish_sys(now),
                Timer::Audit => self.tick_audit(now),
                Timer::Publishers => self.tick_publishers(now),
                Timer::Revive => self.begin_revived(now),
                Timer::Ask => {}
            }
        }
    }

    /// The broker stops, and what it has is there when it begins again.
    fn is_stopping_to_go_on(&self) -> bool {
        self.clients.stopping && self.options.settings.durable
    }

    /// Gives up on a connection that has not come in by its time.
    fn check_admission(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id) else {
            return;
        };
        let Some(deadline) = connection.is_to_be_in_by() else {
            return;
        };
        if deadline > now {
            return self.timers.set(deadline, Timer::Connect(id));
        }
        if deadline > heard {
            return self.timers.set(now + NOT_HEARD, Timer::Connect(id));
        }
        let caller = connection.caller();
        let fault = match caller {
            None => Fault::new(ReasonCode::KeepAliveTimeout, "no CONNECT in time"),
            Some(_) => Fault::new(
                ReasonCode::ServerBusy,
                "its password was not checked in time",
            ),
        };
        self.refuse(now, id, caller.unwrap_or_default(), fault);
    }

    fn check_keep_alive(&mut self, now: Instant, heard: Instant, id: ConnectionId) {
        let Some(connection) = self.clients.connections.get(id) else {
            return;
        };
        let Some(keep_alive) = connection.keep_alive() else {
            return;
        };
        let deadline = connection.last_received() + keep_alive;
        if deadline > now {
            self.timers.set(deadline, Timer::KeepAlive(id));
        } else if self.clients.keeps_waiting(connection) {
            self.timers.set(now + keep_alive, Timer::KeepAlive(id));
        } else if deadline > heard {
            self.timers.set(now + NOT_HEARD, Timer::KeepAlive(id));
        } else {
            // [MQTT-3.1.2-22]
            self.disconnect(
                now,
                id,
                Fault::new(
                    ReasonCode::KeepAliveTimeout,
                    "nothing came within 1.5 times the keep alive",
                ),
            );
        }
    }

    /// Takes out of the heap what no longer matters.
    #[cold]
    pub(crate) fn compact_timers(&mut self) {
        let clients = &self.clients;
        let connection = |id| clients.connections.get(id);
        let is_away = |session: SessionId, absence: u64| {
            let found = clients.sessions.get(session.index());
            found.is_some_and(|session| session.absence == absence)
        };
        self.timers.compact(|timer| match timer {
            Timer::Connect(id) => {
                connection(*id).is_some_and(|found| found.is_to_be_in_by().is_some())
            }
            Timer::KeepAlive(id) => connection(*id).is_some(),
            Timer::Will { session, absence } | Timer::SessionExpiry { session, absence } => {
                is_away(*session, *absence)
            }
            Timer::Retained(message) => message.strong_count() > 0,
            Timer::Scan(_)
            | Timer::Spread
            | Timer::TellDrops
            | Timer::Progress
            | Timer::Tail
            | Timer::Laggards
            | Timer::Count
            | Timer::Sys
            | Timer::Audit
            | Timer::Publishers
            | Timer::Revive
            | Timer::Ask => true,
        });
    }
}

/// Until somebody is looked at again whose time is over, but who may have sent something that the
/// shard has not been given.
const NOT_HEARD: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;
    use std::time::Duration;

    use unbroken_mqtt_proto::{Connect, Packet, Property, PropertyBuf, Publish, QoS, Version};

    use super::*;
    use crate::{
        Admission, CloseCause, Event, Input, Limits, Output, Peer, Settings, ShardId, ShardOptions,
        Totals,
    };

    fn shard(start: Instant) -> Shard {
        Shard::new(ShardOptions {
            id: ShardId(0),
            shards: 1,
            limits: Limits::default(),
            settings: Settings::default(),
            totals: Arc::new(Totals::default()),
            seed: 7,
            start,
        })
    }

    fn send(shard: &mut Shard, now: Instant, connection: ConnectionId, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes).unwrap();
        let bytes = &bytes;
        for _ in shard.handle(now, Input::Received { connection, bytes }) {}
    }

    /// A client with a keep alive and a session that stays.
    fn join(shard: &mut Shard, now: Instant, serial: u32) -> ConnectionId {
        let connection = ConnectionId { index: 0, serial };
        let peer = Peer {
            address: None,
            listener: 0,
        };
        for _ in shard.handle(now, Input::Opened { connection, peer }) {}
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::SessionExpiryInterval(1_000_000))
            .unwrap();
        let connect = Connect {
            version: Version::V5,
            bridge: false,
            clean_start: false,
            keep_alive: u16::MAX,
            client_id: "a",
            will: None,
            user_name: None,
            password: None,
            properties: properties.as_properties(),
        };
        send(shard, now, connection, &Packet::Connect(connect));
        let admission = Admission::Granted { user: None };
        let input = Input::Authenticated {
            connection,
            admission,
        };
        for _ in shard.handle(now, input) {}
        connection
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn retained_updates_with_an_expiry_leave_no_timers_behind() {
        let now = Instant::now();
        let mut shard = shard(now);
        let client = join(&mut shard, now, 1);
        let mut properties = PropertyBuf::new();
        properties
            .push(Property::MessageExpiryInterval(1_000_000))
            .unwrap();
        let update = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: true,
            topic: "t",
            packet_id: None,
            properties: properties.as_properties(),
            payload: b"x",
        });
        for _ in 0..100_000 {
            send(&mut shard, now, client, &update);
        }
        assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn a_client_that_comes_and_goes_leaves_no_timers_behind() {
        let now = Instant::now();
        let mut shard = shard(now);
        for serial in 0..10_000 {
            let connection = join(&mut shard, now, serial);
            let cause = CloseCause::Peer;
            for _ in shard.handle(now, Input::Closed { connection, cause }) {}
        }
        assert!(shard.timers.len() < 2_000, "{}", shard.timers.len());
        // What is left still works: the session ends in its time.
        let end = now + Duration::from_secs(1_000_000);
        let ended = shard
            .handle(end, Input::Timeout { heard: end })
            .any(|output| matches!(output, Output::Event(Event::SessionEnded { .. })));
        assert!(ended);
    }
}
