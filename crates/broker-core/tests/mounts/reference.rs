//! Random clients, filters and topics beside a twin that only puts mounts in front of texts and
//! takes them off.

use super::*;
use unbroken_mqtt_proto::{SubscriptionFilter, TopicName};

/// The same everywhere (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }

    /// One to three levels.
    fn levels(&mut self, words: &[&str]) -> String {
        let levels = 1 + self.below(3);
        let levels: Vec<_> = (0..levels)
            .map(|_| words[self.below(words.len())])
            .collect();
        levels.join("/")
    }

    fn topic(&mut self) -> String {
        loop {
            let text = self.levels(&["a", "b", "", "c", "$x"]);
            if TopicName::parse(&text).is_ok() {
                return text;
            }
        }
    }

    fn filter(&mut self) -> String {
        loop {
            let text = self.levels(&["a", "b", "", "c", "+", "#", "$x"]);
            if SubscriptionFilter::parse(&text).is_ok() {
                return text;
            }
        }
    }
}

/// A client of the twin: its mount, and its filters with it.
struct Twin {
    mount: &'static str,
    filters: Vec<String>,
}

impl Twin {
    /// With a mount, `$` is refused.
    fn full(&self, own: &str) -> Option<String> {
        let is_refused = own.starts_with('$') && !self.mount.is_empty();
        (!is_refused).then(|| format!("{}{own}", self.mount))
    }

    fn receives(&self, full: &str) -> Option<String> {
        let topic = TopicName::parse(full).unwrap();
        let wants = |text: &String| {
            let filter = SubscriptionFilter::parse(text).unwrap().filter();
            filter.matches(topic)
        };
        let own = full.strip_prefix(self.mount)?;
        let is_hidden = !self.mount.is_empty() && (own.is_empty() || own.starts_with('$'));
        let is_wanted = self.filters.iter().any(wants) && !is_hidden;
        is_wanted.then(|| own.to_owned())
    }
}

const MOUNTS: [&str; 4] = ["a/", "a/b/", "b/", "/"];

#[test]
fn topics_and_filters_are_those_of_a_twin_that_puts_mounts_before_them() {
    for seed in 1..=60 {
        let mut dice = Dice(seed * 0x9E37_79B9);
        let mut broker = mounted(1 + (seed % 3) as u8, &MOUNTS);
        let mut clients = Vec::new();
        for (listener, mount) in (0..).zip(std::iter::once("").chain(MOUNTS)) {
            for version in [Version::V5, Version::V3_1_1] {
                let id = format!("{version:?}-{listener}");
                let packet = Connect {
                    version,
                    ..connect(&id)
                };
                let client = open(&mut broker, listener, packet);
                let filters = Vec::new();
                clients.push((client, Twin { mount, filters }));
            }
        }
        for _ in 0..200 {
            let who = dice.below(clients.len());
            let (client, twin) = &mut clients[who];
            match dice.below(4) {
                0 => {
                    let filter = dice.filter();
                    subscribe(&mut broker, *client, &filter, QOS0);
                    if let Some(full) = twin.full(&filter) {
                        twin.filters.push(full);
                    }
                }
                1 if !twin.filters.is_empty() => {
                    let at = dice.below(twin.filters.len());
                    let full = twin.filters[at].clone();
                    twin.filters.retain(|other| *other != full);
                    let own = full.strip_prefix(twin.mount).unwrap();
                    unsubscribe(&mut broker, *client, own);
                }
                _ => {
                    let own = dice.topic();
                    let full = twin.full(&own);
                    let from = *client;
                    for (client, _) in &clients {
                        broker.take(*client);
                    }
                    broker.send(from, publish(&own, "x", QOS0, 0));
                    for (client, twin) in &clients {
                        let got = broker.take_publishes(*client).into_iter();
                        let got: Vec<_> = got.map(|it| it.topic).collect();
                        let expected = full.as_deref().and_then(|full| twin.receives(full));
                        let expected: Vec<_> = expected.into_iter().collect();
                        assert_eq!(got, expected, "seed {seed}: {own} to {}", twin.mount);
                    }
                }
            }
        }
        balances(&broker);
    }
}
