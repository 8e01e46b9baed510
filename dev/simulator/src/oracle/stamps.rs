//! What receivers get of the broker's lanes over all crashes: no number is two messages', and every
//! checkpoint is true.

use std::collections::BTreeMap;

use unbroken_merkle_log::{Checkpoint, Epoch, EpochEnd, Hash, LaneId, Property, Tree, Xxh3};
use unbroken_mqtt_proto::Publish;

/// One for the whole run: what all receivers have seen together.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    epochs: BTreeMap<(LaneId, Epoch), Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    leaves: BTreeMap<u64, Hash>,
    /// By size.
    roots: BTreeMap<u64, Hash>,
    /// A crash has cut it here.
    cut: Option<u64>,
    closed: Option<u64>,
    /// Numbers of checkpoints, with their sizes.
    numbers: BTreeMap<u32, u64>,
}

impl Stamps {
    /// A receiver of 5.0 got this message, if the stamp is whole.
    pub(crate) fn received(&mut self, publish: &Publish<'_>, topic: &str) {
        let mut properties = publish.properties.user_properties();
        let Some((_, stamp)) = properties.find(|(name, _)| *name == Property::NAME) else {
            return;
        };
        let stamp = Property::parse_text(stamp).expect("the broker's own stamp");
        assert!(stamp.fits(&Xxh3, topic.as_bytes(), publish.payload));
        let seen = self.epochs.entry((stamp.lane, stamp.epoch)).or_default();
        let before = seen.leaves.insert(stamp.sequence, stamp.digest);
        assert!(
            before.is_none_or(|before| before == stamp.digest),
            "two messages are {stamp:?}"
        );
    }

    /// A receiver got this checkpoint.
    pub(crate) fn told(&mut self, payload: &[u8]) {
        let sealed = Checkpoint::parse(payload).expect("the broker's own checkpoint");
        let checkpoint = sealed.open(&Xxh3).expect("the broker's own checkpoint");
        let key = (checkpoint.lane, checkpoint.epoch);
        let seen = self.epochs.entry(key).or_default();
        let before = seen.roots.insert(checkpoint.size, checkpoint.lane_root);
        assert!(before.is_none_or(|before| before == checkpoint.lane_root));
        // Who tells of a cut does not know which were told before.
        if checkpoint.end != EpochEnd::Cut {
            let before = seen.numbers.insert(checkpoint.number, checkpoint.size);
            assert!(before.is_none_or(|before| before == checkpoint.size));
        }
        match checkpoint.end {
            EpochEnd::Open => {}
            EpochEnd::Cut => seen.cut = Some(checkpoint.size),
            EpochEnd::Closed => seen.closed = Some(checkpoint.size),
        }
    }

    /// At the end of the run: all that was told fits all that came. Answers of how many epochs that
    /// a crash has cut that was seen.
    pub(crate) fn check(&self) -> u64 {
        let mut cut = 0;
        for (key, seen) in &self.epochs {
            let mut tree = Tree::default();
            for (number, leaf) in &seen.leaves {
                if *number == tree.size() {
                    tree.append(&Xxh3, *leaf);
                }
            }
            for (size, root) in &seen.roots {
                if *size <= tree.size() {
                    assert_eq!(tree.root_at(&Xxh3, *size), Some(*root), "{key:?} at {size}");
                    cut += u64::from(seen.cut == Some(*size));
                }
            }
            let last = seen.leaves.last_key_value().map_or(0, |(last, _)| last + 1);
            assert!(
                seen.closed.is_none_or(|size| last <= size),
                "{key:?} is closed"
            );
        }
        cut
    }
}
