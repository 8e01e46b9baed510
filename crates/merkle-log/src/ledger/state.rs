//! A lane's ledger as bytes, to be saved in the same transaction as the consumer's position and
//! read after a restart, so that what comes again from that position is judged the same.
//!
//! Big-endian, a tag at the end by the lane's digest. Reading refuses whatever does not fit with
//! the place, allocates in proportion to the input, and gives an equal ledger or none. Events not
//! taken are not saved: take them first, in the same transaction.

use std::collections::BTreeMap;

use super::claim::Claim;
use super::declared::Declared;
use super::doubt::Doubts;
use super::gaps::Gaps;
use super::limits::{WINDOW, WINDOW_LOG2};
use super::open_window::Window;
use super::order::{Order, Run};
use super::prefix::{Prefix, Sum};
use super::receiver::{Join, LaneLedger, Parts};
use super::verdict::{Account, Events, State};
use super::window::{GROUP, Node, SLOTS, Slots};
use super::windows::Windows;
use crate::hash_list::HashList;
use crate::limits::MAX_SIZE;
use crate::saved::{Fields, StateError, Writer, check, seal};
use crate::{Detail, Digest, EpochEnd};

impl LaneLedger {
    /// Appends the ledger to `out`.
    pub fn save(&self, digest: &impl Digest, out: &mut Vec<u8>) {
        let from = out.len();
        let mut write = Writer(out);
        write.u8(VERSION);
        write.u8(match self.join {
            Join::Beginning => 0,
            Join::Late => 1,
            Join::Member => 2,
        });
        write.option(self.start.as_ref(), |write, start| write.u64(*start));
        write.option(self.closed.as_ref(), |write, size| write.u64(*size));
        write.u64(self.next);
        write.u64(self.moved);
        write.u64(self.covered);
        write.u32(self.checkpoints);
        write.time(self.heard);
        let flags = [self.idle, self.silent, self.over, self.doubted, self.come];
        write.u8((0..)
            .zip(flags)
            .map(|(at, flag)| u8::from(flag) << at)
            .sum());
        write.u32(self.contradictions);
        write.list(self.tails.iter(), |write, (size, noticed)| {
            write.u64(*size);
            write.time(*noticed);
        });
        write.list(self.gaps.iter(), |write, (start, hole)| {
            write.u64(start);
            write.u64(hole.end);
            write.time(hole.noticed);
            write.u8(u8::from(hole.lost) + u8::from(hole.gone));
        });
        write.list(self.order.runs.iter(), |write, run| {
            write.u64(run.first);
            write.u64(run.len);
            write.u8(u8::from(run.late));
        });
        write.list(self.altered.iter(), |write, (number, copies)| {
            write.u64(*number);
            write.u32(*copies);
        });
        write.list(self.parts.iter(), |write, (number, parts)| {
            write.u64(*number);
            write.u8(parts.of);
            parts.seen.iter().for_each(|word| write.u64(*word));
        });
        write.option(self.declared.as_deref(), |write, declared| {
            write.list(declared.numbers.iter(), |write, (start, run)| {
                write.u64(start);
                write.u64(run.end);
            });
            write.option(declared.came.as_ref(), |write, number| write.u64(*number));
        });
        self.windows.save(&mut write);
        seal(digest, from, out);
    }

