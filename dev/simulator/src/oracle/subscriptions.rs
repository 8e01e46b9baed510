//! What clients ask for and give up: when a subscription becomes possible, certain, and neither.

use unbroken_mqtt_proto::{QoS, RetainHandling};

use super::session::Filter;
use super::{Oracle, Terms};

impl Oracle {
    pub(crate) fn subscribing(&mut self, client: usize, entries: &[(&'static str, Terms)]) -> u64 {
        let tick = self.tick();
        let session = &mut self.sessions[client];
        self.between.subscribing((client, session.serial), entries);
        session.version += 1;
        for (text, terms) in entries {
            // What is on its way between the shards may be delivered on the new terms.
            for expected in session.outstanding.values_mut() {
                if expected.by.contains(text) && terms.options.qos < expected.low {
                    expected.low = terms.options.qos;
                    expected.link = session.link;
                }
            }
            let stays = session.expiry_s > 0 || session.begun > 0;
            if stays && terms.options.qos > QoS::AtMostOnce {
                self.kept_texts.insert(text);
            }
            if text.starts_with("$share/") {
                self.shared_texts.insert(text);
                if terms.options.qos == QoS::AtMostOnce {
                    self.lossy_groups.insert(text);
                }
            }
            match session.live_mut(text) {
                Some(filter) => {
                    filter.own_too |= !terms.options.no_local;
                    filter.terms.push(*terms);
                    filter.asked += 1;
                    filter.asked_at = tick;
                }
                None => session.filters.push(Filter {
                    text,
                    certain: false,
                    terms: vec![*terms],
                    own_too: !terms.options.no_local,
                    until: None,
                    asked: 1,
                    asked_at: tick,
                    answered_at: 0,
                }),
            }
            // A second answer to the same question: which one brings it cannot be told.
            session.retained.retain(|expected| expected.text != *text);
        }
        tick
    }

    /// SUBACK was seen, all granted. `since`: when SUBSCRIBE was sent.
    pub(crate) fn subscribed(
        &mut self,
        client: usize,
        entries: &[(&'static str, Terms)],
        since: u64,
    ) {
        let tick = self.tick();
        let session = &mut self.sessions[client];
        if !session.exists {
            return; // it was answered and has ended since
        }
        session.version += 1;
        for (text, terms) in entries {
            if let Some(filter) = session.live_mut(text) {
                filter.certain = true;
                filter.answered_at = tick;
                filter.terms = vec![*terms];
            }
        }
        self.promise_between(client);
        for (text, terms) in entries {
            let always = terms.options.retain_handling == RetainHandling::SendAlways;
            if always && !terms.options.no_local && !text.starts_with("$share/") {
                self.expect_retained(client, text, terms.options.qos, since);
            }
        }
    }

    pub(crate) fn unsubscribing(&mut self, client: usize, text: &'static str) {
        self.tick += 1;
        self.between.unsubscribing(client, text);
        let session = &mut self.sessions[client];
        session.version += 1;
        if let Some(filter) = session.live_mut(text) {
            filter.certain = false;
        }
        session.expect_without(text);
        session.retained.retain(|expected| expected.text != text);
        self.groups.left(text, (client, session.serial));
    }

    pub(crate) fn unsubscribed(&mut self, client: usize, text: &'static str) {
        let tick = self.tick();
        let session = &mut self.sessions[client];
        session.version += 1;
        if let Some(filter) = session.live_mut(text) {
            filter.until = Some(tick);
        }
    }

    /// The filters that the client has asked for.
    pub(crate) fn live_filters(&self, client: usize) -> Vec<&'static str> {
        let filters = self.sessions[client].filters.iter();
        let live = filters.filter(|f| f.until.is_none());
        live.map(|filter| filter.text).collect()
    }

    /// One of them, at random.
    pub(crate) fn some_filter(&self, client: usize, choice: usize) -> Option<&'static str> {
        let live = self.live_filters(client);
        live.get(choice % live.len().max(1)).copied()
    }
}
