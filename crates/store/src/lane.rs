//! Lanes of the proof: as they were when the broker stopped in good order, and as they were last
//! while it ran.
//!
//! ```text
//! key   0 | client                 value   Ingress: what the client has published
//!       1 | lane 8, epoch 4                Own: what was found in a lane that a publisher stamps
//!       2                                  Floor: of the epochs of this run, or the last
//!       3 | client, epoch 4                Ingress, so far: after a crash its epoch ends there
//!       4 | client, lane 8, epoch 4        Own, so far: after a crash it goes on from there
//! ```
//!
//! What is at rest is void once a broker runs; what is so far is not. A broker that does not know
//! the second must not take it for the first, so it is of version 2 and refused as newer.
//!
//! The hashes and the ledger are in the formats of `unbroken-merkle-log`, which versions them and
//! checks what it reads.
//!
//! Invariant: what a `decode` accepts, `encode` writes again byte for byte.

use crate::codec::{Reader, RecordError, VERSION, put_number, put_string};
use crate::session;

/// What a client has published, as the broker has numbered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Whose.
    pub client_id: String,
    /// The epoch of the lane.
    pub epoch: u32,
    /// How many messages there are, and the hashes over them.
    pub leaves: Vec<u8>,
    /// The announced checkpoints, if its stamps are forwarded.
    pub told: Option<Told>,
}

/// The checkpoints that a lane has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Checkpoints.
    pub checkpoints: u32,
    /// Messages in the last one.
    pub size: u64,
    /// The root of the last full window; empty if none is known.
    pub full_root: Vec<u8>,
}

/// What was found in a lane that a publisher stamps itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Who.
    pub client_id: String,
    /// As which user.
    pub user: LaneUser,
    /// The lane.
    pub lane: u64,
    /// Its epoch.
    pub epoch: u32,
    /// For how long its publisher was connected, in milliseconds.
    pub connected_ms: u64,
    /// Numbers that were refused, and may come yet; none at rest.
    pub refused: Vec<u64>,
    /// The ledger.
    pub ledger: Vec<u8>,
}

/// As whom a client was let in that has opened a lane.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LaneUser {
    /// It was not connected.
    #[default]
    Unknown,
    /// Without a name.
    Anonymous,
    /// Under this name.
    Named(String),
}

/// The first epoch that a run of the broker may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// In seconds since 1970.
    pub epoch: u32,
}

/// What is at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Numbered by the broker.
    Ingress(Ingress),
    /// Stamped by a publisher.
    Own(Own),
}

/// What the keys of lanes at rest begin with: one of these.
pub const PREFIXES: [u8; 2] = [INGRESS, OWN];

/// Whether a lane is at this key, which goes on only where nothing that came after it was lost.
pub(crate) fn is_clean_shutdown(key: &[u8]) -> bool {
    key.first().is_some_and(|first| PREFIXES.contains(first))
}

/// Where the [`Floor`] is.
pub const FLOOR_KEY: &[u8] = &[2];

/// Where the epoch of a client's ingress lane is, so far.
pub fn ingress_crash_recovery(client_id: &str, epoch: u32) -> Vec<u8> {
    crash_recovery(INGRESS_CRASH_RECOVERY, client_id, &epoch.to_be_bytes())
}

/// What the keys begin with of all ledgers, so far, of the lanes that a client stamps.
pub fn own_crash_recovery(client_id: &str) -> Vec<u8> {
    crash_recovery(OWN_CRASH_RECOVERY, client_id, &[])
}

fn crash_recovery(kind: u8, client_id: &str, rest: &[u8]) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(session::prefix(client_id));
    key.extend_from_slice(rest);
    key
}

/// Whether the value at this key is a lane so far, and not one at rest.
pub fn is_crash_recovery(key: &[u8]) -> bool {
    matches!(
        key.first(),
        Some(&(INGRESS_CRASH_RECOVERY | OWN_CRASH_RECOVERY))
    )
}

