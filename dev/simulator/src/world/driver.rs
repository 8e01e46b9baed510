//! The driver that does what the shards ask for: connections in their tables, messages and bytes on
//! their way, events to the oracle.

use std::collections::VecDeque;
use std::time::Instant;

use unbroken_broker_core::{
    Admission, CloseCause, ConnectionId, Disconnection, DropReason, Event, Grant, Input, LastWords,
    Output, Peer, Shard,
};
use unbroken_mqtt_proto::{Packet, QoS, ReasonCode, next_frame};

use super::{At, ConnectTerms, Link, World};

impl World {
    pub(super) fn clock(&mut self, shard: usize) -> Instant {
        if !self.options.turns || self.rng.percent(40) {
            self.clocks[shard] = self.now;
        }
        self.clocks[shard]
    }

    pub(super) fn input(&mut self, shard: usize, input: Input<'_>) {
        let now = self.clock(shard);
        let outputs: Vec<_> = self.shards[shard].handle(now, input).collect();
        self.carry_out(shard, now, outputs);
    }

    /// An input after which the shard may act on packets of this link.
    pub(super) fn input_of(&mut self, link: usize, shard: usize, input: Input<'_>) {
        let now = self.clock(shard);
        let outputs = self.shards[shard].handle(now, input);
        self.used = outputs.work().received;
        let outputs: Vec<_> = outputs.collect();
        let moves = |output: &Output| matches!(output, Output::Move { .. });
        // What moves is looked at again where it arrives; what stands behind a CONNECT is the
        // client's only once that is let in.
        if self.admitting.is_none() && !outputs.iter().any(moves) {
            self.take_packets(link, now);
        }
        self.carry_out(shard, now, outputs);
    }

    /// Does all that a shard wants done, and only then gives it the input that follows from that:
    /// its messages leave in the order in which it sent them.
    pub(super) fn carry_out(&mut self, shard: usize, now: Instant, outputs: Vec<Output>) {
        self.storage.begin_input();
        let mut unsaid = Vec::new();
        for output in outputs {
            match output {
                Output::Close {
                    connection,
                    last_words,
                } => {
                    if let Some(link) = self.forget(shard, connection) {
                        self.note(|| format!("shard {shard} closes link {link}"));
                        self.check_last_words(link, last_words.unwritten());
                        let link = &mut self.links[link];
                        link.at = At::Gone;
                        link.up.clear();
                        if link.used {
                            link.down.extend_from_slice(last_words.unwritten());
                        } else {
                            unsaid.push(last_words);
                        }
                    }
                }
                Output::Move {
                    connection,
                    to,
                    unread,
                } => {
                    let Some(link) = self.forget(shard, connection) else {
                        panic!("shard {shard} moves a connection that has ended");
                    };
                    self.note(|| format!("link {link} moves from shard {shard} to {to}"));
                    self.links[link].at = At::Moving;
                    self.moves.push_back((link, usize::from(to.0), unread));
                }
                Output::Authenticate { connection, .. } => {
                    let link = self.tables[shard][connection.index as usize];
                    self.admissions.extend(link);
                }
                Output::ShardMessage { to, message } => {
                    let to = usize::from(to.0);
                    self.note(|| format!("message {shard} -> {to}: {message:?}"));
                    self.messages
                        .entry((shard, to))
                        .or_default()
                        .push_back(message);
                }
                Output::Store(request) => {
                    self.note(|| format!("shard {shard} asks to store {:?}", request.record));
                    assert!(self.options.durable, "nothing is durable in this run");
                    assert!(
                        !self.failed[shard],
                        "shard {shard} asks to store something though it was told that it cannot"
                    );
                    self.storage.ask(shard, now, &request, &mut self.oracle);
                }
                Output::Read(request) => {
                    self.note(|| format!("shard {shard} asks to read {request:?}"));
                    self.storage.ask_to_read(shard, request);
                }
                Output::Needed(needed) => {
                    self.note(|| format!("shard {shard} needs nothing within {needed:?}"));
                    self.storage.let_go_when_stored(needed);
                }
                Output::Event(event) => self.take_event(shard, now, event),
            }
        }
        let mut dirty = Vec::new();
        self.shards[shard].take_dirty(&mut dirty, usize::MAX);
        for id in dirty {
            if let Some(Some(link)) = self.tables[shard].get(id.index as usize) {
                self.dirty.insert(*link);
            }
        }
        for last_words in unsaid {
            self.leave_unsaid(shard, now, last_words);
        }
    }

