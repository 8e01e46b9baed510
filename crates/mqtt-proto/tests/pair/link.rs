//! The packets of the model, and the link that carries them: in order, late, or not at all.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use unbroken_mqtt_proto::{PacketId, PacketType, QoS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What a packet says as far as sessions are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet {
    Connect {
        clean: bool,
        receive_maximum: u16,
    },
    ConnAck {
        session_present: bool,
        receive_maximum: u16,
    },
    Publish {
        dup: bool,
        qos: QoS,
        id: Option<PacketId>,
        number: u32,
    },
    PubAck(PacketId),
    PubRec {
        id: PacketId,
        refused: bool,
    },
    PubRel(PacketId),
    PubComp(PacketId),
}

impl Packet {
    pub(crate) fn packet_type(self) -> PacketType {
        match self {
            Self::Connect { .. } => PacketType::Connect,
            Self::ConnAck { .. } => PacketType::ConnAck,
            Self::Publish { .. } => PacketType::Publish,
            Self::PubAck(_) => PacketType::PubAck,
            Self::PubRec { .. } => PacketType::PubRec,
            Self::PubRel(_) => PacketType::PubRel,
            Self::PubComp(_) => PacketType::PubComp,
        }
    }
}

/// A connection has a number, so that what belongs to an earlier one is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Connection(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Link {
    delay: RangeInclusive<u64>,
    connection: Connection,
    up: bool,
    to_client: VecDeque<(u64, Packet)>,
    to_server: VecDeque<(u64, Packet)>,
}

impl Link {
    pub(crate) fn new(delay: RangeInclusive<u64>) -> Self {
        let (to_client, to_server) = Default::default();
        Self {
            delay,
            connection: Connection(0),
            up: false,
            to_client,
            to_server,
        }
    }

    pub(crate) fn open(&mut self) -> Connection {
        self.cut();
        self.up = true;
        self.connection.0 += 1;
        self.connection
    }

    /// What is under way is lost; neither side knows it yet.
    pub(crate) fn cut(&mut self) {
        self.up = false;
        self.to_client.clear();
        self.to_server.clear();
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        self.up.then_some(self.connection)
    }

    pub(crate) fn send(
        &mut self,
        on: Connection,
        to: Side,
        packet: Packet,
        now: u64,
        rng: &mut Rng,
    ) {
        if self.connection() == Some(on) {
            let due = now + rng.within(&self.delay);
            let queue = self.queue(to);
            let due = queue.back().map_or(due, |(earlier, _)| due.max(*earlier));
            queue.push_back((due, packet));
        }
    }

    pub(crate) fn take_due(&mut self, to: Side, now: u64) -> Option<Packet> {
        let queue = self.queue(to);
        queue
            .pop_front_if(|(due, _)| *due <= now)
            .map(|(_, packet)| packet)
    }

    fn queue(&mut self, to: Side) -> &mut VecDeque<(u64, Packet)> {
        match to {
            Side::Client => &mut self.to_client,
            Side::Server => &mut self.to_server,
        }
    }
}

/// SplitMix64: one number a step, the same history for the same seed.
#[derive(Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.next() % 1_000 < chance
    }
}
