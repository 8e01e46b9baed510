//! The sending side: whose turn it is, and one write for each turn.

use super::{BACKLOG, BURST, Connection, Core, Schedule, Stage, topic_of};
use crate::{stamp::Stamp, wire::Shape};

impl Core {
    pub(super) fn make_ready(&mut self, index: usize) {
        if let Some(publisher) = &mut self.clients[index].publisher
            && !publisher.queued
        {
            publisher.queued = true;
            self.ready.push_back(index);
        }
    }

    pub(in crate::engine) fn publish(&mut self) {
        if self.schedule.is_some() {
            self.publish_due();
        }
        // Who becomes ready by these writes waits for the next turn.
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            self.publish_batch(index);
        }
    }

    fn publish_due(&mut self) {
        for _ in 0..BURST {
            let Some((number, due_ns)) = self.schedule.as_ref().and_then(Schedule::next) else {
                return;
            };
            if due_ns > self.now_ns() || self.initiators.is_empty() {
                return;
            }
            let turn = usize::try_from(number).unwrap_or_default() % self.initiators.len();
            let index = self.initiators[turn];
            let backlog = self.clients[index]
                .connection
                .as_ref()
                .map_or(0, Connection::pending);
            if backlog > BACKLOG {
                return;
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
            if self.clients[index].stage == Stage::Up {
                self.write(index, 1, due_ns);
            }
        }
    }

    fn publish_batch(&mut self, index: usize) {
        let settings = &self.common.settings;
        let (batch, acknowledged) = (settings.batch, settings.qos > 0);
        let closed_loop = self.schedule.is_none();
        let client = &mut self.clients[index];
        let Some(publisher) = &mut client.publisher else {
            return;
        };
        publisher.queued = false;
        let open = client
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.is_blocked());
        let count = publisher.allowance(batch, acknowledged, self.publishing);
        if !closed_loop || !open || count == 0 {
            return;
        }
        let time_ns = if publisher.replies {
            publisher.question_ns
        } else {
            self.now_ns()
        };
        self.write(index, count, time_ns);
        let client = &self.clients[index];
        let more = client.publisher.as_ref().is_some_and(|publisher| {
            publisher.allowance(self.common.settings.batch, acknowledged, self.publishing) > 0
        });
        if more {
            self.make_ready(index);
        }
    }

    /// One write of `count` messages, which must be of one flow if more than one.
    fn write(&mut self, index: usize, count: u32, time_ns: u64) {
        let qos = self.common.settings.qos;
        let batch = self.common.settings.batch;
        let client = &mut self.clients[index];
        let (Some(publisher), Some(connection)) = (&mut client.publisher, &mut client.connection)
        else {
            return;
        };
        let Some(number) = publisher.next_flow() else {
            return;
        };
        let at = (number - self.first_flow) as usize;
        let (Some(flow), Some(sequence)) = (self.flows.get(at), self.sequences.get_mut(at)) else {
            return;
        };
        let topic = topic_of(flow, *sequence);
        let shape = Shape {
            flow: number,
            topic: &self.topics[topic],
            qos,
            properties: self.properties,
        };
        publisher.engrave(shape, topic, &self.payloads, batch);
        for packet in 0..count {
            let packet_id = if qos > 0 { publisher.next_id() } else { 0 };
            publisher.patch(
                &self.payloads,
                packet,
                Stamp {
                    flow: number,
                    sequence: *sequence,
                    time_ns,
                },
                packet_id,
            );
            *sequence += 1;
        }
        publisher.spend(count.into());
        self.moved_ns = time_ns.max(self.moved_ns);
        self.tally.published += u64::from(count);
        self.tally.expected += u64::from(count) * u64::from(flow.receivers);
        if qos > 0 {
            publisher.owe(count, time_ns);
            self.unacknowledged += u64::from(count);
        }
        let sent = connection.send(publisher.packets(count));
        self.first_ns.get_or_insert(time_ns);
        if sent.is_err() {
            self.close(index);
        }
    }
}