    /// Reads what [`LaneLedger::save`] wrote.
    pub fn restore(bytes: &[u8], digest: &impl Digest) -> Result<Self, StateError> {
        let mut read = Fields::new(check(digest, bytes)?);
        let version = read.u8("version")?;
        if !(VERSION_BEFORE..=VERSION).contains(&version) {
            return Err(StateError::Version(version));
        }
        let join = match read.u8("join")? {
            0 => Join::Beginning,
            1 => Join::Late,
            2 => Join::Member,
            _ => return Err(read.refuse("join")),
        };
        let start = read.option(|read| read.u64("start"))?;
        let closed = read.option(|read| read.u64("end of the epoch"))?;
        let next = read.u64("next number")?;
        let moved = read.u64("count of moved")?;
        let covered = read.u64("covered size")?;
        let checkpoints = read.u32("count of checkpoints")?;
        let heard = read.time("time of the last checkpoint")?;
        let flags = read.u8("flags")?;
        let contradictions = if version >= COUNTS_CONTRADICTIONS {
            read.u32("count of contradictions")?
        } else {
            0
        };
        let tails = read.list(|read| Ok((read.u64("tail")?, read.time("time of a tail")?)))?;
        let mut gaps = Gaps::default();
        let mut end = 0;
        read.list(|read| {
            let hole = read.u64("gap")?..read.u64("end of a gap")?;
            let (noticed, state) = (read.time("time of a gap")?, read.u8("gap's state")?);
            if hole.is_empty() || hole.start < end || state > 2 {
                return Err(read.refuse("ordered gap"));
            }
            end = hole.end;
            gaps.open(hole.clone(), noticed, state > 0);
            if state == 2 {
                gaps.write_off(&hole);
            }
            Ok(())
        })?;
        let runs = read.list(|read| {
            Ok(Run {
                first: read.u64("run")?,
                len: read.u64("length of a run")?,
                late: read.bool("run's state")?,
            })
        })?;
        let altered = read.list(|read| Ok((read.u64("altered")?, read.u32("copies")?)))?;
        let parts = read.list(|read| {
            let (number, of) = (read.u64("split message")?, read.u8("count of parts")?);
            let mut seen = [0; 4];
            for word in &mut seen {
                *word = read.u64("parts")?;
            }
            Ok((number, Parts { of, seen }))
        })?;
        let declared = if version >= KNOWS_DECLARED {
            read.option(|read| Declared::restore(read, &gaps))?
        } else {
            None
        };
        let mut windows = Windows::restore(&mut read, version)?;
        windows.keep_proven = join == Join::Member;
        read.end()?;
        Ok(Self {
            join,
            start,
            next,
            gaps,
            order: Order { runs },
            moved,
            tails,
            covered,
            closed,
            checkpoints,
            come: flags & 16 != 0,
            heard,
            idle: flags & 1 != 0,
            silent: flags & 2 != 0,
            over: flags & 4 != 0,
            doubted: flags & 8 != 0,
            contradictions,
            altered: BTreeMap::from_iter(altered),
            parts: BTreeMap::from_iter(parts),
            declared: declared.map(Box::new),
            windows,
            events: Events::default(),
        })
    }
}

/// The oldest version that is read; from the next one on an epoch may be cut.
const VERSION_BEFORE: u8 = 2;
/// From this version on contradictions are counted.
const COUNTS_CONTRADICTIONS: u8 = 4;
/// From this version on it is saved what drop records name.
const KNOWS_DECLARED: u8 = 5;
/// From this version on what a checkpoint told of a cut is apart from what those with numbers told.
const KNOWS_CUT: u8 = 6;
const VERSION: u8 = 6;

impl Declared {
    fn restore(read: &mut Fields<'_>, gaps: &Gaps) -> Result<Self, StateError> {
        let (mut numbers, mut end) = (Gaps::default(), 0);
        read.list(|read| {
            let run = read.u64("declared run")?..read.u64("end of a declared run")?;
            if run.is_empty() || run.start < end || gaps.missing_in(run.clone()) > 0 {
                return Err(read.refuse("ordered declared run"));
            }
            end = run.end;
            numbers.add(run);
            Ok(())
        })?;
        let came = read.option(|read| read.u64("declared number that came"))?;
        Ok(Self { numbers, came })
    }
}

impl Windows {
    fn save(&self, write: &mut Writer<'_>) {
        write.u64(self.reached);
        write.u64(self.trunk_end);
        write.option(self.trunk.as_ref(), |write, trunk| {
            write.list(trunk.iter(), |write, hash| write.hash(&hash));
        });
        write.option(self.newest.as_ref(), |write, claim| claim.save(write));
        write.list(self.open.iter(), |write, window| window.save(write));
        write.u8(u8::from(self.hold_leaves));
        write.option(self.cut.as_deref(), |write, claim| claim.save(write));
    }

