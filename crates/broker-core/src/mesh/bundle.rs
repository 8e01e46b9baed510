//! Small publications of QoS 0 to another shard, bundled: those that one input brought.
//!
//! HOT: runs for each such publication, here and there.
//!
//! ```text
//! add:    behind the others for that shard, as bytes in one piece
//! close:  the input is over, something else is for that shard, or the bundle is full: it is sent
//! ```
//!
//! Why: each part of a publication that two shards share moves between the caches of two cores.
//! Bytes in one piece move together. Of what is stored, retained, large or for many shards,
//! references are sent.
//!
//! A channel between shards is bounded in messages and bytes, and a shard takes all of it in one
//! turn. So each publication costs it [`BUNDLED_COST_MIN`] at least: as many are on their way as if
//! each were sent by itself.
//!
//! Invariants:
//! - No bundle is open between two inputs.
//! - A used one comes back as a message does, by a reference that finds itself alone (see
//!   [`crate::message`]).
//!
//! Deliberately absent: properties and expiry. A publication that has one goes by itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use unbroken_mqtt_proto::{Properties, QoS};

use crate::ids::ShardId;
use crate::limits::{
    BUNDLE_BYTES_MAX, BUNDLE_LENT_EACH_MAX, BUNDLED_COST_MIN, BUNDLED_EACH_MAX, BUNDLES_LENT_MAX,
    SHARDS_MAX,
};
use crate::message::{Mark, Publication};

/// Messages of one publisher that came together.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    heads: Vec<Head>,
    topics: String,
    payloads: Vec<u8>,
    /// `None`: the broker's own.
    publisher: Option<Arc<str>>,
    /// When the broker took them; there if there are any.
    stamp: Option<Instant>,
}

/// One message, and where its bytes end.
#[derive(Clone, Copy, Debug)]
struct Head {
    topic_end: usize,
    payload_end: usize,
    mark: Option<Mark>,
}

impl Bundle {
    pub(crate) fn publisher(&self) -> Option<&Arc<str>> {
        self.publisher.as_ref()
    }

    /// What it costs the feed: its bytes, or so much for each message.
    pub(crate) fn cost(&self) -> u64 {
        (self.bytes() as u64).max(self.heads.len() as u64 * BUNDLED_COST_MIN)
    }

    /// Bytes of topics and payloads, and of what there is to say about each message.
    pub(crate) fn bytes(&self) -> usize {
        self.topics.len() + self.payloads.len() + self.heads.len() * size_of::<Head>()
    }

    /// Bytes that it keeps from the allocator.
    fn memory(&self) -> usize {
        let heads = self.heads.capacity() * size_of::<Head>();
        heads + self.topics.capacity() + self.payloads.capacity()
    }

    /// Its messages, in order.
    pub(crate) fn publications(&self) -> impl Iterator<Item = Publication<'_>> {
        let (mut topic, mut payload) = (0, 0);
        self.heads
            .iter()
            .zip(self.stamp.into_iter().cycle())
            .map(move |(head, stamp)| Publication {
                topic: &self.topics[std::mem::replace(&mut topic, head.topic_end)..head.topic_end],
                properties: Properties::EMPTY,
                payload: &self.payloads
                    [std::mem::replace(&mut payload, head.payload_end)..head.payload_end],
                qos: QoS::AtMostOnce,
                retain: false,
                expires: None,
                stamp,
                mark: head.mark,
            })
    }

    fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Whether this one can go with those that are here.
    fn has_room_for(&self, publication: &Publication<'_>, publisher: Option<&Arc<str>>) -> bool {
        let same_publisher = match (&self.publisher, publisher) {
            (Some(mine), Some(its)) => Arc::ptr_eq(mine, its),
            (mine, its) => mine.is_none() && its.is_none(),
        };
        self.bytes() < BUNDLE_BYTES_MAX && same_publisher && self.stamp == Some(publication.stamp)
    }

    fn add(&mut self, publication: &Publication<'_>, publisher: Option<&Arc<str>>) {
        if self.is_empty() {
            self.publisher = publisher.map(Arc::clone);
            self.stamp = Some(publication.stamp);
        }
        self.topics.push_str(publication.topic);
        self.payloads.extend_from_slice(publication.payload);
        self.heads.push(Head {
            topic_end: self.topics.len(),
            payload_end: self.payloads.len(),
            mark: publication.mark,
        });
    }

    fn clear(&mut self) {
        self.heads.clear();
        self.topics.clear();
        self.payloads.clear();
        self.publisher = None;
        self.stamp = None;
    }
}

