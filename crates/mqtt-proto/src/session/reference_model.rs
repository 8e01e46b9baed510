//! The reference model of [`Outbound`]: the same promises over a plain list, compared after every
//! random step.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{AckError, Drained, Entry, Outbound, PubRec, Resend, Start};
use crate::{PacketId, QoS};

use QoS::{AtLeastOnce, AtMostOnce};

/// Everything in one list, oldest first; every question walks it.
struct Naive {
    entries: Vec<Begun>,
    receive_maximum: usize,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    id: PacketId,
    qos: QoS,
    message: u32,
    pubrec: bool,
    sent: bool,
    here: bool,
}

impl Naive {
    fn room(&self) -> bool {
        self.entries.iter().filter(|e| e.here).count() < self.receive_maximum
    }

    fn resending(&self) -> bool {
        self.entries.iter().any(|e| !e.here)
    }

    fn begin(&mut self, qos: QoS, message: u32, sent: bool, id: PacketId) {
        assert!(self.room() && !self.resending() && qos != AtMostOnce);
        assert!(self.entries.iter().all(|e| e.id != id), "{id} is in use");
        let entry = Begun {
            id,
            qos,
            message,
            pubrec: false,
            sent,
            here: true,
        };
        self.entries.push(entry);
    }

    fn begin_ahead(&mut self, qos: QoS, message: u32, id: PacketId) {
        assert!(qos != AtMostOnce && self.entries.iter().all(|e| e.id != id));
        let entry = Begun {
            id,
            qos,
            message,
            pubrec: false,
            sent: false,
            here: false,
        };
        self.entries.push(entry);
    }

    fn start(&mut self, id: PacketId) -> Start {
        let room = self.room();
        match self.entries.iter_mut().find(|e| !e.here) {
            Some(next) if next.id != id || next.sent => Start::Gone,
            None => Start::Gone,
            Some(_) if !room => Start::Wait,
            Some(next) => {
                next.here = true;
                Start::Send
            }
        }
    }

    fn find(&mut self, id: PacketId) -> Result<usize, AckError> {
        let at = self.entries.iter().position(|e| e.id == id && e.sent);
        at.ok_or(AckError::Unknown)
    }

    fn puback(&mut self, id: PacketId) -> Result<u32, AckError> {
        let at = self.find(id)?;
        match self.entries[at].qos {
            AtLeastOnce => Ok(self.entries.remove(at).message),
            _ => Err(AckError::WrongQoS),
        }
    }

    fn pubrec(&mut self, id: PacketId, error: bool) -> Result<PubRec<u32>, AckError> {
        let at = self.find(id)?;
        let entry = &mut self.entries[at];
        match *entry {
            Begun {
                qos: AtLeastOnce, ..
            } => Err(AckError::WrongQoS),
            Begun { pubrec: true, .. } => Ok(PubRec::SendPubRel(None)),
            _ if error => Ok(PubRec::Ended(self.entries.remove(at).message)),
            Begun { message, .. } => {
                (entry.pubrec, entry.here) = (true, true);
                Ok(PubRec::SendPubRel(Some(message)))
            }
        }
    }

    fn pubcomp(&mut self, id: PacketId) -> Result<(), AckError> {
        let at = self.find(id)?;
        match self.entries[at] {
            Begun {
                qos: AtLeastOnce, ..
            } => Err(AckError::WrongQoS),
            Begun { pubrec: false, .. } => Err(AckError::TooEarly),
            _ => {
                self.entries.remove(at);
                Ok(())
            }
        }
    }

    fn forget(&mut self, id: PacketId) -> Option<u32> {
        let at = self.entries.iter().position(|e| e.id == id && !e.pubrec)?;
        Some(self.entries.remove(at).message)
    }