    fn restore(read: &mut Fields<'_>, version: u8) -> Result<Self, StateError> {
        let reached = read.u64("count of windows")?;
        let trunk_end = read.u64("end of the trunk")?;
        if trunk_end > MAX_SIZE / WINDOW {
            return Err(read.refuse("end of the trunk"));
        }
        let mut windows = Self {
            reached,
            trunk_end,
            trunk: read.option(|read| {
                let hashes = read.list(|read| read.hash("subtree of the trunk"))?;
                let expected = usize::try_from(trunk_end.count_ones());
                HashList::of(hashes.iter())
                    .filter(|trunk| Ok(trunk.len()) == expected)
                    .ok_or_else(|| read.refuse("whole trunk"))
            })?,
            newest: read.option(Claim::restore)?,
            open: read.list(Window::restore)?,
            keep_proven: false,
            hold_leaves: read.bool("way of holding leaves")?,
            holds_all: false,
            cut: None,
            found: Vec::new(),
        };
        if version >= KNOWS_CUT {
            windows.cut = read.option(Claim::restore)?.map(Box::new);
        } else {
            let is_cut = |newest: &mut Claim| newest.end == EpochEnd::Cut;
            windows.cut = windows.newest.take_if(is_cut).map(Box::new);
        }
        Ok(windows)
    }
}

impl Window {
    fn save(&self, write: &mut Writer<'_>) {
        write.u64(self.index);
        write.u16(self.slots.prefix().len());
        write_sums(self.slots.prefix().sums(), write);
        write.list(self.slots.nodes_from(0), |write, node| {
            write.u16(node.start);
            write.u8(node.level);
            write.hash(&node.hash);
        });
        write.option(self.claim.as_ref(), |write, (size, root)| {
            write.u16(*size);
            write.hash(root);
        });
        write.list(self.doubt.dropped.iter(), |write, slot| write.u16(*slot));
        write.list(self.doubt.forged.iter(), |write, slot| write.u16(*slot));
        write.list(self.doubt.seconds.iter(), |write, (slot, hash)| {
            write.u16(*slot);
            write.hash(hash);
        });
        match &self.doubt.detail {
            Detail::None => write.u8(0),
            Detail::Fingerprints(prints) => {
                write.u8(1);
                write.list(prints.iter(), |write, print| {
                    write.u32(u32::from_be_bytes(*print));
                });
            }
            Detail::Leaves(leaves) => {
                write.u8(2);
                write.list(leaves.iter(), Writer::hash);
            }
        }
        write.option(self.doubt.told.as_ref(), |write, (state, account)| {
            write.u8(match state {
                State::Proven => 0,
                State::Faulty => 1,
                State::Unproven => 2,
            });
            for count in [
                account.issued,
                account.arrived,
                account.dropped,
                account.lost,
                account.altered,
                account.forged,
                account.open,
            ] {
                write.u64(count);
            }
        });
        write.u8(u8::from(self.doubt.differs));
        write_sums(self.doubt.sums.iter().copied(), write);
        write.list(self.doubt.groups.iter(), Writer::hash);
        write.u32(self.doubt.open_groups);
    }

    fn restore(read: &mut Fields<'_>) -> Result<Self, StateError> {
        let index = read.u64("window")?;
        let folded = read.u16("count of folded leaves")?;
        let sums = read_sums(read)?;
        let mut end = 0;
        let nodes = read.list(|read| {
            let (start, level) = (read.u16("slot")?, read.u8("level")?);
            let hash = read.hash("leaf or subtree")?;
            if level > WINDOW_LOG2
                || start < end
                || start > SLOTS - (1 << level)
                || start % (1 << level) != 0
            {
                return Err(read.refuse("ordered slot"));
            }
            let node = Node { start, level, hash };
            end = node.end();
            Ok(node)
        })?;
        let (prefix, rest) = nodes.split_at(nodes.partition_point(|node| node.start < folded));
        let prefix = Prefix::of(prefix, &sums).filter(|prefix| prefix.len() == folded);
        let prefix = prefix.ok_or_else(|| read.refuse("folded leaves"))?;
        let slots = Slots::behind(prefix, rest.iter().copied());
        let claim = read.option(|read| {
            let size = read.u16("size of a window")?;
            if size > SLOTS {
                return Err(read.refuse("size of a window"));
            }
            Ok((size, read.hash("root of a window")?))
        })?;
        let doubts = Doubts {
            dropped: read.list(|read| read.u16("dropped slot"))?,
            forged: read.list(|read| read.u16("forged slot"))?,
            seconds: read.list(|read| Ok((read.u16("slot")?, read.hash("second copy")?)))?,
            detail: match read.u8("detail")? {
                0 => Detail::None,
                1 => Detail::Fingerprints(
                    read.list(|read| Ok(read.u32("fingerprint")?.to_be_bytes()))?,
                ),
                2 => Detail::Leaves(read.list(|read| read.hash("leaf of the detail"))?),
                _ => return Err(read.refuse("detail")),
            },
            told: read.option(|read| {
                let state = match read.u8("state")? {
                    0 => State::Proven,
                    1 => State::Faulty,
                    2 => State::Unproven,
                    _ => return Err(read.refuse("state")),
                };
                let account = Account {
                    issued: read.u64("count of issued")?,
                    arrived: read.u64("count of arrived")?,
                    dropped: read.u64("count of dropped")?,
                    lost: read.u64("count of lost")?,
                    altered: read.u64("count of altered")?,
                    forged: read.u64("count of forged")?,
                    open: read.u64("count of open")?,
                };
                Ok((state, account))
            })?,
            differs: read.bool("comparison")?,
            sums: read_sums(read)?,
            groups: read.list(|read| read.hash("group"))?,
            open_groups: read.u32("open groups")?,
        };
        Ok(Self {
            index,
            slots,
            claim,
            doubt: doubts.into(),
        })
    }
}