    fn check_last_words(&mut self, link: usize, words: &[u8]) {
        assert!(
            words.starts_with(&self.links[link].sealed),
            "link {link}: its last words do not begin with what was sealed"
        );
        if self.options.durable {
            self.check_leaving(link, words, words.len());
        }
    }

    /// Nobody takes these last words: what is lost with them is dropped, and no longer sent.
    fn leave_unsaid(&mut self, shard: usize, now: Instant, last_words: LastWords) {
        let sent_or_dropped = |shard: &Shard| {
            let stats = shard.stats();
            stats.publishes_written() + stats.dropped[DropReason::ConnectionLost as usize]
        };
        let before = sent_or_dropped(&self.shards[shard]);
        let input = Input::Unsaid(last_words);
        let outputs: Vec<_> = self.shards[shard].handle(now, input).collect();
        assert_eq!(
            sent_or_dropped(&self.shards[shard]),
            before,
            "a message is either sent or dropped"
        );
        self.carry_out(shard, now, outputs);
    }

    pub(super) fn take_event(&mut self, shard: usize, now: Instant, event: Event) {
        self.note(|| format!("shard {shard}: {event:?}"));
        match event {
            Event::Connected {
                client_id,
                session_present,
                ..
            } => {
                let client = number_of(&client_id);
                let Some(link) = self.admitting else {
                    panic!("client {client} was let in unasked");
                };
                let terms = self.links[link].terms;
                self.oracle.connected(
                    client,
                    (link, shard),
                    (session_present, terms.clean, terms.expiry_s),
                    terms.will,
                );
                self.links[link].admitted = true;
                self.take_packets(link, now);
            }
            Event::Disconnected { client_id, why } => {
                let client = number_of(&client_id);
                let goodbye = matches!(
                    why,
                    Disconnection::ByClient(None | Some(ReasonCode::Success))
                );
                if let Disconnection::ByBroker { reason, detail, .. } = &why {
                    let expected = match reason {
                        ReasonCode::SessionTakenOver => self.options.half_open,
                        ReasonCode::KeepAliveTimeout => self.options.keep_alive,
                        ReasonCode::ImplementationSpecificError | ReasonCode::ServerUnavailable => {
                            self.failed[shard]
                        }
                        ReasonCode::QuotaExceeded => {
                            let refuses = self.options.refuses || self.options.retains_few();
                            refuses || self.options.store_fills()
                        }
                        _ => false,
                    };
                    assert!(
                        expected,
                        "the broker ended the connection of client {client}: {detail}"
                    );
                }
                let failed = self.failed[shard];
                self.oracle.disconnected(client, goodbye, failed, now);
            }
            Event::SessionEnded { client_id, .. } => {
                let client = number_of(&client_id);
                let link = self.being_let_in(client);
                let clean = link.is_some_and(|link| self.links[link].terms.clean);
                self.oracle.session_ended(client, clean, now);
            }
            Event::Dropped {
                client_id,
                reason,
                count,
                full,
                ..
            } => {
                let client = client_id.strip_prefix('c').and_then(|n| n.parse().ok());
                self.oracle
                    .told_drops(client, reason, (count, full.is_some()));
            }
            Event::Refused { .. } if self.failed[shard] => {}
            Event::Refused { detail, .. } => panic!("the broker refused a client: {detail}"),
            Event::WillPublished { client_id, .. } => {
                let client = number_of(&client_id);
                let replaced = self.being_let_in(client).is_some();
                self.oracle.will_was_published(client, replaced, now);
            }
            _ => {}
        }
    }

    /// The link that is being let in, if it is this client's.
    fn being_let_in(&self, client: usize) -> Option<usize> {
        self.admitting
            .filter(|link| self.links[*link].client == client)
    }

