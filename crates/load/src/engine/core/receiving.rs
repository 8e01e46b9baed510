//! The receiving side: deliveries into the ledger, acknowledgements out, and the credit that both
//! earn.

use super::{Connection, Core, Earning, Stop, topic_of};
use crate::{
    ledger::Arrival,
    tally::class,
    wire::{self, Delivery, Frame},
};

impl Core {
    pub(super) fn on_publish(
        &mut self,
        index: usize,
        frame: Frame<'_>,
        now_ns: u64,
    ) -> Result<(), Stop> {
        let message = wire::delivery(frame, self.properties).ok_or(Stop::Garbage)?;
        match message.qos {
            0 => {}
            1 => self.acknowledge(index, wire::PUBACK, Some(message.packet_id))?,
            2 => {
                self.awaiting_release += 1;
                self.acknowledge(index, wire::PUBREC, Some(message.packet_id))?;
            }
            _ => return Err(Stop::Garbage),
        }
        match self.account(index, &message, now_ns) {
            // The window counts what the broker still has to do, and a QoS 2 message is not done
            // before its release.
            Some(earning) if message.qos == 2 => {
                let unreleased = &mut self.clients[index].unreleased;
                unreleased.push_back((message.packet_id, earning));
            }
            Some(earning) => self.earn(earning),
            None => {}
        }
        Ok(())
    }

    /// Enters a message into the ledger; what it earns, if it is the first copy and counts.
    fn account(&mut self, index: usize, message: &Delivery<'_>, now_ns: u64) -> Option<Earning> {
        let Some(stamp) = self.payloads.verify(message.payload) else {
            self.tally.corrupted += 1;
            return None;
        };
        let client = &mut self.clients[index];
        let lane = stamp.flow.checked_sub(client.plan.lanes.start);
        let lane = lane.and_then(|lane| client.lanes.get_mut(lane as usize));
        let at = stamp
            .flow
            .checked_sub(self.first_flow)
            .map(|at| at as usize);
        let flow = at.and_then(|at| Some((self.flows.get(at)?, *self.firsts.get(at)?)));
        let (Some(lane), Some((flow, first))) = (lane, flow) else {
            self.tally.misdelivered += 1;
            return None;
        };
        if self.topics[topic_of(flow, stamp.sequence)].as_bytes() != message.topic {
            self.tally.misdelivered += 1;
            return None;
        }
        let credit = match lane.note(stamp.sequence) {
            // Messages that were overtaken no longer hold the window closed; if they come, they
            // earn nothing more.
            Arrival::Next { skipped } => {
                self.missing += u64::from(skipped);
                1 + u64::from(skipped)
            }
            Arrival::Late => {
                self.missing = self.missing.saturating_sub(1);
                self.tally.reordered += 1;
                0
            }
            Arrival::Duplicate => {
                self.tally.duplicated += 1;
                return None;
            }
        };
        self.last_ns = now_ns;
        if stamp.sequence < first {
            self.tally.belated += 1;
            return None;
        }
        self.tally.delivered += 1;
        if client.plan.timed {
            let latency_ns = now_ns.saturating_sub(stamp.time_ns);
            self.latency.saturating_record(latency_ns);
            self.classes[class(latency_ns)] += 1;
        }
        (client.plan.counts && credit > 0).then_some(Earning {
            client: flow.earner,
            credit,
            question_ns: stamp.time_ns,
        })
    }

    pub(super) fn on_release(
        &mut self,
        index: usize,
        frame: Frame<'_>,
        now_ns: u64,
    ) -> Result<(), Stop> {
        self.awaiting_release = self.awaiting_release.saturating_sub(1);
        self.last_ns = now_ns;
        self.acknowledge(index, wire::PUBCOMP, frame.packet_id())?;
        let unreleased = &mut self.clients[index].unreleased;
        // Releases come in the order of the messages; looking further is for brokers that err.
        // [MQTT-4.6.0-4]
        let place = unreleased
            .iter()
            .position(|(id, _)| Some(*id) == frame.packet_id());
        if let Some((_, earning)) = place.and_then(|place| unreleased.remove(place)) {
            self.earn(earning);
        }
        Ok(())
    }

    fn earn(&mut self, earning: Earning) {
        if let Some(publisher) = &mut self.clients[earning.client].publisher {
            publisher.earn(earning.credit);
            publisher.question_ns = earning.question_ns;
            self.make_ready(earning.client);
        }
    }

    /// Queued, so that the acknowledgements of one turn share a write.
    pub(super) fn acknowledge(
        &mut self,
        index: usize,
        kind: u8,
        packet_id: Option<u16>,
    ) -> Result<(), Stop> {
        let packet_id = packet_id.filter(|id| *id != 0).ok_or(Stop::Garbage)?;
        let client = &mut self.clients[index];
        if let Some(connection) = &mut client.connection {
            connection.queue(&wire::acknowledgement(kind, packet_id));
        }
        if !client.dirty {
            client.dirty = true;
            self.dirty.push(index);
        }
        Ok(())
    }

    pub(in crate::engine) fn flush_acknowledgements(&mut self) {
        while let Some(index) = self.dirty.pop() {
            let client = &mut self.clients[index];
            client.dirty = false;
            let flushed = client.connection.as_mut().map(Connection::flush);
            if flushed.is_some_and(|flushed| flushed.is_err()) {
                self.close(index);
            }
        }
    }

    pub(super) fn on_received(
        &mut self,
        index: usize,
        frame: Frame<'_>,
        now_ns: u64,
    ) -> Result<(), Stop> {
        if frame.is_refusal() {
            self.on_acknowledged(index, frame, now_ns);
            return Ok(());
        }
        self.last_ns = now_ns;
        self.acknowledge(index, wire::PUBREL, frame.packet_id())
    }

    pub(super) fn on_acknowledged(&mut self, index: usize, frame: Frame<'_>, now_ns: u64) {
        if frame.is_refusal() {
            self.tally.refused += 1;
        }
        self.last_ns = now_ns;
        if let Some(publisher) = &mut self.clients[index].publisher
            && publisher.unacknowledged > 0
        {
            publisher.unacknowledged -= 1;
            self.unacknowledged -= 1;
            if let Some(sent_ns) = publisher.sent_ns.pop_front() {
                self.acknowledged
                    .saturating_record(now_ns.saturating_sub(sent_ns));
            }
            self.make_ready(index);
        }
    }
}
