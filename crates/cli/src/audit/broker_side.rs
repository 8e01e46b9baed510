//! What a broker says of itself, where it keeps account: the verdict of `$SYS/audit/`, and windows,
//! states, faults and receipts of lanes and the accounts of sessions under `$audit/`. A value that
//! takes messages.
//!
//! Nothing under `$audit/` is believed of a broker without the verdict: elsewhere any client may
//! publish there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};
use unbroken_merkle_log::LaneId;
use unbroken_mqtt_proto::{Escaped, SubscriptionFilter, TopicName};

/// Epochs of lanes that are remembered, about 300 bytes each. What is said of others is left alone.
const LANES_MAX: usize = 65_536;
/// Accounts that are remembered, about 200 bytes each.
const ACCOUNTS_MAX: usize = 65_536;

/// Words of lanes that are not heard, in case they are later; about 300 bytes each. The oldest are
/// left out.
const UNHEARD_MAX: usize = 1_024;

/// What is said of a loss in a lane without a key.
pub(super) const MAY_BE_FORGED: &str =
    "the lane has no key, so a checkpoint or a message about it may be forged";

/// What the broker has said.
#[derive(Debug, Default)]
pub(crate) struct BrokerSide {
    /// The sentence over everything. `None`: it keeps no account, or has not said so.
    verdict: Option<String>,
    lanes: BTreeMap<Key, Said>,
    /// By client.
    accounts: BTreeMap<String, Account>,
    /// The client that listens, whose account counts only deliveries to it.
    listener: String,
    /// What it says counts only of these; of all, if there are none.
    heard: Option<Heard>,
    /// The topics are some of those that the lanes go to.
    part: bool,
    news: Vec<Word>,
}

/// An epoch of a lane; none, where it says something of a lane in any epoch.
type Key = (LaneId, Option<u64>);

/// What is listened to. A fault that tells its topic counts by that, and everything else by its
/// lane.
#[derive(Debug, Default)]
struct Heard {
    topics: Vec<String>,
    lanes: BTreeSet<LaneId>,
}

/// What it is asked for beside lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// What became of each message.
    Receipts,
    /// How far the deliveries of each session have come.
    Accounts,
}

/// How far the deliveries to one client have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    connected: bool,
    received: u64,
    stored: u64,
    /// At QoS 0.
    to_network: u64,
    sent: u64,
    acknowledged: u64,
    processed: u64,
    waiting: u64,
    dropped: u64,
}

/// What it has said of one epoch of a lane: one that a publisher numbers itself, or one in which
/// the broker numbers what a client publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    proven: u64,
    faulty: u64,
    unproven: u64,
    /// Numbers before the first one that it judges.
    out_of_scope: u64,
    /// Messages with a fault of which it did not tell the topic.
    faults: u64,
    /// On the topics that are listened to.
    faults_here: u64,
    /// On others.
    faults_elsewhere: u64,
    /// Messages that it did not take in, and said why.
    refused: u64,
    /// How often another client sent what only the lane's owner does, and the first such client.
    intruded: Option<(u64, String)>,
    /// The state as last published: messages, and what became of their deliveries.
    state: Option<State>,
    /// Its publisher numbers it itself.
    stamps_itself: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    word: String,
    messages: u64,
    /// Of those, the ones that its rules left out.
    left_out: u64,
    /// What it owed for them; it does not say of lanes that publishers number themselves.
    expected: Option<u64>,
    acknowledged: u64,
    /// At QoS 0.
    to_network: u64,
    dropped: u64,
}

/// One thing that it has said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    lane: LaneId,
    /// `window`, `fault`, `refused` or `receipt`.
    what: &'static str,
    text: Map<String, Value>,
    /// Whether its topic is listened to, if it tells one.
    is_here: Option<bool>,
}

impl BrokerSide {
    /// The topic of its sentence.
    pub(crate) const VERDICT: &str = "$SYS/audit/verdict";