/// The bundles of one shard.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    /// By the shard they are for, as far as there was one for it.
    open: Vec<Bundle>,
    /// Those that are not empty, a bit each.
    begun: u64,
    /// Sent, or back from it; longest lent in front.
    lent: VecDeque<Arc<Bundle>>,
}

const _: () = assert!(SHARDS_MAX <= u64::BITS as usize, "a bit for each shard");

impl Bundles {
    /// Adds a message for this shard. If it cannot go with those that are bundled already, gives
    /// these.
    pub(crate) fn add(
        &mut self,
        to: ShardId,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) -> Option<Arc<Bundle>> {
        let index = usize::from(to.0);
        if self.open.len() <= index {
            self.open.resize_with(index + 1, Bundle::default);
        }
        let full = (self.has_begun(to) && !self.open[index].has_room_for(publication, publisher))
            .then(|| self.take(to))
            .flatten();
        self.begun |= 1 << to.0;
        self.open[index].add(publication, publisher);
        full
    }

    /// The first shard for which something is bundled.
    #[inline]
    pub(crate) fn first_begun(&self) -> Option<ShardId> {
        let first = u8::try_from(self.begun.trailing_zeros()).expect("a u64 has 64 bits");
        (self.begun != 0).then_some(ShardId(first))
    }

    fn has_begun(&self, to: ShardId) -> bool {
        self.begun & 1 << to.0 != 0
    }

    /// Takes what is bundled for this shard.
    pub(crate) fn take(&mut self, to: ShardId) -> Option<Arc<Bundle>> {
        if !self.has_begun(to) {
            return None;
        }
        self.begun &= !(1 << to.0);
        let open = &mut self.open[usize::from(to.0)];
        // The memory of one that is back goes to the next.
        let swap = |used: &mut Arc<Bundle>| {
            let used = Arc::get_mut(used);
            used.map(|used| std::mem::swap(used, open)).is_some()
        };
        let bundle = if let Some(bundle) = self.lent.pop_front_if(swap) {
            open.clear();
            bundle
        } else {
            Arc::new(std::mem::take(open))
        };
        if bundle.memory() <= BUNDLE_LENT_EACH_MAX {
            if self.lent.len() >= BUNDLES_LENT_MAX {
                self.lent.pop_front();
            }
            self.lent.push_back(Arc::clone(&bundle));
        }
        Some(bundle)
    }
}