impl Floor {
    /// The value in bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_number(&mut out, self.epoch.into());
        out
    }

    /// Reads a value.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::versioned(bytes)?;
        let epoch = reader.small("epoch")?;
        reader.end()?;
        Ok(Self { epoch })
    }
}

impl Lane {
    /// Where it is while the broker runs.
    pub fn crash_recovery_key(&self) -> Vec<u8> {
        match self {
            Self::Ingress(lane) => ingress_crash_recovery(&lane.client_id, lane.epoch),
            Self::Own(lane) => {
                let mut key = own_crash_recovery(&lane.client_id);
                key.extend(lane.lane.to_be_bytes());
                key.extend(lane.epoch.to_be_bytes());
                key
            }
        }
    }

    /// The value in bytes, for [`crash_recovery_key`](Self::crash_recovery_key).
    pub fn encode_crash_recovery(&self) -> Vec<u8> {
        self.encode_as(VERSION_CRASH_RECOVERY)
    }

    /// Where it is at rest.
    pub fn key(&self) -> Vec<u8> {
        match self {
            Self::Ingress(lane) => {
                let mut key = vec![INGRESS];
                key.extend(session::prefix(&lane.client_id));
                key
            }
            Self::Own(lane) => {
                let mut key = vec![OWN];
                key.extend(lane.lane.to_be_bytes());
                key.extend(lane.epoch.to_be_bytes());
                key
            }
        }
    }

    /// The value in bytes, for [`key`](Self::key).
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    fn encode_as(&self, version: u8) -> Vec<u8> {
        let mut out = vec![version];
        match self {
            Self::Ingress(lane) => {
                out.push(INGRESS);
                put_string(&mut out, lane.client_id.as_bytes());
                put_number(&mut out, lane.epoch.into());
                put_string(&mut out, &lane.leaves);
                if let Some(told) = &lane.told {
                    put_number(&mut out, told.checkpoints.into());
                    put_number(&mut out, told.size);
                    put_string(&mut out, &told.full_root);
                }
            }
            Self::Own(lane) => {
                out.push(match lane.user {
                    LaneUser::Unknown => OWN,
                    LaneUser::Anonymous => OWN_OF_ANONYMOUS,
                    LaneUser::Named(_) => OWN_OF_USER,
                });
                put_string(&mut out, lane.client_id.as_bytes());
                if let LaneUser::Named(user) = &lane.user {
                    put_string(&mut out, user.as_bytes());
                }
                out.extend_from_slice(&lane.lane.to_be_bytes());
                put_number(&mut out, lane.epoch.into());
                put_number(&mut out, lane.connected_ms);
                if version == VERSION_CRASH_RECOVERY {
                    put_number(&mut out, lane.refused.len() as u64);
                    for number in &lane.refused {
                        put_number(&mut out, *number);
                    }
                } else {
                    debug_assert!(lane.refused.is_empty(), "such a lane is not at rest");
                }
                out.extend_from_slice(&lane.ledger);
            }
        }
        out
    }

    /// Reads the value at this key, which is not [`FLOOR_KEY`].
    pub fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, RecordError> {
        let is_crash_recovery = is_crash_recovery(key);
        let mut reader = if is_crash_recovery {
            Reader::of_version(VERSION_CRASH_RECOVERY, bytes)?
        } else {
            Reader::versioned(bytes)?
        };
        let kind = reader.byte("kind")?;
        let client_id = reader.text("client id")?.to_owned();
        match kind {
            INGRESS => {
                let epoch = reader.small("epoch")?;
                let leaves = reader.string("leaves")?.to_vec();
                let told = if reader.len() == 0 {
                    None
                } else {
                    Some(Told {
                        checkpoints: reader.small("checkpoints")?,
                        size: reader.number("size told")?,
                        full_root: reader.string("root of a window")?.to_vec(),
                    })
                };
                reader.end()?;
                Ok(Self::Ingress(Ingress {
                    client_id,
                    epoch,
                    leaves,
                    told,
                }))
            }
            OWN | OWN_OF_ANONYMOUS | OWN_OF_USER => Ok(Self::Own(Own {
                client_id,
                user: match kind {
                    OWN_OF_ANONYMOUS => LaneUser::Anonymous,
                    OWN_OF_USER => LaneUser::Named(reader.text("user")?.to_owned()),
                    _ => LaneUser::Unknown,
                },
                lane: u64::from_be_bytes(reader.array("lane")?),
                epoch: reader.small("epoch")?,
                connected_ms: reader.number("time connected")?,
                refused: if is_crash_recovery {
                    let count = reader.number("count of refused numbers")?;
                    let refused = (0..count).map(|_| reader.number("refused number"));
                    refused.collect::<Result<_, _>>()?
                } else {
                    Vec::new()
                },
                ledger: reader.rest().to_vec(),
            })),
            value => Err(RecordError::Meaningless {
                field: "kind",
                value: value.into(),
            }),
        }
    }
}

