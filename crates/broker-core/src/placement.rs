//! Which shard something belongs to: sessions by client id, retained messages by topic, shared
//! groups by name and filter.
//!
//! The hash is fixed (FNV-1a, 64 bits), so that every shard, and a later process, agrees.

use crate::ids::{HandOver, ShardId};

/// The shard that the session of this client lives on.
pub(crate) fn of_client(client_id: &str, shards: u8) -> ShardId {
    place(fnv(FNV_OFFSET, client_id.as_bytes()), shards)
}

/// The shard that keeps the retained message of this topic.
pub(crate) fn of_topic(topic: &str, shards: u8) -> ShardId {
    place(fnv(FNV_OFFSET, topic.as_bytes()), shards)
}

/// The shard that a shared group lives on.
pub(crate) fn of_group(group: &str, filter: &str, shards: u8) -> ShardId {
    // A group name holds no '/', so the pair is unambiguous.
    place(
        fnv(
            fnv(fnv(FNV_OFFSET, group.as_bytes()), b"/"),
            filter.as_bytes(),
        ),
        shards,
    )
}

/// The shard that holds the logs for what a session has left to a group: the one that has noted
/// it, if it is there in this run.
pub(crate) fn of_hand_over(hand_over: HandOver, shards: u8) -> ShardId {
    ShardId(hand_over.from.0 % shards)
}

/// Spreads by the high bits: multiply, then take the integer part.
fn place(hash: u64, shards: u8) -> ShardId {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let shard = (mixed * u64::from(shards)) >> 32;
    ShardId(
        u8::try_from(shard).expect(
            "the product of a 32-bit number and `shards`, shifted by 32, is below `shards`",
        ),
    )
}

fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_takes_everything() {
        for n in 0..1_000 {
            assert_eq!(of_client(&format!("client-{n}"), 1), ShardId(0));
        }
    }

    #[test]
    fn clients_spread_over_the_shards() {
        let mut count = [0u32; 8];
        for n in 0..8_000 {
            count[usize::from(of_client(&format!("client-{n}"), 8).0)] += 1;
        }
        assert!(
            count.iter().all(|&n| (800..1_200).contains(&n)),
            "{count:?}"
        );
    }
}