    fn let_go(&mut self, id: PacketId) -> Option<u32> {
        let may_be_theirs = |e: &&mut Begun| e.id == id && e.sent && !e.pubrec;
        let entry = self.entries.iter_mut().find(may_be_theirs)?;
        entry.pubrec = entry.qos != AtLeastOnce;
        entry.pubrec.then_some(entry.message)
    }

    fn mark_sent(&mut self, id: PacketId) -> Option<u32> {
        let entry = self
            .entries
            .iter_mut()
            .find(|e| e.id == id && !e.sent && e.here)?;
        entry.sent = true;
        Some(entry.message)
    }

    fn resend(&mut self) -> Option<Begun> {
        let room = self.room();
        let entry = self.entries.iter_mut().find(|e| !e.here).filter(|_| room)?;
        let resent = *entry;
        (entry.sent, entry.here) = (true, true);
        Some(resent)
    }

    fn disconnected(&mut self) {
        self.entries.iter_mut().for_each(|e| e.here = false);
    }

    fn stored(&self) -> Vec<Entry<u32>> {
        let entry = |e: &Begun| match *e {
            Begun {
                id, pubrec: true, ..
            } => Entry::PubRel { id },
            Begun {
                id, qos, message, ..
            } => Entry::Publish { id, qos, message },
        };
        self.entries.iter().map(entry).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin {
        qos: u8,
        sent: bool,
    },
    BeginAhead {
        qos: u8,
    },
    Start(Index),
    PubAck(Index),
    PubRec(Index, bool),
    PubComp(Index),
    /// An acknowledgement of an id that may or may not be in use.
    Stray(u16),
    MarkSent(Index),
    Forget(Index),
    LetGo(Index),
    Resend,
    Reconnect {
        receive_maximum: u16,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<Index>;
    prop_oneof![
        8 => (0..=2_u8, any::<bool>()).prop_map(|(qos, sent)| Step::Begin { qos, sent }),
        2 => (0..=2_u8).prop_map(|qos| Step::BeginAhead { qos }),
        4 => which().prop_map(Step::Start),
        4 => which().prop_map(Step::PubAck),
        4 => (which(), prop::bool::weighted(0.2)).prop_map(|(at, error)| Step::PubRec(at, error)),
        4 => which().prop_map(Step::PubComp),
        1 => (1..=40_u16).prop_map(Step::Stray),
        3 => which().prop_map(Step::MarkSent),
        1 => which().prop_map(Step::Forget),
        1 => which().prop_map(Step::LetGo),
        8 => Just(Step::Resend),
        1 => (1..=6_u16).prop_map(|receive_maximum| Step::Reconnect { receive_maximum }),
        1 => Just(Step::Restart),
    ]
}

fn stored(outbound: &Outbound<u32>) -> Vec<Entry<u32>> {
    let owned = |entry: Entry<&u32>| match entry {
        Entry::Publish { id, qos, message } => Entry::Publish {
            id,
            qos,
            message: *message,
        },
        Entry::PubRel { id } => Entry::PubRel { id },
    };
    outbound.iter().map(owned).collect()
}

fn check_resend(real: &mut Outbound<u32>, naive: &mut Naive) {
    match (real.poll_resend(), naive.resend()) {
        (None, None) => {}
        (Some(Resend::PubRel { id }), Some(sent)) => {
            assert!(sent.pubrec);
            assert_eq!(id, sent.id);
        }
        (
            Some(Resend::Publish {
                id,
                qos,
                dup,
                message,
            }),
            Some(sent),
        ) => {
            assert!(!sent.pubrec);
            assert_eq!(
                (id, qos, dup, *message),
                (sent.id, sent.qos, sent.sent, sent.message)
            );
        }
        (real, naive) => panic!("{real:?} where {naive:?} was to be sent again"),
    }
}

fn check_step(real: &mut Outbound<u32>, naive: &mut Naive, number: u32, step: Step) {
    let pick = |at: Index, naive: &Naive| {
        let entries = &naive.entries;
        if entries.is_empty() {
            PacketId::FIRST
        } else {
            at.get(entries).id
        }
    };
    match step {
        Step::Begin { qos, sent } => {
            let qos = QoS::try_from(qos).unwrap();
            let open = naive.room() && !naive.resending() && qos != AtMostOnce;
            let begun = if sent {
                real.begin(qos, number)
            } else {
                real.begin_unsent(qos, number)
            };
            match begun {
                Ok(id) => naive.begin(qos, number, sent, id),
                Err(message) => assert!(!open && message == number),
            }
        }
        Step::BeginAhead { qos } => {
            let qos = QoS::try_from(qos).unwrap();
            match real.begin_ahead(qos, number) {
                Ok(id) => naive.begin_ahead(qos, number, id),
                Err(message) => assert!(qos == AtMostOnce && message == number),
            }
        }
        Step::Start(at) => {
            let id = pick(at, naive);
            assert_eq!(real.start(id), naive.start(id));
        }
        Step::PubAck(at) => {
            let id = pick(at, naive);
            assert_eq!(real.handle_puback(id), naive.puback(id));
        }
        Step::PubRec(at, error) => {
            let id = pick(at, naive);
            assert_eq!(real.handle_pubrec(id, error), naive.pubrec(id, error));
        }
        Step::PubComp(at) => {
            let id = pick(at, naive);
            assert_eq!(real.handle_pubcomp(id), naive.pubcomp(id));
        }
        Step::Stray(number) => {
            let id = PacketId::new(number).unwrap();
            assert_eq!(real.handle_puback(id), naive.puback(id));
            assert_eq!(real.handle_pubcomp(id), naive.pubcomp(id));
        }
        Step::MarkSent(at) => {
            let id = pick(at, naive);
            assert_eq!(real.mark_sent(id).copied(), naive.mark_sent(id));
        }
        Step::Forget(at) => {
            let id = pick(at, naive);
            assert_eq!(real.forget(id), naive.forget(id));
        }
        Step::LetGo(at) => {
            let id = pick(at, naive);
            assert_eq!(real.let_go(id), naive.let_go(id));
        }
        Step::Resend => check_resend(real, naive),
        Step::Reconnect { receive_maximum } => {
            real.handle_disconnected();
            real.set_receive_maximum(receive_maximum);
            naive.disconnected();
            naive.receive_maximum = usize::from(receive_maximum);
        }
        Step::Restart => {
            *real = Outbound::restore(stored(real)).unwrap();
            real.set_receive_maximum(4);
            naive.disconnected();
            naive.entries.iter_mut().for_each(|e| e.sent = true);
            naive.receive_maximum = 4;
        }
    }
    check_state(real, naive);
}

fn check_state(real: &Outbound<u32>, naive: &Naive) {
    assert_eq!(real.inflight(), naive.entries.len());
    assert_eq!(real.resending(), naive.resending());
    assert_eq!(real.window_open(), naive.room() && !naive.resending());
    assert_eq!(stored(real), naive.stored());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-3.3.4-9] [MQTT-3.3.1-1] [MQTT311-4.4.0-1]
    // [MQTT311-4.6.0-1]
    #[test]
    fn outbound_matches_its_reference_model(steps in prop::collection::vec(step(), 0..200)) {
        let mut real = Outbound::new();
        let mut naive = Naive { entries: Vec::new(), receive_maximum: usize::from(u16::MAX) };
        for (number, step) in (0..).zip(steps) {
            check_step(&mut real, &mut naive, number, step);
        }
        let parts = |Drained { qos, sent, message }| (qos, sent, message);
        let drained: Vec<_> = real.drain().map(parts).collect();
        let left = naive.entries.iter().filter(|e| !e.pubrec);
        prop_assert_eq!(drained, left.map(|e| (e.qos, e.sent, e.message)).collect::<Vec<_>>());
        prop_assert!(real.inflight() == 0 && real.window_open());
    }
}
