//! The bytes of a table and of the difference between two tables. Numbers are big-endian.
//!
//! ```text
//! table    "UST1"  hash  copies  seats(2)  slots(4)  epoch(8)  seats x seat  slots x row  check(8)
//! change   "USC1"  hash  copies  seats(2)  slots(4)  from(8)  to(8)  changed seats(2)  changed
//!          rows(4)  seats x {number(2) seat}  rows x {slot(4) row}  result(8)  check(8)
//! seat     node(8)  zone(8)  weight(2)       weight 0: the seat is empty, and the rest is 0
//! row      copies x seat(2)                  the primary first; FFFF: no node
//! ```
//!
//! `hash` is 1 for the hashes of this crate. `check` is XXH3-64 of all bytes before it, and
//! `result` is the check of the table that the change leads to.
//!
//! Invariants: what is read was written by this module, or is refused; nothing is allocated before
//! the length of the input has shown that it is there.

use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

use super::{NONE, Shape, SlotTable, TableError};
use crate::limits::NODES_MAX;
use crate::node::{InvalidWeight, Node, NodeId, Weight, Zone};

const TABLE: [u8; 4] = *b"UST1";
const CHANGE: [u8; 4] = *b"USC1";
const XXH3: u8 = 1;
const SEAT_BYTES: usize = 18;

/// The difference between a table and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    shape: Shape,
    from: u64,
    to: u64,
    seats_after: usize,
    seats: Vec<(u16, Option<Node>)>,
    rows: Vec<(u32, Vec<u16>)>,
    result: u64,
}

/// Why bytes are neither a table nor a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another format, or another version of it.
    #[error("the bytes do not begin as a slot table of this version does")]
    Unknown,
    /// Too few or too many bytes for what they say they are.
    #[error("{0} bytes, where the header calls for {1}")]
    Length(usize, usize),
    /// Damaged.
    #[error("the check does not match the bytes")]
    Check,
    /// A shape that no table has.
    #[error(transparent)]
    Shape(#[from] TableError),
    /// A weight that no node has.
    #[error(transparent)]
    Weight(#[from] InvalidWeight),
    /// A seat is named twice, is out of range, or is empty and not all zero.
    #[error("seat {0} is not as it must be")]
    Seat(u16),
    /// The row names an empty seat, one twice, or no primary.
    #[error("the row of slot {0} is not as it must be")]
    Row(u32),
    /// Epochs count up from 1.
    #[error("epoch {0} cannot be")]
    Epoch(u64),
}

/// Why a change does not fit a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleChange {
    /// It starts from another epoch.
    #[error("the change starts from epoch {from}, and this is {epoch}")]
    Epoch {
        /// Where the change starts.
        from: u64,
        /// The table's.
        epoch: u64,
    },
    /// It starts from another table of the same epoch.
    #[error("the change does not lead from this table to the one it was made for")]
    Table,
}