    /// What to subscribe to. There is a receipt for each message and an account for each session,
    /// so only a listener that needs them asks.
    pub(crate) fn topics(more: Option<More>) -> Vec<&'static str> {
        let mut topics = vec![
            Self::VERDICT,
            "$audit/+/window",
            "$audit/+/state",
            "$audit/+/fault",
            "$audit/+/refused",
        ];
        topics.extend(more.map(|more| match more {
            More::Receipts => "$audit/+/receipt",
            More::Accounts => "$audit/account/#",
        }));
        topics
    }

    /// What a client has been told, which has this id.
    pub(crate) fn told_to(listener: String) -> Self {
        Self {
            listener,
            ..Self::default()
        }
    }

    /// From now on only what it says of these topics, and of lanes that are [heard](Self::hear),
    /// counts.
    pub(crate) fn only_of(&mut self, topics: &[String]) {
        let heard = self.heard.get_or_insert_default();
        heard.topics.extend_from_slice(topics);
    }

    /// The topics that count are some of those that the lanes go to: a fault that tells no topic
    /// may be on another one.
    pub(crate) fn expect_part(&mut self) {
        self.part = true;
    }

    /// Whether what it says counts of all topics.
    pub(crate) fn hears_all(&self) -> bool {
        self.heard.is_none()
    }

    /// Takes it that a lane is heard.
    pub(crate) fn hear(&mut self, lane: LaneId) {
        if let Some(heard) = &mut self.heard {
            heard.lanes.insert(lane);
        }
    }

    /// Takes what came. What cannot be read is left alone: a later broker may say more.
    pub(crate) fn take(&mut self, topic: &str, payload: &[u8]) {
        if topic == Self::VERDICT {
            self.verdict = Some(String::from_utf8_lossy(payload).into_owned());
            return;
        }
        let words = topic
            .strip_prefix("$audit/")
            .and_then(|rest| rest.split_once('/'));
        let (Some((lane, what)), Ok(Value::Object(text))) =
            (words, serde_json::from_slice(payload))
        else {
            return;
        };
        if lane == "account" {
            return self.take_account(what, &text);
        }
        let Some(lane) = u64::from_str_radix(lane, 16).ok().and_then(LaneId::new) else {
            return;
        };
        let key = (lane, text.get("epoch").and_then(Value::as_u64));
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&key) {
            return;
        }
        let topic = text.get("topic").and_then(Value::as_str);
        let is_here = topic.and_then(|topic| Some(self.heard.as_ref()?.includes(topic)));
        let said = self.lanes.entry(key).or_default();
        let Some(what) = said.take(what, &text, is_here) else {
            return;
        };
        let is_here = is_here.filter(|_| what == "fault");
        self.news.push(Word {
            lane,
            what,
            text,
            is_here,
        });
    }

    fn take_account(&mut self, client: &str, text: &Map<String, Value>) {
        if text.get("session") != Some(&Value::Bool(true)) || client == self.listener {
            self.accounts.remove(client);
            return;
        }
        let is_new = !self.accounts.contains_key(client);
        if is_new && self.accounts.len() >= ACCOUNTS_MAX {
            return;
        }
        let number = |name: &str| text.get(name).and_then(Value::as_u64).unwrap_or_default();
        let dropped = text.get("dropped").and_then(Value::as_object);
        let dropped = dropped.into_iter().flat_map(Map::values);
        let account = Account {
            connected: text.get("connected") == Some(&Value::Bool(true)),
            received: number("expected"),
            stored: number("stored"),
            to_network: number("handed_to_network"),
            sent: number("sent"),
            acknowledged: number("acknowledged"),
            processed: number("processed"),
            // What waits on its disk was not read, so it is in no other figure.
            waiting: number("waiting") + number("on_disk"),
            dropped: dropped.filter_map(Value::as_u64).sum(),
        };
        self.accounts.insert(client.to_owned(), account);
    }

    /// The accounts of all sessions that it has told of.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&str, &Account)> {
        let is_believed = self.verdict.is_some();
        let accounts = self.accounts.iter().filter(move |_| is_believed);
        accounts.map(|(client, account)| (&**client, account))
    }

    /// The sentence over everything; `None` of a broker that keeps no account.
    pub(crate) fn verdict(&self) -> Option<&str> {
        self.verdict.as_deref()
    }

    /// What it has said of this lane and epoch.
    pub(crate) fn lane(&self, lane: LaneId, epoch: u32) -> Option<&Said> {
        let key = (lane, Some(u64::from(epoch)));
        let said = self.lanes.get(&key);
        said.filter(|_| self.verdict.is_some())
    }

    /// All epochs of lanes that it has said something of.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (Key, &Said)> {
        let is_believed = self.verdict.is_some();
        let lanes = self.lanes.iter().filter(move |_| is_believed);
        lanes.map(|(key, said)| (*key, said))
    }

    /// Those of lanes of which its word counts.
    fn counting(&self) -> impl Iterator<Item = &Said> {
        let heard = self.heard.as_ref();
        let counts = move |lane| heard.is_none_or(|heard| heard.lanes.contains(&lane));
        let lanes = self.lanes().filter(move |((lane, _), _)| counts(*lane));
        lanes.map(|(_, said)| said)
    }

    /// Whether it has named a fault.
    pub(crate) fn found_faults(&self) -> bool {
        let counts = !self.may_be_elsewhere();
        (counts && self.counting().any(|said| said.faults > 0))
            || self.lanes().any(|(_, said)| said.faults_here > 0)
    }

    /// Lanes in which it names an intruder: how often, and the first one.
    pub(crate) fn intruded(&self) -> impl Iterator<Item = (Key, u64, &str)> {
        self.lanes().filter_map(|(key, said)| {
            let (times, client) = said.intruded.as_ref()?;
            Some((key, *times, client.as_str()))
        })
    }

    /// Faults without a topic, of lanes that go to other topics, too.
    pub(crate) fn faults_perhaps_elsewhere(&self) -> u64 {
        let faults = self.counting().map(|said| said.faults);
        if self.may_be_elsewhere() {
            faults.sum()
        } else {
            0
        }
    }

    fn may_be_elsewhere(&self) -> bool {
        self.part && !self.hears_all()
    }

    /// Whether it has said of any lane how its messages fare.
    pub(crate) fn has_judged(&self) -> bool {
        self.counting().any(Said::is_judged)
    }

    /// What it has said since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<Word> {
        if self.verdict.is_none() {
            // It may still come; a broker that tells lanes tells it within seconds.
            self.news.truncate(LANES_MAX);
            return Vec::new();
        }
        let Some(heard) = &self.heard else {
            return std::mem::take(&mut self.news);
        };
        // Of the others the lane may still turn up.
        self.news.retain(|word| word.is_here != Some(false));
        let counts =
            |word: &mut Word| word.is_here == Some(true) || heard.lanes.contains(&word.lane);
        let news = self.news.extract_if(.., counts).collect();
        let excess = self.news.len().saturating_sub(UNHEARD_MAX);
        self.news.drain(..excess);
        news
    }
}

