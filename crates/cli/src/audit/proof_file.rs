//! A proof file: one message, and why whoever holds a root can be sure that it was issued.
//!
//! A JSON object. It can be checked without a broker: the message fits its stamp, the stamp's
//! digest leads by the path to the root of its window, and that root is in the producer's
//! checkpoint. Somebody who saved the root when the window was proven needs to trust nothing else
//! in the file.
//!
//! **Absent:** algorithms with a key. A lane of theirs is refused by name.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use unbroken_merkle_log::{
    Checkpoint, CheckpointError, Hash, Hasher, InclusionProof, MissingKey, ProofError, Property,
    PropertyError, Tree,
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
}

/// What a file proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) property: Property,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) payload_bytes: usize,
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
    #[error("topic or payload is not what the producer stamped")]
    Altered,
    #[error("the checkpoint is of another lane or epoch than the message, or does not cover it")]
    OtherWindow,
    #[error("the message is not under the checkpoint's root: {0}")]
    NotUnderRoot(ProofError),
    #[error("the checkpoint's root is {found}, and the saved one is {saved}")]
    OtherRoot { found: Hash, saved: Hash },
}

impl ProofFile {
    /// The proof of one message of a window, of which `leaves` are all and `checkpoint` speaks.
    /// `None` unless they lead to its root.
    pub(crate) fn new(
        topic: &str,
        payload: &[u8],
        property: &Property,
        checkpoint: &Checkpoint,
        leaves: &[Hash],
    ) -> Option<Self> {
        let hasher = Hasher::new(property.algorithm, None).ok()?;
        let mut tree = Tree::new();
        for leaf in leaves {
            tree.append(&hasher, *leaf);
        }
        let index = property.sequence.checked_sub(checkpoint.first)?;
        let size = checkpoint.size - checkpoint.first;
        let proof = tree.prove_inclusion(&hasher, index, size)?;
        let (mut path, mut sealed) = (Vec::new(), Vec::new());
        proof.encode(&mut path);
        checkpoint.encode(&hasher, &mut sealed);
        let file = Self {
            unbroken_proof: VERSION,
            topic: topic.to_owned(),
            payload_base64: BASE64.encode(payload),
            audit: property.to_text(),
            checkpoint_base64: BASE64.encode(sealed),
            path_base64: BASE64.encode(path),
        };
        file.verify(None).is_ok().then_some(file)
    }

    /// Whether the message was issued in its place: under the file's own checkpoint, and, if one
    /// was `saved`, under that root of its window.
    pub(crate) fn verify(&self, saved: Option<Hash>) -> Result<Proven, NotProven> {
        if self.unbroken_proof != VERSION {
            return Err(NotProven::Version(self.unbroken_proof));
        }
        let payload = decode("payload", &self.payload_base64)?;
        let property = Property::parse_text(&self.audit)?;
        let hasher = Hasher::new(property.algorithm, None)?;
        if !property.fits(&hasher, self.topic.as_bytes(), &payload) {
            return Err(NotProven::Altered);
        }
        let sealed = decode("checkpoint", &self.checkpoint_base64)?;
        let checkpoint = Checkpoint::parse(&sealed)?.open(&hasher)?;
        let path = decode("path", &self.path_base64)?;
        let path = InclusionProof::parse(property.algorithm, &path).map_err(NotProven::Path)?;
        let is_window = (checkpoint.lane, checkpoint.epoch) == (property.lane, property.epoch)
            && property.sequence.checked_sub(checkpoint.first) == Some(path.index)
            && checkpoint.size - checkpoint.first == path.size;
        if !is_window {
            return Err(NotProven::OtherWindow);
        }
        path.verify(&hasher, property.digest, checkpoint.window_root)
            .map_err(NotProven::NotUnderRoot)?;
        match saved {
            Some(saved) if saved != checkpoint.window_root => Err(NotProven::OtherRoot {
                found: checkpoint.window_root,
                saved,
            }),
            _ => Ok(Proven {
                property,
                checkpoint,
                payload_bytes: payload.len(),
            }),
        }
    }
}

impl fmt::Display for Proven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            property,
            checkpoint,
            payload_bytes,
        } = self;
        writeln!(
            f,
            "message {} of lane {}, epoch {}, {payload_bytes} bytes",
            property.sequence, property.lane, property.epoch
        )?;
        write!(
            f,
            "was issued among messages {} to {} under the root {}",
            checkpoint.first,
            checkpoint.size - 1,
            checkpoint.window_root
        )
    }
}

fn decode(what: &'static str, text: &str) -> Result<Vec<u8>, NotProven> {
    BASE64.decode(text).map_err(|_| NotProven::Base64(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use unbroken_merkle_log::{Epoch, Lane, LaneId, LaneLimits};

    /// The proof of message `number` of a lane of 100.
    fn proof(number: usize) -> ProofFile {
        let hasher = Hasher::xxh3();
        let id = LaneId::new(7).unwrap();
        let mut lane = Lane::new(id, Epoch(0), LaneLimits::default(), Duration::ZERO);
        let properties: Vec<Property> = (0..100_u8)
            .map(|value| lane.issue(*b"t", [value], &hasher))
            .collect();
        let checkpoint = lane.close(0, &hasher).unwrap();
        let leaves: Vec<Hash> = properties.iter().map(|property| property.digest).collect();
        let payload = [u8::try_from(number).unwrap()];
        ProofFile::new("t", &payload, &properties[number], &checkpoint, &leaves).unwrap()
    }

    #[test]
    fn every_message_of_a_window_can_be_proven_against_a_saved_root() {
        let saved = proof(0).verify(None).unwrap().checkpoint.window_root;
        for number in [0, 1, 50, 98, 99] {
            let proven = proof(number).verify(Some(saved)).unwrap();
            assert_eq!(proven.property.sequence, number as u64);
        }
    }

    #[test]
    fn what_does_not_hold_is_named() {
        type Change = fn(&mut ProofFile);
        let changes: [(Change, &str); 8] = [
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
        ];
        for (change, expect) in changes {
            let mut file = proof(5);
            change(&mut file);
            let error = file.verify(None).unwrap_err().to_string();
            assert!(error.contains(expect), "{expect} in {error}");
        }
    }

    #[test]
    fn another_root_than_the_saved_one_proves_nothing() {
        let saved = Hash::new(&[1; 16]).unwrap();
        let error = proof(5).verify(Some(saved)).unwrap_err();
        assert!(matches!(error, NotProven::OtherRoot { .. }));
    }
}
