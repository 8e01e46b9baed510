//! A proof file: one message, and why the holder of a root can be sure that it was issued.
//!
//! A JSON object. It can be checked without a broker: the message fits its stamp, the stamp's
//! digest leads by the path to the root of its window, and by the rest of the path to the root of
//! its lane; both roots are in the producer's checkpoint. Somebody who saved one of them when the
//! window was proven needs to trust nothing else in the file.
//!
//! The rest of the path is made of the roots of all windows before. Who joined the lane later does
//! not have them; then the proof ends at the root of the window, and says so.

use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use unbroken_merkle_log::{
    Algorithm, Checkpoint, CheckpointError, Digest as _, Hash, Hasher, InclusionProof, MissingKey,
    ProofError, Property, PropertyError, Tree,
};

/// The version of the format; the first field of a file.
const VERSION: u32 = 1;

/// The file as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProofFile {
    unbroken_proof: u32,
    topic: String,
    payload_base64: String,
    /// The stamp, as it was in the user property.
    audit: String,
    /// The checkpoint that covers the message, as it was published.
    checkpoint_base64: String,
    /// From the message's digest to the root of its window.
    path_base64: String,
    /// From the message's digest to the root of its lane, as far as the checkpoint goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane_path_base64: Option<String>,
}

/// A message that was issued, with what is known around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) property: &'a Property,
    /// Speaks of its window.
    pub(crate) checkpoint: &'a Checkpoint,
    /// All of the window, as far as the checkpoint speaks of it.
    pub(crate) leaves: &'a [Hash],
    /// The roots of all windows before it, or of some.
    pub(crate) before: &'a [Hash],
}

/// What a file proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) property: Property,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) payload_bytes: usize,
    /// To the root of the lane; otherwise to that of the window only.
    pub(crate) leads_to_lane: bool,
}

/// Why a file proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotProven {
    #[error("it is a proof of version {0}, and this program knows version {VERSION}")]
    Version(u32),
    #[error("its {0} is not base64")]
    Base64(&'static str),
    #[error("its stamp cannot be read: {0}")]
    Stamp(#[from] PropertyError),
    #[error("its checkpoint cannot be read: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("its path cannot be read: {0}")]
    Path(ProofError),
    #[error(transparent)]
    Key(#[from] MissingKey),
    #[error("it is made with {0:?}, which uses no key: omit --key if the lane has none")]
    NotKeyed(Algorithm),
    #[error("topic or payload is not what the producer stamped")]
    Altered,
    #[error("the checkpoint is of another lane or epoch than the message, or does not cover it")]
    OtherWindow,
    #[error("the message is not under the checkpoint's root: {0}")]
    NotUnderRoot(ProofError),
    #[error("the saved root {saved} is not the window's, {window}, nor the lane's, {lane}")]
    OtherRoot {
        saved: Hash,
        window: Hash,
        lane: Hash,
    },
    #[error(
        "the saved root is the lane's, and the proof leads to the window's only: it was exported \
         by a listener that had joined the lane later"
    )]
    WindowOnly,
}

impl ProofFile {
    /// The proof of a message, to the root of its lane if all windows before are known. `None`
    /// unless the leaves lead to the root of the window.
    pub(crate) fn new(issued: &Issued<'_>, hasher: &Hasher) -> Option<Self> {
        let Issued {
            property,
            checkpoint,
            ..
        } = issued;
        let index = property.sequence.checked_sub(checkpoint.first)?;
        let size = checkpoint.size - checkpoint.first;
        let path = tree(hasher, issued.leaves).prove_inclusion(hasher, index, size)?;
        let (mut bytes, mut sealed) = (Vec::new(), Vec::new());
        path.encode(&mut bytes);
        checkpoint.encode(hasher, &mut sealed);
        let file = Self {
            unbroken_proof: VERSION,
            topic: issued.topic.to_owned(),
            payload_base64: BASE64.encode(issued.payload),
            audit: property.to_text(),
            checkpoint_base64: BASE64.encode(sealed),
            path_base64: BASE64.encode(bytes),
            lane_path_base64: lane_path(issued, &path, hasher),
        };
        file.verify(None, Some(hasher)).is_ok().then_some(file)
    }