    pub(super) fn admit(&mut self) -> bool {
        let Some(link) = self.admissions.pop_front() else {
            return false;
        };
        let At::Shard(shard, connection) = self.links[link].at else {
            return true;
        };
        self.admitting = Some(link);
        let admission = Admission::Granted(Grant::anonymous());
        self.input_of(
            link,
            shard,
            Input::Authenticated {
                connection,
                admission,
            },
        );
        self.admitting = None;
        true
    }

    /// The broker has acted on `used` packets of this link: notes what they say.
    pub(super) fn take_packets(&mut self, link: usize, now: Instant) {
        let Link {
            client, version, ..
        } = self.links[link];
        for _ in 0..std::mem::take(&mut self.used) {
            let Some(bytes) = self.links[link].packets.pop_front() else {
                panic!("the broker acts on packets that link {link} has not sent");
            };
            let Ok(Some(frame)) = next_frame(&bytes, u32::MAX) else {
                continue;
            };
            let Ok(packet) = Packet::decode(frame, version) else {
                continue;
            };
            match packet {
                Packet::Publish(publish) => {
                    let Some(message) = self.links[link].published.pop_front() else {
                        panic!("a PUBLISH without a message");
                    };
                    let mut new = true;
                    if let Some(id) = publish.packet_id {
                        let session = &mut self.oracle.sessions[client];
                        if publish.qos == QoS::ExactlyOnce {
                            new = session.takes_in(id, message, publish.dup);
                        } else {
                            session.released(id); // whatever was marked so
                        }
                    }
                    if self.is_denied(client, message) {
                        let session = &mut self.oracle.sessions[client];
                        publish.packet_id.map(|id| session.unreleased.remove(&id));
                    } else if new {
                        self.oracle.accepted(client, message, now);
                    } else {
                        self.oracle.came_again(message);
                    }
                }
                Packet::PubAck(ack) => self.oracle.ended(client, ack.packet_id),
                Packet::PubRel(ack) => {
                    self.oracle.sessions[client].released(ack.packet_id);
                }
                Packet::Disconnect(disconnect) => {
                    if let Some(expiry_s) = disconnect.properties.session_expiry_interval() {
                        self.oracle.expiry_changed(client, expiry_s);
                    }
                }
                _ => {}
            }
        }
    }

    /// Of these bytes for a client the first `count` are written now, and the others may be at any
    /// time: nothing among them may wait for the disk.
    pub(super) fn check_leaving(&mut self, link: usize, bytes: &[u8], count: usize) {
        let this = &mut self.links[link];
        if !this.used {
            return;
        }
        let (client, version) = (this.client, this.version);
        let mut all = std::mem::take(&mut this.begun);
        let written = all.len() + count;
        all.extend_from_slice(bytes);
        let (mut at, mut whole) = (0, 0);
        while let Ok(Some(frame)) = next_frame(&all[at..], u32::MAX) {
            at += frame.bytes.len();
            if at <= written {
                whole = at;
            }
            let Ok(packet) = Packet::decode(frame, version) else {
                panic!("the broker is about to write what is no packet: {frame:?}");
            };
            let receiver = &self.clients[client];
            let message = match &packet {
                Packet::PubAck(ack) | Packet::PubRec(ack) => {
                    receiver.outbound.message(ack.packet_id).copied()
                }
                _ => None,
            };
            if message.is_some_and(|id| self.is_denied(client, id)) {
                continue; // nothing of it is stored
            }
            let pending = receiver.pending.as_ref();
            self.oracle
                .check_leaving((client, link), &packet, pending, message);
        }
        self.links[link].begun = all[whole..written].to_vec();
    }

    pub(super) fn forget(&mut self, shard: usize, connection: ConnectionId) -> Option<usize> {
        let link = self.tables[shard]
            .get_mut(connection.index as usize)?
            .take()?;
        self.dirty.remove(&link);
        Some(link)
    }

    pub(super) fn open_at(&mut self, link: usize, shard: usize) {
        self.serial += 1;
        let table = &mut self.tables[shard];
        let index = table
            .iter()
            .position(Option::is_none)
            .unwrap_or(table.len());
        if index == table.len() {
            table.push(None);
        }
        table[index] = Some(link);
        let connection = ConnectionId {
            index: u32::try_from(index).expect("few"),
            serial: self.serial,
        };
        self.links[link].at = At::Shard(shard, connection);
        let peer = Peer::default();
        self.input(shard, Input::Opened { connection, peer });
    }