impl SlotTable {
    /// The table as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = header(TABLE, self.shape, self.seats.len());
        out.extend(self.epoch.to_be_bytes());
        for seat in &self.seats {
            put_seat(&mut out, seat.as_ref());
        }
        put_row(&mut out, &self.rows);
        seal(out)
    }

    /// Reads a table.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::open(bytes, TABLE)?;
        let (shape, seats) = reader.shape()?;
        let epoch = reader.u64();
        if epoch == 0 {
            return Err(DecodeError::Epoch(epoch));
        }
        let rows = shape.slots as usize * usize::from(shape.copies);
        reader.expect_rest(seats * SEAT_BYTES + rows * 2)?;
        let numbers = 0..u16::try_from(seats).expect("a table has at most 1,024 seats");
        let seats: Result<_, _> = numbers.map(|number| reader.seat(number)).collect();
        let rows = (0..rows).map(|_| reader.u16()).collect();
        let table = Self {
            epoch,
            shape,
            seats: seats?,
            rows,
        };
        table.check()?;
        Ok(table)
    }

    /// The difference to a later table of the same shape.
    pub fn change_to(&self, next: &Self) -> Option<Change> {
        if self.shape != next.shape || self.epoch >= next.epoch {
            return None;
        }
        let copies = usize::from(self.shape.copies);
        let rows = self.rows.chunks(copies).zip(next.rows.chunks(copies));
        let rows = (0..)
            .zip(rows)
            .filter(|(_, (before, after))| before != after);
        let before = |number: u16| self.node(number);
        let seats = (0..)
            .zip(&next.seats)
            .filter(|(number, after)| before(*number) != **after);
        let encoded = next.encode();
        Some(Change {
            shape: self.shape,
            from: self.epoch,
            to: next.epoch,
            seats_after: next.seats.len(),
            seats: seats.map(|(number, after)| (number, *after)).collect(),
            rows: rows
                .map(|(slot, (_, after))| (slot, after.to_vec()))
                .collect(),
            result: check_of(&encoded),
        })
    }

    /// The table that a change leads to.
    pub fn changed(&self, change: &Change) -> Result<Self, StaleChange> {
        if change.shape != self.shape || change.from != self.epoch {
            return Err(StaleChange::Epoch {
                from: change.from,
                epoch: self.epoch,
            });
        }
        let mut next = self.clone();
        next.epoch = change.to;
        next.seats.resize(change.seats_after, None);
        for (number, node) in &change.seats {
            next.seats[usize::from(*number)] = *node;
        }
        let copies = usize::from(self.shape.copies);
        for (slot, row) in &change.rows {
            next.rows[*slot as usize * copies..][..copies].copy_from_slice(row);
        }
        if check_of(&next.encode()) != change.result {
            return Err(StaleChange::Table);
        }
        Ok(next)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let members = self.seats.iter().flatten().count();
        if members == 0 {
            return Err(TableError::Nodes(0).into());
        }
        let mut ids = BTreeSet::new();
        if let Some(node) = self
            .seats
            .iter()
            .flatten()
            .find(|node| !ids.insert(node.id))
        {
            return Err(TableError::Repeated(node.id).into());
        }
        for (slot, row) in (0..).zip(self.rows.chunks(self.shape.copies.into())) {
            let wanted = row.len().min(members);
            let is_node = |seat: &u16| self.node(*seat).is_some();
            let differ = (1..wanted).all(|at| !row[..at].contains(&row[at]));
            let rest = row[wanted..].iter().all(|seat| *seat == NONE);
            if !(row[..wanted].iter().all(is_node) && differ && rest) {
                return Err(DecodeError::Row(slot));
            }
        }
        Ok(())
    }
}

impl Change {
    /// The epochs it leads from and to.
    pub fn epochs(&self) -> (u64, u64) {
        (self.from, self.to)
    }

    /// The change as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = header(CHANGE, self.shape, self.seats_after);
        out.extend(self.from.to_be_bytes());
        out.extend(self.to.to_be_bytes());
        let seats = u16::try_from(self.seats.len()).expect("a table has at most 1,024 seats");
        let rows = u32::try_from(self.rows.len()).expect("a table has at most 65,536 slots");
        out.extend(seats.to_be_bytes());
        out.extend(rows.to_be_bytes());
        for (number, node) in &self.seats {
            out.extend(number.to_be_bytes());
            put_seat(&mut out, node.as_ref());
        }
        for (slot, row) in &self.rows {
            out.extend(slot.to_be_bytes());
            put_row(&mut out, row);
        }
        out.extend(self.result.to_be_bytes());
        seal(out)
    }

    /// Reads a change.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::open(bytes, CHANGE)?;
        let (shape, seats_after) = reader.shape()?;
        let (from, to) = (reader.u64(), reader.u64());
        if from == 0 || to <= from {
            return Err(DecodeError::Epoch(to));
        }
        let (seats, rows) = (reader.u16(), reader.u32());
        let row_bytes = 4 + 2 * u64::from(shape.copies);
        let rest = u64::from(seats) * (2 + SEAT_BYTES as u64) + u64::from(rows) * row_bytes + 8;
        reader.expect_rest(usize::try_from(rest).unwrap_or(usize::MAX))?;
        let mut change = Self {
            shape,
            from,
            to,
            seats_after,
            seats: Vec::new(),
            rows: Vec::new(),
            result: 0,
        };
        for _ in 0..seats {
            let number = reader.u16();
            let is_next = change.seats.last().is_none_or(|(last, _)| *last < number);
            if !is_next || usize::from(number) >= seats_after {
                return Err(DecodeError::Seat(number));
            }
            change.seats.push((number, reader.seat(number)?));
        }
        for _ in 0..rows {
            let slot = reader.u32();
            let is_next = change.rows.last().is_none_or(|(last, _)| *last < slot);
            if !is_next || slot >= shape.slots {
                return Err(DecodeError::Row(slot));
            }
            let row = (0..shape.copies).map(|_| reader.u16()).collect();
            change.rows.push((slot, row));
        }
        change.result = reader.u64();
        Ok(change)
    }
}