    /// Whether the message was issued in its place: under the file's own checkpoint, and, if one
    /// was `saved`, under that root of its window or lane. With a `key` nothing counts that was
    /// not made with it.
    pub(crate) fn verify(
        &self,
        saved: Option<Hash>,
        key: Option<&Hasher>,
    ) -> Result<Proven, NotProven> {
        if self.unbroken_proof != VERSION {
            return Err(NotProven::Version(self.unbroken_proof));
        }
        let payload = decode("payload", &self.payload_base64)?;
        let property = Property::parse_text(&self.audit)?;
        let algorithm = property.algorithm;
        let hasher = match key {
            // Without the key anybody makes a proof that holds.
            Some(hasher) if hasher.algorithm() != algorithm => {
                return Err(NotProven::NotKeyed(algorithm));
            }
            Some(hasher) => hasher.clone(),
            None => Hasher::new(algorithm, None)?,
        };
        if !property.fits(&hasher, self.topic.as_bytes(), &payload) {
            return Err(NotProven::Altered);
        }
        let sealed = decode("checkpoint", &self.checkpoint_base64)?;
        let checkpoint = Checkpoint::parse(&sealed)?.open(&hasher)?;
        if (checkpoint.lane, checkpoint.epoch) != (property.lane, property.epoch) {
            return Err(NotProven::OtherWindow);
        }
        let leads = |name, text: &str, numbers: Range<u64>, root| {
            let path = decode(name, text)?;
            let path = InclusionProof::parse(algorithm, &path).map_err(NotProven::Path)?;
            let is_of_range = property.sequence.checked_sub(numbers.start) == Some(path.index)
                && numbers.end - numbers.start == path.size;
            if !is_of_range {
                return Err(NotProven::OtherWindow);
            }
            path.verify(&hasher, property.digest, root)
                .map_err(NotProven::NotUnderRoot)
        };
        let (window, lane) = (checkpoint.window_root, checkpoint.lane_root);
        let numbers = checkpoint.first..checkpoint.size;
        leads("path", &self.path_base64, numbers, window)?;
        if let Some(text) = &self.lane_path_base64 {
            leads("path to the lane", text, 0..checkpoint.size, lane)?;
        }
        let leads_to_lane = self.lane_path_base64.is_some();
        match saved {
            Some(saved) if saved == lane && saved != window && !leads_to_lane => {
                Err(NotProven::WindowOnly)
            }
            Some(saved) if saved != window && saved != lane => Err(NotProven::OtherRoot {
                saved,
                window,
                lane,
            }),
            _ => Ok(Proven {
                property,
                checkpoint,
                payload_bytes: payload.len(),
                leads_to_lane,
            }),
        }
    }
}

/// From the message to the root of its lane: the way to the root of its window, and from there
/// through a tree of windows. `None` where that does not lead to the root of the checkpoint.
fn lane_path(issued: &Issued<'_>, path: &InclusionProof, hasher: &Hasher) -> Option<String> {
    let checkpoint = issued.checkpoint;
    let window = checkpoint.first >> checkpoint.window_log2;
    if issued.before.len() as u64 != window {
        return None;
    }
    let roots = [issued.before, &[checkpoint.window_root]].concat();
    let rest = tree(hasher, &roots).prove_inclusion(hasher, window, window + 1)?;
    let whole = InclusionProof {
        index: issued.property.sequence,
        size: checkpoint.size,
        hashes: [&path.hashes[..], &rest.hashes].concat(),
    };
    let leaf = issued.property.digest;
    whole.verify(hasher, leaf, checkpoint.lane_root).ok()?;
    let mut bytes = Vec::new();
    whole.encode(&mut bytes);
    Some(BASE64.encode(bytes))
}

fn tree(hasher: &Hasher, leaves: &[Hash]) -> Tree {
    let mut tree = Tree::new();
    for leaf in leaves {
        tree.append(hasher, *leaf);
    }
    tree
}

