//! The receiving end of a hop: it judges what comes, names what is wrong, and asks for what is
//! missing.
//!
//! Two ledgers: one of the lanes whose messages come here, which asks their producers for repair;
//! one of the lanes those messages were made from, which proves the whole way and asks nobody. A
//! value: messages go in, and what to send, what became known and what may be used comes out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use unbroken_client::{Message, QoS, Received};
use unbroken_merkle_log::ledger::{Answer, Event, Join, Ledger, LedgerLimits, Verdict};
use unbroken_merkle_log::{Checkpoint, DropRecord, Epoch, Hasher, LaneId, Property};

use crate::fault::{Fault, Kind, Place};
use crate::limits::ASK_AGAIN;
use crate::news::News;
use crate::stamper::{ANSWER, ORIGIN, StampError, TOPIC};

/// Checks what one receiver receives.
#[derive(Debug)]
pub struct Checker {
    hasher: Hasher,
    prefix: String,
    answer_topic: String,
    own: Ledger<Hasher>,
    origins: Ledger<Hasher>,
    asked: BTreeMap<LaneId, Duration>,
    news: Vec<News>,
    unstamped: u64,
}

/// A message that may be used: it is what its sender sent, and comes for the first time.
#[derive(Clone, Debug)]
pub struct Good {
    /// The topic that it was published on.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Its own stamp.
    pub audit: Property,
    /// Its own stamp and those before it as text, oldest first: what an output made from it
    /// passes on.
    pub stamps: Vec<String>,
    /// The first of its stamps: that of the producer at the head of the line.
    pub first: Property,
}

impl Checker {
    /// Nothing has come yet. `token` is what the asker's own answer topic ends in.
    pub fn new(prefix: &str, token: &str) -> Self {
        let ledger = || Ledger::new(Hasher::xxh3(), LedgerLimits::default(), Join::Beginning);
        Self {
            hasher: Hasher::xxh3(),
            prefix: prefix.to_owned(),
            answer_topic: format!("{prefix}/answer/{token}"),
            own: ledger(),
            origins: ledger(),
            asked: BTreeMap::new(),
            news: Vec::new(),
            unstamped: 0,
        }
    }

    /// What to subscribe to beside the messages.
    pub fn topics(&self) -> [String; 3] {
        let prefix = &self.prefix;
        [
            format!("{prefix}/checkpoint/+"),
            format!("{prefix}/drop/+"),
            self.answer_topic.clone(),
        ]
    }

    /// Messages that bore no stamp, or not exactly one that can be read.
    pub fn unstamped(&self) -> u64 {
        self.unstamped
    }

    /// Takes whatever was received. A message comes back if it may be used.
    pub fn take(&mut self, received: &Received, now: Duration) -> Option<Good> {
        let topic = received.topic();
        let beneath = topic
            .strip_prefix(&self.prefix)
            .and_then(|rest| rest.strip_prefix('/'));
        let good = match beneath.and_then(|rest| rest.split_once('/')) {
            Some(("checkpoint", _)) => {
                self.checkpoint(received.payload(), now);
                None
            }
            Some(("drop", _)) => {
                self.dropped(received.payload(), now);
                None
            }
            Some(("answer", _)) => {
                if let Some(lane) = received.user_property(ANSWER) {
                    self.answered(lane, received.payload());
                    None
                } else {
                    let original = received.user_property(TOPIC)?.to_owned();
                    self.message(&original, received, now)
                }
            }
            _ => self.message(topic, received, now),
        };
        self.collect();
        good
    }

    /// Lets time pass; `settled` while connected with nothing left to read. What is to be asked
    /// now.
    pub fn poll(&mut self, settled: bool, now: Duration) -> Result<Vec<Message>, StampError> {
        for ledger in [&mut self.own, &mut self.origins] {
            if settled {
                ledger.resume(now);
            } else {
                ledger.pause(now);
            }
            ledger.poll(now);
        }
        self.collect();
        let mut requests = Vec::new();
        for (lane, epoch, request) in self.own.requests() {
            let latest = self.asked.get(&lane);
            if latest.is_some_and(|asked| *asked < now && now < *asked + ASK_AGAIN) {
                continue;
            }
            self.asked.insert(lane, now);
            let mut bytes = Vec::new();
            request.encode(epoch, &mut bytes);
            let message = Message::new(format!("{}/repair/{lane}", self.prefix), bytes)?
                .qos(QoS::AtLeastOnce)
                .response_topic(&self.answer_topic)?;
            requests.push(message);
        }
        Ok(requests)
    }

