//! Reads whole batches of a journal; the format is in [`super`].

use super::super::engine;
use super::super::link::Link;
use super::super::opened::LINK_KEY;
use super::PIECE_BYTES;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// The whole batches at the beginning of a journal.
pub(super) struct Whole {
    pub(super) from: BufReader<File>,
    /// Up to where it was read, and was whole.
    pub(super) at: u64,
    pub(super) length: u64,
}

impl Whole {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let from = BufReader::with_capacity(PIECE_BYTES, file);
        Ok(Self {
            from,
            at: 0,
            length,
        })
    }

    pub(super) fn next(&mut self, own: u64) -> io::Result<Option<Batch>> {
        let room = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
        let batch = batch(&mut self.from, room, own)?;
        if let Some(batch) = &batch {
            self.at += batch.bytes as u64;
        }
        Ok(batch)
    }

    /// Or what may be something, and the disk does not give it back.
    pub(super) fn anything_follows(mut self) -> io::Result<bool> {
        self.from.seek(SeekFrom::Start(self.at))?;
        let (mut piece, zeros) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        loop {
            match self.from.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(read) if piece.get(..read) != zeros.get(..read) => return Ok(true),
                Err(error) if engine::is_unreadable(&error) => return Ok(true),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// A whole batch, with a right checksum.
pub(super) struct Batch {
    pub(super) bytes: usize,
    /// What its first item is, and into which tree that is put; none if it is something else.
    pub(super) link: Option<(u64, Link)>,
    /// What it puts into the store's own tree.
    pub(super) own: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The batch at the beginning of a part of a journal.
pub(super) fn batch_at(mut part: &[u8], own: u64) -> Option<Batch> {
    let room = part.len();
    batch(&mut part, room, own).ok().flatten()
}

/// Reads a batch; none if there is no whole one.
pub(super) fn batch(from: &mut impl Read, room: usize, own: u64) -> io::Result<Option<Batch>> {
    match read_batch(&mut Room { from, left: room }, own) {
        Ok(batch) => Ok(Some(Batch {
            bytes: room - batch.bytes,
            ..batch
        })),
        Err(NotWhole::Here) => Ok(None),
        Err(NotWhole::Unreadable(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(NotWhole::Unreadable(error)) => Err(error),
    }
}

pub(super) enum NotWhole {
    Here,
    Unreadable(io::Error),
}

/// As `batch`, but `bytes` is what is left of the room.
pub(super) fn read_batch(from: &mut Room<'_, impl Read>, own: u64) -> Result<Batch, NotWhole> {
    from.expect(START)?;
    let count = u32::from_le_bytes(from.array()?);
    let _seqno: [u8; 8] = from.array()?;
    let mut hash = Xxh3::new();
    let (mut link, mut puts) = (None, Vec::new());
    for at in 0..count {
        let [tag] = from.array()?;
        hash.write(&[tag]);
        match tag {
            ITEM => {
                let head: [u8; 20] = from.array()?;
                hash.write(&head);
                let [
                    kind,
                    compression,
                    tree @ ..,
                    k0,
                    k1,
                    v0,
                    v1,
                    v2,
                    v3,
                    l0,
                    l1,
                    l2,
                    l3,
                ] = head;
                let tree = u64::from_le_bytes(tree);
                let key = usize::from(u16::from_le_bytes([k0, k1]));
                let value = u32::from_le_bytes([v0, v1, v2, v3]);
                let lies = u32::from_le_bytes([l0, l1, l2, l3]);
                let known = matches!(kind, PUT | REMOVE | REMOVE_ONE)
                    && match compression {
                        PLAIN => value == lies,
                        LZ4 => true,
                        _ => false,
                    };
                if !known {
                    return Err(NotWhole::Here);
                }
                let key = from.bytes(key)?;
                let value = from.bytes(lies as usize)?;
                hash.write(&key);
                hash.write(&value);
                let is_put = kind == PUT && compression == PLAIN;
                if at == 0 && is_put && key == LINK_KEY {
                    link = Link::decode(&value).map(|link| (tree, link));
                }
                if tree == own && is_put {
                    puts.push((key, value));
                }
            }
            CLEAR => hash.write(&from.array::<8>()?),
            _ => return Err(NotWhole::Here),
        }
    }
    from.expect(END)?;
    let checksum = u64::from_le_bytes(from.array()?);
    if from.array()? != TRAILER || checksum != hash.finish() {
        return Err(NotWhole::Here);
    }
    Ok(Batch {
        bytes: from.left,
        link,
        own: puts,
    })
}

/// A reader that is not asked for more than there can be.
pub(super) struct Room<'a, R> {
    pub(super) from: &'a mut R,
    pub(super) left: usize,
}

impl<R: Read> Room<'_, R> {
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), NotWhole> {
        self.left = self.left.checked_sub(bytes).ok_or(NotWhole::Here)?;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], NotWhole> {
        self.take(N)?;
        let mut bytes = [0; N];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(NotWhole::Unreadable)?;
        Ok(bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<Vec<u8>, NotWhole> {
        self.take(count)?;
        let mut bytes = vec![0; count];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(NotWhole::Unreadable)?;
        Ok(bytes)
    }

    pub(super) fn expect(&mut self, tag: u8) -> Result<(), NotWhole> {
        match self.array()? {
            [found] if found == tag => Ok(()),
            _ => Err(NotWhole::Here),
        }
    }
}

/// The number of the first tree that a store makes: that of its own.
pub(super) const FIRST_TREE: u64 = 1;
pub(super) const START: u8 = 1;
/// With how many items there are, and its number in the engine.
pub(super) const START_BYTES: usize = 13;
pub(super) const ITEM: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const CLEAR: u8 = 4;
pub(super) const PUT: u8 = 0;
pub(super) const REMOVE: u8 = 1;
pub(super) const REMOVE_ONE: u8 = 2;
pub(super) const PLAIN: u8 = 0;
pub(super) const LZ4: u8 = 1;
pub(super) const TRAILER: [u8; 4] = *b"FJL\x03";