const INGRESS: u8 = 0;
const OWN: u8 = 1;
/// The same in values, with the user.
const OWN_OF_ANONYMOUS: u8 = 2;
const OWN_OF_USER: u8 = 3;
const INGRESS_CRASH_RECOVERY: u8 = 3;
const OWN_CRASH_RECOVERY: u8 = 4;

/// Of what a broker that knows only lanes at rest must not read.
const VERSION_CRASH_RECOVERY: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_reads_as_it_was_written_and_no_byte_can_be_cut() {
        let told = Told {
            checkpoints: 7,
            size: 1 << 40,
            full_root: vec![9; 16],
        };
        let ingress = |told| {
            Lane::Ingress(Ingress {
                client_id: "pump".into(),
                epoch: 1_790_000_000,
                leaves: vec![1, 2, 3],
                told,
            })
        };
        let own = |user| {
            Lane::Own(Own {
                client_id: "sensor".into(),
                user,
                lane: u64::MAX,
                epoch: 3,
                connected_ms: 1_000,
                refused: Vec::new(),
                ledger: vec![4, 5],
            })
        };
        let named = LaneUser::Named("ann".into());
        for lane in [
            ingress(None),
            ingress(Some(told)),
            own(LaneUser::Unknown),
            own(LaneUser::Anonymous),
            own(named),
        ] {
            let (key, bytes) = (lane.key(), lane.encode());
            assert_eq!(Lane::decode(&key, &bytes), Ok(lane.clone()));
            assert!(is_clean_shutdown(&key) && !is_crash_recovery(&key));
            for length in 0..bytes.len() {
                if let Ok(shorter) = Lane::decode(&key, &bytes[..length]) {
                    assert_eq!(shorter.encode(), bytes[..length], "cut at {length}");
                }
            }
            let lane = match lane {
                Lane::Own(own) => Lane::Own(Own {
                    refused: vec![3, 1 << 40],
                    ..own
                }),
                lane @ Lane::Ingress(_) => lane,
            };
            let (crash_recovery_key, crash_recovery) =
                (lane.crash_recovery_key(), lane.encode_crash_recovery());
            for length in 0..crash_recovery.len() {
                if let Ok(shorter) = Lane::decode(&crash_recovery_key, &crash_recovery[..length]) {
                    let again = shorter.encode_crash_recovery();
                    assert_eq!(again, crash_recovery[..length], "cut at {length}");
                }
            }
            assert_eq!(Lane::decode(&crash_recovery_key, &crash_recovery), Ok(lane));
            assert!(
                is_crash_recovery(&crash_recovery_key) && !is_clean_shutdown(&crash_recovery_key)
            );
            let newer = Lane::decode(&key, &crash_recovery);
            assert_eq!(newer, Err(RecordError::Version(2)), "at rest it is not");
            let older = Lane::decode(&crash_recovery_key, &bytes);
            assert_eq!(older, Err(RecordError::Version(1)), "so far it is not");
        }
        let floor = Floor { epoch: u32::MAX };
        assert_eq!(Floor::decode(&floor.encode()), Ok(floor));
        assert!(matches!(
            Lane::decode(&[INGRESS], &[VERSION, 4, 0]),
            Err(RecordError::Meaningless { .. })
        ));
    }
}