/// Whether a bundle can say all that there is to a message.
pub(crate) fn is_plain(publication: &Publication<'_>) -> bool {
    publication.qos == QoS::AtMostOnce
        && !publication.retain
        && publication.properties.is_empty()
        && publication.expires.is_none()
        && publication.topic.len() + publication.payload.len() <= BUNDLED_EACH_MAX
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unbroken_mqtt_proto::{Property, PropertyBuf};

    use super::*;

    const TO: ShardId = ShardId(1);

    #[expect(clippy::disallowed_methods, reason = "a test's epoch")]
    fn plain<'a>(topic: &'a str, payload: &'a [u8]) -> Publication<'a> {
        Publication {
            topic,
            properties: Properties::EMPTY,
            payload,
            qos: QoS::AtMostOnce,
            retain: false,
            expires: None,
            stamp: Instant::now(),
            mark: None,
        }
    }

    fn content(bundle: &Bundle) -> Vec<(&str, &[u8])> {
        let publications = bundle.publications();
        publications
            .map(|message| (message.topic, message.payload))
            .collect()
    }

    #[test]
    fn messages_come_out_in_order_and_whole() {
        let publisher = Arc::from("client");
        let mut bundles = Bundles::default();
        let first = plain("a/b", b"1");
        let messages: [(&str, &[u8]); 5] = [
            (first.topic, first.payload),
            ("a/b", b""),
            ("\u{fc}", &[0xff, 0]),
            ("a/longer/topic", b"and payload"),
            ("a/b", b"last"),
        ];
        for (topic, payload) in messages {
            let publication = Publication {
                topic,
                payload,
                ..first
            };
            let full = bundles.add(TO, &publication, Some(&publisher));
            assert!(full.is_none());
        }
        assert!(bundles.take(ShardId(0)).is_none());
        let bundle = bundles.take(TO).unwrap();
        assert_eq!(content(&bundle), messages);
        assert_eq!(bundle.publisher(), Some(&publisher));
        assert_eq!(bundle.cost(), 5 * BUNDLED_COST_MIN);
        let stamps = bundle.publications().map(|message| message.stamp);
        assert!(stamps.eq([first.stamp; 5]));
        assert!(bundles.take(TO).is_none());
    }

    #[test]
    fn what_a_bundle_cannot_say_goes_by_itself() {
        let message = plain("topic", b"payload");
        let mut properties = PropertyBuf::new();
        properties.push(Property::ContentType("text")).unwrap();
        let large = vec![0; BUNDLED_EACH_MAX];
        assert!(is_plain(&message));
        assert!(is_plain(&Publication {
            payload: &large[5..],
            ..message
        }));
        let others = [
            Publication {
                qos: QoS::AtLeastOnce,
                ..message
            },
            Publication {
                retain: true,
                ..message
            },
            Publication {
                properties: properties.as_properties(),
                ..message
            },
            Publication {
                expires: Some(message.stamp),
                ..message
            },
            Publication {
                payload: &large[4..],
                ..message
            },
        ];
        for other in others {
            assert!(!is_plain(&other), "{other:?}");
        }
    }

    #[test]
    fn of_another_publisher_or_time_is_in_another_bundle() {
        let [one, two] = ["one", "two"].map(Arc::from);
        let message = plain("t", b"1");
        let later = message.stamp + Duration::from_millis(1);
        let mut bundles = Bundles::default();
        let mut add = |publisher, stamp| {
            let publication = Publication { stamp, ..message };
            let full = bundles.add(TO, &publication, publisher);
            full.map(|full| content(&full).len())
        };
        assert_eq!(add(Some(&one), message.stamp), None);
        assert_eq!(add(Some(&one), message.stamp), None);
        assert_eq!(add(Some(&two), message.stamp), Some(2));
        assert_eq!(add(None, message.stamp), Some(1));
        assert_eq!(add(None, message.stamp), None);
        assert_eq!(add(None, later), Some(2));
    }

    #[test]
    fn a_full_bundle_goes_and_another_begins() {
        let payload = [0; BUNDLED_EACH_MAX - 1];
        let message = plain("t", &payload);
        let mut bundles = Bundles::default();
        let full = std::iter::repeat_with(|| bundles.add(TO, &message, None)).take(5);
        assert_eq!(
            full.flatten()
                .map(|full| content(&full).len())
                .sum::<usize>(),
            4
        );
        let last = bundles.take(TO).unwrap();
        assert_eq!(content(&last).len(), 1);
        let bytes = BUNDLED_EACH_MAX + size_of::<Head>();
        assert_eq!(last.cost(), bytes as u64);
    }

    #[test]
    fn a_bundle_that_has_grown_large_is_not_kept() {
        let mut bundles = Bundles::default();
        bundles.open.resize_with(2, Bundle::default);
        bundles.open[1].payloads.reserve(BUNDLE_LENT_EACH_MAX + 1);
        bundles.add(TO, &plain("t", b""), None);
        let large = bundles.take(TO).unwrap();
        assert_eq!(Arc::strong_count(&large), 1);
    }

    #[test]
    fn a_bundle_is_used_again_when_its_receiver_has_dropped_it_and_not_before() {
        let message = plain("t", b"payload");
        let mut bundles = Bundles::default();
        let mut send = || {
            assert!(bundles.add(TO, &message, None).is_none());
            bundles.take(TO).unwrap()
        };
        let first = send();
        let lies_at = Arc::as_ptr(&first);
        let second = send();
        assert_ne!(Arc::as_ptr(&second), lies_at);
        drop(first);
        let again = send();
        assert_eq!(Arc::as_ptr(&again), lies_at);
        assert_eq!(content(&again), content(&second));
        let held: Vec<_> = (0..2 * BUNDLES_LENT_MAX).map(|_| send()).collect();
        drop(held);
        assert_eq!(bundles.lent.len(), BUNDLES_LENT_MAX);
    }
}