    /// Opens a connection on some shard.
    pub(crate) fn dial(&mut self, client: usize, terms: ConnectTerms) -> usize {
        let link = self.links.len();
        self.links.push(Link {
            client,
            version: self.clients[client].version,
            at: At::Moving,
            up: Vec::new(),
            down: Vec::new(),
            begun: Vec::new(),
            sealed: Vec::new(),
            used: true,
            admitted: false,
            terms,
            partial: Vec::new(),
            packets: VecDeque::new(),
            published: VecDeque::new(),
        });
        self.live.push(link);
        let shard = self.rng.below(self.shards.len());
        self.note(|| format!("client {client} opens link {link} at shard {shard}: {terms:?}"));
        self.clients[client].link = Some(link);
        self.open_at(link, shard);
        link
    }

    /// Puts what the client has ready on its way.
    pub(crate) fn flush(&mut self, client: usize) -> bool {
        let client = &mut self.clients[client];
        let Some(link) = client.link else {
            client.to_send.clear();
            client.to_send_messages.clear();
            return false;
        };
        let any = !client.to_send.is_empty();
        let link = &mut self.links[link];
        if link.at == At::Gone {
            client.to_send.clear();
            client.to_send_messages.clear();
            return false;
        }
        link.up.append(&mut client.to_send);
        link.published.extend(client.to_send_messages.drain(..));
        any
    }

    /// The client's side of the connection is gone, and what was on its way to it. The broker may
    /// learn of it later.
    pub(crate) fn cut(&mut self, client: usize) {
        let Some(link) = self.clients[client].link else {
            return;
        };
        self.note(|| format!("client {client} loses link {link}"));
        self.clients[client].lost();
        self.oracle.excuse(client, link);
        let keep = if self.links[link].admitted {
            self.rng.below(self.links[link].up.len() + 1)
        } else {
            0
        };
        let this = &mut self.links[link];
        this.used = false;
        this.down.clear();
        this.up.truncate(keep);
        if !(this.admitted && self.options.half_open) {
            self.hang_up(link);
        }
    }

    /// The client has said goodbye and closes behind it; what it had sent before may still arrive.
    pub(crate) fn leave(&mut self, client: usize) {
        let Some(link) = self.clients[client].link else {
            return;
        };
        self.clients[client].lost();
        self.oracle.excuse(client, link);
        self.links[link].used = false;
        self.links[link].down.clear();
        if !self.options.half_open {
            self.hang_up(link);
        }
    }

    /// Gives the broker what is left of a connection, and its end.
    pub(super) fn hang_up(&mut self, link: usize) {
        self.moves.retain(|(moving, ..)| *moving != link);
        self.admissions.retain(|waiting| *waiting != link);
        let wants = match self.links[link].at {
            At::Shard(shard, connection) => self.shards[shard].wants_input(connection),
            _ => false,
        };
        if !self.links[link].up.is_empty() && self.links[link].admitted && wants {
            let bytes = std::mem::take(&mut self.links[link].up);
            self.feed(link, &bytes);
        }
        if let At::Shard(shard, connection) = self.links[link].at {
            self.forget(shard, connection);
            self.links[link].at = At::Gone;
            let cause = CloseCause::Peer;
            self.input_of(link, shard, Input::Closed { connection, cause });
        }
        self.links[link].at = At::Gone;
    }

    pub(super) fn feed(&mut self, link: usize, bytes: &[u8]) {
        let At::Shard(shard, connection) = self.links[link].at else {
            return;
        };
        let this = &mut self.links[link];
        this.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut this.partial);
        let mut rest = partial.as_slice();
        while let Ok(Some(frame)) = next_frame(rest, u32::MAX) {
            this.packets.push_back(frame.bytes.to_vec());
            rest = &rest[frame.bytes.len()..];
        }
        this.partial = rest.to_vec();
        self.input_of(link, shard, Input::Received { connection, bytes });
        if !self.options.late_admission {
            self.admit();
        }
    }
}

fn number_of(client_id: &str) -> usize {
    client_id
        .strip_prefix('c')
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("nobody is called {client_id:?}"))
}