impl fmt::Display for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            property,
            checkpoint,
            payload_bytes,
            leads_to_lane,
        } = self;
        writeln!(
            f,
            "message {} of lane {}, epoch {}, {payload_bytes} bytes",
            property.sequence, property.lane, property.epoch
        )?;
        let last = checkpoint.size - 1;
        let (window, lane) = (checkpoint.window_root, checkpoint.lane_root);
        if *leads_to_lane {
            writeln!(
                f,
                "was issued among messages 0 to {last}, all of its lane until then,"
            )?;
            write!(f, "under the root of the lane {lane}")
        } else {
            writeln!(
                f,
                "was issued among messages {} to {last}",
                checkpoint.first
            )?;
            write!(f, "under the root of the window {window}")
        }
    }
}

fn decode(what: &'static str, text: &str) -> Result<Vec<u8>, NotProven> {
    BASE64.decode(text).map_err(|_| NotProven::Base64(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use unbroken_merkle_log::{Epoch, Key, Lane, LaneId, LaneLimits};

    /// The proof of message `number` of a lane of 100.
    fn proof(number: usize) -> ProofFile {
        keyed(number, &Hasher::xxh3())
    }

    fn keyed(number: usize, hasher: &Hasher) -> ProofFile {
        let id = LaneId::new(7).unwrap();
        let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO);
        let properties: Vec<Property> = (0..100_u8)
            .map(|value| lane.issue(*b"t", [value], hasher))
            .collect();
        let checkpoint = lane.close(0, hasher).unwrap();
        let leaves: Vec<Hash> = properties.iter().map(|property| property.digest).collect();
        let issued = Issued {
            topic: "t",
            payload: &[u8::try_from(number).unwrap()],
            property: &properties[number],
            checkpoint: &checkpoint,
            leaves: &leaves,
            before: &[],
        };
        ProofFile::new(&issued, hasher).unwrap()
    }

    #[test]
    fn every_message_of_a_window_can_be_proven_against_a_saved_root() {
        let checkpoint = proof(0).verify(None, None).unwrap().checkpoint;
        for number in [0, 1, 50, 98, 99] {
            for saved in [checkpoint.window_root, checkpoint.lane_root] {
                let proven = proof(number).verify(Some(saved), None).unwrap();
                assert_eq!(proven.property.sequence, number as u64);
            }
        }
    }

    #[test]
    fn a_lane_with_a_key_is_proven_to_an_owner_of_the_key() {
        let hasher = Hasher::blake3(&Key([7; 32]));
        let file = keyed(5, &hasher);
        assert!(file.verify(None, Some(&hasher)).is_ok());
        let other = Hasher::blake3(&Key([8; 32]));
        assert_eq!(file.verify(None, Some(&other)), Err(NotProven::Altered));
        let error = file.verify(None, None).unwrap_err().to_string();
        assert!(error.contains("needs the lane's key"), "{error}");
        let without = proof(5).verify(None, Some(&hasher));
        assert_eq!(without, Err(NotProven::NotKeyed(Algorithm::Xxh3)));
    }

    #[test]
    fn what_does_not_hold_is_named() {
        type Change = fn(&mut ProofFile);
        let changes: [(Change, &str); 9] = [
            (|file| file.unbroken_proof = 2, "version 2"),
            (|file| file.topic.push('t'), "not what the producer stamped"),
            (
                |file| file.payload_base64 = "?".to_owned(),
                "payload is not base64",
            ),
            (|file| file.audit.clear(), "stamp cannot be read"),
            (|file| file.audit = proof(6).audit, "not what the producer"),
            (
                |file| file.checkpoint_base64.clear(),
                "checkpoint cannot be read",
            ),
            (|file| file.path_base64.clear(), "path cannot be read"),
            (
                |file| file.path_base64 = proof(6).path_base64,
                "does not cover it",
            ),
            (
                |file| file.lane_path_base64 = proof(6).lane_path_base64,
                "does not cover it",
            ),
        ];
        for (change, expect) in changes {
            let mut file = proof(5);
            change(&mut file);
            let error = file.verify(None, None).unwrap_err().to_string();
            assert!(error.contains(expect), "{expect} in {error}");
        }
    }

    #[test]
    fn another_root_than_the_saved_one_proves_nothing() {
        let saved = Hash::new(&[1; 16]).unwrap();
        let error = proof(5).verify(Some(saved), None).unwrap_err();
        assert!(matches!(error, NotProven::OtherRoot { .. }));
    }
}