impl Heard {
    /// Whether messages on this topic are listened to.
    fn includes(&self, topic: &str) -> bool {
        let Ok(topic) = TopicName::parse(topic) else {
            return false;
        };
        self.topics
            .iter()
            .any(|filter| match SubscriptionFilter::parse(filter) {
                Ok(
                    SubscriptionFilter::Plain(filter) | SubscriptionFilter::Shared { filter, .. },
                ) => filter.matches(topic),
                Err(_) => false,
            })
    }
}

impl Account {
    pub(crate) const HEAD: &str = "  RECEIVED     STORED  TO NETWORK       SENT  ACKNOWLEDGED  \
                                   PROCESSED  WAITING  DROPPED  CLIENT";

    pub(crate) fn to_json(&self, client: &str) -> Value {
        json!({
            "client": client, "connected": self.connected, "received": self.received,
            "stored": self.stored, "handed_to_network": self.to_network, "sent": self.sent, "acknowledged": self.acknowledged,
            "processed": self.processed, "waiting": self.waiting, "dropped": self.dropped,
        })
    }

    /// A line under [`Account::HEAD`].
    pub(crate) fn line(&self, client: &str) -> String {
        let away = if self.connected { "" } else { " (away)" };
        format!(
            "{:>10} {:>10} {:>11} {:>10} {:>13} {:>10} {:>8} {:>8}  {}{away}",
            self.received,
            self.stored,
            self.to_network,
            self.sent,
            self.acknowledged,
            self.processed,
            self.waiting,
            self.dropped,
            Escaped::new(client)
        )
    }
}