    /// What became known since the last call.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    fn message(&mut self, topic: &str, received: &Received, now: Duration) -> Option<Good> {
        let stamps: Vec<&str> = received.user_properties(Property::NAME).collect();
        let audit = match stamps[..] {
            [stamp] => Property::parse_text(stamp).ok(),
            _ => None,
        };
        let Some(audit) = audit else {
            self.unstamped += 1;
            return None;
        };
        let payload = received.payload();
        let verdict = self.own.message(&audit, topic.as_bytes(), payload, now);
        let place = Place::from(&audit);
        if let Some(kind) = named(verdict) {
            let fault = Fault { kind, place };
            self.news.push(News::Fault { fault, own: true });
        }
        if matches!(verdict, Verdict::Repaired | Verdict::Found) {
            self.news.push(News::Repaired(place));
        }
        let may_be_used = matches!(
            verdict,
            Verdict::InOrder
                | Verdict::Ahead
                | Verdict::Late
                | Verdict::Found
                | Verdict::Repaired
                | Verdict::OutOfScope
        );
        if !may_be_used {
            return None;
        }
        let mut passed_on = Vec::new();
        let mut first = audit;
        for (at, text) in received.user_properties(ORIGIN).enumerate() {
            let Ok(origin) = Property::parse_text(text) else {
                continue;
            };
            if at == 0 {
                first = origin;
            }
            let verdict = self.origins.origin(&origin, now);
            if let Some(kind) = named(verdict) {
                let place = Place::from(&origin);
                let fault = Fault { kind, place };
                self.news.push(News::Fault { fault, own: false });
            }
            passed_on.push(text.to_owned());
        }
        passed_on.push(audit.to_text());
        Some(Good {
            topic: topic.to_owned(),
            payload: payload.to_vec(),
            audit,
            stamps: passed_on,
            first,
        })
    }

    /// A checkpoint is for whichever ledger knows the lane.
    fn checkpoint(&mut self, payload: &[u8], now: Duration) {
        let opened = Checkpoint::parse(payload).and_then(|sealed| sealed.open(&self.hasher));
        let Ok(checkpoint) = opened else {
            self.unstamped += 1;
            return;
        };
        let lane = (checkpoint.lane, checkpoint.epoch);
        for ledger in [&mut self.own, &mut self.origins] {
            if ledger.lane(lane.0, lane.1).is_some() {
                ledger.checkpoint(&checkpoint, now);
            }
        }
    }

    /// A drop record is of a message that went no further, so it says nothing to those who have
    /// the lane's messages themselves: a processor hears its own records, and its neighbours'.
    fn dropped(&mut self, payload: &[u8], now: Duration) {
        let opened = DropRecord::parse(payload).and_then(|sealed| sealed.open(&self.hasher));
        let Ok(record) = opened else {
            self.unstamped += 1;
            return;
        };
        if self.own.lane(record.lane, record.epoch).is_none() {
            self.origins.dropped(&record, now);
        }
    }

    fn answered(&mut self, lane: &str, payload: &[u8]) {
        let lane = u64::from_str_radix(lane, 16).ok().and_then(LaneId::new);
        let answer = lane.and_then(|lane| {
            let algorithm = unbroken_merkle_log::Digest::algorithm(&self.hasher);
            let (epoch, answer): (Epoch, Answer) = Answer::parse(algorithm, payload).ok()?;
            Some((lane, epoch, answer))
        });
        // A refused answer leaves the question open, and it is asked again.
        let taken = answer
            .is_some_and(|(lane, epoch, answer)| self.own.answer(lane, epoch, &answer).is_ok());
        if !taken {
            self.unstamped += 1;
        } else if let Some(lane) = lane {
            // The second question of a descent need not wait.
            self.asked.remove(&lane);
        }
    }

    fn collect(&mut self) {
        for (ledger, own) in [(&mut self.own, true), (&mut self.origins, false)] {
            for (lane, epoch, event) in ledger.take_events() {
                let mut name = |kind, numbers: Range<u64>| {
                    self.news.extend(numbers.map(|number| News::Fault {
                        fault: Fault {
                            kind,
                            place: Place {
                                lane,
                                epoch,
                                number,
                            },
                        },
                        own,
                    }));
                };
                match event {
                    Event::Lost { numbers, .. } => name(Kind::Lost, numbers),
                    Event::Moved(moved) => name(Kind::Reordered, moved.numbers),
                    Event::Forged(numbers) => name(Kind::Forged, numbers),
                    Event::Injected { number, .. } => name(Kind::Injected, number..number + 1),
                    Event::Window { numbers, state, .. } => self.news.push(News::Window {
                        lane,
                        numbers,
                        state,
                    }),
                    _ => {}
                }
            }
        }
    }
}

/// The fault that a verdict is.
fn named(verdict: Verdict) -> Option<Kind> {
    match verdict {
        Verdict::Duplicate => Some(Kind::Duplicated),
        Verdict::Altered => Some(Kind::Altered),
        Verdict::Injected | Verdict::Conflict => Some(Kind::Injected),
        _ => None,
    }
}