fn header(magic: [u8; 4], shape: Shape, seats: usize) -> Vec<u8> {
    let seats = u16::try_from(seats).expect("a table has at most 1,024 seats");
    let mut out = magic.to_vec();
    out.extend([XXH3, shape.copies]);
    out.extend(seats.to_be_bytes());
    out.extend(shape.slots.to_be_bytes());
    out
}

fn put_seat(out: &mut Vec<u8>, node: Option<&Node>) {
    let (id, zone, weight) = node.map_or((0, 0, 0), |node| {
        (node.id.0, node.zone.0, node.weight.get())
    });
    out.extend(id.to_be_bytes());
    out.extend(zone.to_be_bytes());
    out.extend(weight.to_be_bytes());
}

fn put_row(out: &mut Vec<u8>, row: &[u16]) {
    out.extend(row.iter().flat_map(|seat| seat.to_be_bytes()));
}

fn seal(mut out: Vec<u8>) -> Vec<u8> {
    out.extend(xxh3_64(&out).to_be_bytes());
    out
}

/// Of bytes that were sealed.
fn check_of(sealed: &[u8]) -> u64 {
    let mut reader = Reader {
        rest: &sealed[sealed.len().saturating_sub(8)..],
        whole: sealed.len(),
    };
    reader.u64()
}

/// Bytes whose check has been found right. Reads past the end give zeros: every length is checked
/// by [`Reader::expect_rest`] before.
struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8], magic: [u8; 4]) -> Result<Self, DecodeError> {
        const HEADER: usize = 20;
        let Some((rest, check)) = bytes.split_last_chunk::<8>() else {
            return Err(DecodeError::Length(bytes.len(), HEADER + 8));
        };
        let body = rest
            .strip_prefix(&magic)
            .and_then(|rest| rest.strip_prefix(&[XXH3]));
        let body = body.ok_or(DecodeError::Unknown)?;
        if rest.len() < HEADER {
            return Err(DecodeError::Length(bytes.len(), HEADER + 8));
        }
        if xxh3_64(rest) != u64::from_be_bytes(*check) {
            return Err(DecodeError::Check);
        }
        Ok(Self {
            rest: body,
            whole: bytes.len(),
        })
    }

    fn expect_rest(&self, length: usize) -> Result<(), DecodeError> {
        if self.rest.len() == length {
            return Ok(());
        }
        let read = self.whole - self.rest.len();
        Err(DecodeError::Length(self.whole, read.saturating_add(length)))
    }

    fn shape(&mut self) -> Result<(Shape, usize), DecodeError> {
        let copies = self.take::<1>()[0];
        let seats = usize::from(self.u16());
        let slots = self.u32();
        let shape = Shape { slots, copies };
        shape.check()?;
        if seats == 0 || seats > NODES_MAX {
            return Err(TableError::Nodes(seats).into());
        }
        Ok((shape, seats))
    }

    fn seat(&mut self, number: u16) -> Result<Option<Node>, DecodeError> {
        let (id, zone, weight) = (self.u64(), self.u64(), self.u16());
        if weight == 0 {
            let is_empty = id == 0 && zone == 0;
            return is_empty.then_some(None).ok_or(DecodeError::Seat(number));
        }
        Ok(Some(Node {
            id: NodeId(id),
            zone: Zone(zone),
            weight: Weight::try_from(weight)?,
        }))
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk() {
            Some((taken, rest)) => {
                self.rest = rest;
                *taken
            }
            None => [0; N],
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}