fn write_sums(sums: impl Iterator<Item = Sum>, write: &mut Writer<'_>) {
    write.list(sums, |write, sum| {
        write.u16(sum.start);
        write.u16(sum.count);
        write.hash(&sum.value);
    });
}

fn read_sums(read: &mut Fields<'_>) -> Result<Vec<Sum>, StateError> {
    read.list(|read| {
        let (start, count) = (read.u16("group")?, read.u16("leaves of a sum")?);
        let value = read.hash("sum of leaves")?;
        if start % GROUP != 0 || start >= SLOTS || count > GROUP {
            return Err(read.refuse("sum of a group"));
        }
        Ok(Sum {
            start,
            count,
            value,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Hash, Hasher};

    fn hash() -> Hash {
        Hash::new(&[1; 16]).expect("16 bytes are a hash")
    }

    fn restored(ledger: &LaneLedger) -> Result<LaneLedger, StateError> {
        let mut saved = Vec::new();
        ledger.save(&Hasher::xxh3(), &mut saved);
        LaneLedger::restore(&saved, &Hasher::xxh3())
    }

    /// A lane with one hole, whose fields are put in the place of what was saved.
    fn with_gaps(gaps: &[(u64, u64, u8)]) -> Result<LaneLedger, StateError> {
        let hasher = Hasher::xxh3();
        let mut ledger = LaneLedger::new(Join::Beginning);
        let mut before = Vec::new();
        ledger.save(&hasher, &mut before);
        ledger.gaps.open(1..2, Duration::ZERO, false);
        let mut saved = Vec::new();
        ledger.save(&hasher, &mut saved);
        // The count of gaps is where the two differ first: its last byte.
        let differ = before
            .iter()
            .zip(&saved)
            .position(|(one, other)| one != other);
        let count = differ.expect("one has a gap") + 1;
        let mut one = Vec::new();
        let mut write = Writer(&mut one);
        write.list(ledger.gaps.iter(), |write, (start, hole)| {
            write.u64(start);
            write.u64(hole.end);
            write.time(hole.noticed);
            write.u8(0);
        });
        let mut bytes = saved[..count - 4].to_vec();
        let mut write = Writer(&mut bytes);
        write.list(gaps.iter(), |write, (start, end, state)| {
            write.u64(*start);
            write.u64(*end);
            write.time(Duration::ZERO);
            write.u8(*state);
        });
        let tag = 16;
        bytes.extend_from_slice(&saved[count - 4 + one.len()..saved.len() - tag]);
        seal(&hasher, 0, &mut bytes);
        LaneLedger::restore(&bytes, &hasher)
    }

    #[test]
    fn gaps_are_read_as_they_were_and_only_in_order() {
        for gaps in [
            &[][..],
            &[(1, 2, 0)],
            &[(1, 2, 1)],
            &[(1, 2, 2)],
            &[(1, 2, 0), (2, 3, 1), (5, 9, 2)],
        ] {
            let ledger = with_gaps(gaps).unwrap_or_else(|error| panic!("{gaps:?}: {error}"));
            let read: Vec<_> = ledger
                .gaps
                .iter()
                .map(|(start, hole)| (start, hole.end, u8::from(hole.lost) + u8::from(hole.gone)))
                .collect();
            assert_eq!(read, gaps);
            assert_eq!(restored(&ledger), Ok(ledger));
        }
        for gaps in [
            &[(2, 2, 0)][..],
            &[(2, 1, 0)],
            &[(1, 2, 3)],
            &[(1, 4, 0), (3, 6, 0)],
            &[(5, 6, 0), (1, 2, 0)],
        ] {
            assert!(with_gaps(gaps).is_err(), "{gaps:?}");
        }
    }

    #[test]
    fn a_trunk_ends_where_a_lane_may() {
        for (end, may) in [(MAX_SIZE / WINDOW, true), (MAX_SIZE / WINDOW + 1, false)] {
            let mut ledger = LaneLedger::new(Join::Late);
            ledger.windows.trunk_end = end;
            assert_eq!(restored(&ledger).is_ok(), may, "{end}");
        }
    }

    /// A window with these subtrees and sums.
    fn window(nodes: &[(u16, u8)], sums: &[(u16, u16)]) -> Result<Window, StateError> {
        let mut bytes = Vec::new();
        let mut write = Writer(&mut bytes);
        let none: [u16; 0] = [];
        write.u64(0);
        write.u16(0);
        write_sums([].into_iter(), &mut write);
        write.list(nodes.iter(), |write, (start, level)| {
            write.u16(*start);
            write.u8(*level);
            write.hash(&hash());
        });
        write.option(None::<&u8>, |_, _| {});
        for _ in 0..3 {
            write.list(none.iter(), |write, slot| write.u16(*slot));
        }
        write.u8(0);
        write.option(None::<&u8>, |_, _| {});
        write.u8(0);
        let sums = sums.iter().map(|(start, count)| Sum {
            start: *start,
            count: *count,
            value: hash(),
        });
        write_sums(sums, &mut write);
        write.list(none.iter(), |write, slot| write.u16(*slot));
        write.u32(0);
        let mut read = Fields::new(&bytes);
        let window = Window::restore(&mut read)?;
        read.end()?;
        Ok(window)
    }

    #[test]
    fn the_subtrees_of_a_window_are_aligned_in_order_and_within_it() {
        for nodes in [
            &[][..],
            &[(0, 10)],
            &[(1_023, 0)],
            &[(1_022, 1)],
            &[(0, 1), (2, 0), (4, 2)],
        ] {
            let window = window(nodes, &[]).unwrap_or_else(|error| panic!("{nodes:?}: {error}"));
            let read: Vec<_> = window
                .slots
                .nodes_from(0)
                .map(|node| (node.start, node.level))
                .collect();
            assert_eq!(read, nodes);
        }
        for nodes in [
            &[(0, 11)][..],
            &[(1_024, 0)],
            &[(1_024, 1)],
            &[(1, 1)],
            &[(0, 1), (1, 0)],
            &[(2, 0), (0, 0)],
        ] {
            assert!(window(nodes, &[]).is_err(), "{nodes:?}");
        }
    }

    #[test]
    fn the_sums_of_a_window_are_of_its_groups() {
        for sums in [&[][..], &[(0, 32)], &[(992, 1)]] {
            assert!(window(&[], sums).is_ok(), "{sums:?}");
        }
        for sums in [&[(1, 1)][..], &[(1_024, 1)], &[(0, 33)]] {
            assert!(window(&[], sums).is_err(), "{sums:?}");
        }
    }

    #[test]
    fn what_was_reported_of_a_window_is_read_back() {
        for state in [State::Proven, State::Faulty, State::Unproven] {
            let mut ledger = LaneLedger::new(Join::Beginning);
            let mut window = Window::default();
            window.doubt.told = Some((state, Account::default()));
            ledger.windows.open.push(window);
            ledger.windows.reached = 1;
            assert_eq!(restored(&ledger), Ok(ledger));
        }
    }
}