impl Said {
    /// Takes one thing that it said. Returns its name, if it is news.
    fn take(
        &mut self,
        what: &str,
        text: &Map<String, Value>,
        is_here: Option<bool>,
    ) -> Option<&'static str> {
        let number = |name: &str| text.get(name).and_then(Value::as_u64).unwrap_or_default();
        let word = |name: &str| text.get(name).and_then(Value::as_str).unwrap_or_default();
        // Of a lane in which it numbers messages itself it says none of these.
        let own_words = match what {
            "window" => "issued",
            "state" => "client",
            _ => "words",
        };
        self.stamps_itself |= what != "receipt" && text.contains_key(own_words);
        match what {
            "window" => {
                match word("state") {
                    "proven" => self.proven += 1,
                    "faulty" => self.faulty += 1,
                    _ => self.unproven += 1,
                }
                self.out_of_scope = number("out_of_scope");
                Some("window")
            }
            // Another client did that, and this lane's verdict is as it was.
            "fault" if word("kind") == "intruded" => {
                let (times, _) = self
                    .intruded
                    .get_or_insert_with(|| (0, word("client").to_owned()));
                *times += number("count").max(1);
                Some("fault")
            }
            "fault" => {
                *match is_here {
                    None => &mut self.faults,
                    Some(true) => &mut self.faults_here,
                    Some(false) => &mut self.faults_elsewhere,
                } += match word("kind") {
                    // At least one of so many.
                    "root-differs" | "forged" => 1,
                    _ => number("count").max(1),
                };
                Some("fault")
            }
            "refused" => {
                self.refused += number("count").max(1);
                Some("refused")
            }
            "state" => {
                let dropped = text.get("dropped").and_then(Value::as_object);
                let dropped = dropped.into_iter().flat_map(Map::values);
                self.out_of_scope = number("out_of_scope");
                self.state = Some(State {
                    word: word("state").to_owned(),
                    messages: number("messages"),
                    left_out: number("left_out"),
                    expected: text.get("expected").and_then(Value::as_u64),
                    acknowledged: number("acknowledged"),
                    to_network: number("handed_to_network"),
                    dropped: dropped.filter_map(Value::as_u64).sum(),
                });
                None
            }
            "receipt" => Some("receipt"),
            _ => None,
        }
    }

    /// Whether its publisher numbers it itself.
    pub(crate) fn stamps_itself(&self) -> bool {
        self.stamps_itself
    }

    fn is_judged(&self) -> bool {
        let of_state = self.state.as_ref().map_or(0, |state| state.messages);
        self.proven + self.faulty + self.unproven + of_state > 0
    }

    pub(crate) fn to_json(&self) -> Value {
        let state = self.state.as_ref().map(|state| {
            json!({
                "state": state.word, "messages": state.messages, "left_out": state.left_out,
                "expected": state.expected,
                "acknowledged": state.acknowledged, "handed_to_network": state.to_network,
                "dropped": state.dropped,
            })
        });
        json!({
            "proven": self.proven, "faulty": self.faulty, "unproven": self.unproven,
            "out_of_scope": self.out_of_scope, "faults": self.faults + self.faults_here,
            "faults_elsewhere": self.faults_elsewhere, "refused": self.refused, "state": state,
        })
    }
}

/// "2 windows proven, 1 faulty, 3 faults; 120 messages, 240 of 240 acknowledged; proven".
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows = [
            (self.proven, "proven"),
            (self.faulty, "faulty"),
            (self.unproven, "unproven"),
        ];
        let told = windows.iter().filter(|(count, _)| *count > 0);
        let mut parts: Vec<_> = told
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if !parts.is_empty() {
            parts = vec![format!("windows: {}", parts.join(", "))];
        }
        if self.out_of_scope > 0 {
            let below = self.out_of_scope;
            parts.push(format!("{below} OUT OF SCOPE"));
            if self.proven > 0 && self.faults + self.faults_here == 0 {
                parts.push(format!("proven from {below}"));
            }
        }
        let faults = self.faults + self.faults_here;
        if faults > 0 {
            parts.push(format!("{faults} faults"));
        }
        if self.faults_elsewhere > 0 {
            parts.push(format!("{} faults on other topics", self.faults_elsewhere));
        }
        if self.refused > 0 {
            parts.push(format!("{} refused by name", self.refused));
        }
        if let Some(state) = &self.state {
            let (messages, acknowledged) = (state.messages, state.acknowledged);
            parts.push(match state.expected {
                Some(expected) => {
                    format!("{messages} messages, {acknowledged} of {expected} acknowledged")
                }
                None => format!("{messages} messages"),
            });
            if state.to_network > 0 {
                parts.push(format!("{} handed to the network", state.to_network));
            }
            if state.left_out > 0 {
                parts.push(format!("{} left out by rules", state.left_out));
            }
            if state.dropped > 0 {
                parts.push(format!("{} dropped by name", state.dropped));
            }
            parts.push(state.word.clone());
        }
        f.write_str(&parts.join("; "))
    }
}

impl Word {
    /// As the broker wrote it, and that it was the broker.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "by": "broker", self.what: self.text })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |name: &str| {
            self.text
                .get(name)
                .and_then(Value::as_u64)
                .unwrap_or_default()
        };
        let word = |name: &str| self.text.get(name).and_then(Value::as_str).unwrap_or("?");
        let client = Escaped::new(word("client"));
        write!(f, "broker: lane {}: ", word("lane"))?;
        let first = number("first");
        match self.what {
            "window" => {
                let last = number("size").saturating_sub(1);
                write!(f, "numbers {first} to {last} {}", word("state"))
            }
            "receipt" => write!(f, "number {}: {}", number("number"), word("words")),
            "refused" => write!(f, "{}, client {}", word("words"), client),
            _ => {
                let (kind, place) = (word("kind"), word("place"));
                match number("count") {
                    0 | 1 => write!(f, "number {first} {kind}: {place}, client {client}")?,
                    count => write!(
                        f,
                        "numbers {first} to {} {kind}: {place}, client {client}",
                        first.saturating_add(count - 1)
                    )?,
                }
                // The broker judges lanes without a key only.
                if kind == "lost" && place == "before the broker" {
                    write!(f, "; {MAY_BE_FORGED}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
