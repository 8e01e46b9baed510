//! What a publisher remembers on disk, so that a restart continues its lane.
//!
//! A file of frames behind 8 bytes of magic; big-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | length of the body |
//! | 4 | check of the length |
//! | 8 | XXH3-64 of the body |
//! | | body: entries |
//!
//! **One policy of syncing.** A frame is written and synced (`fdatasync`) before the first message
//! in it is sent; messages that wait together share a frame. So neither the end of the process nor
//! of the machine makes a number mean two messages. An acknowledgement is synced with the next
//! frame: after a crash the message may be sent again, flagged re-sent.
//!
//! **Invariants.** A frame that was cut off at the end of the file was never acted upon, and is cut
//! away, as is a damaged last one, which looks the same; damage before that is an error, never
//! skipped. One process has a spool at a time. An acknowledged message is trimmed when it is no
//! longer held for repair, or takes room that others need: the file is written anew beside the old
//! one and takes its name.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unbroken_merkle_log::{DropRecord, Epoch, Hasher, Lane, LaneId, LaneLimits};
use unbroken_mqtt_proto::{PacketType, Properties, PropertyBuf, PropertySection, QoS};
use xxhash_rust::xxh3::xxh3_64;

use super::error::SpoolError;
use super::taken::Taken;
use crate::Message;

const MAGIC: &[u8; 8] = b"ubspool1";
const HEAD: usize = 16;

// Kinds of entries; behind each are its fields.
/// A saved lane.
const LANE: u8 = 1;
/// A message: number, QoS, retain flag, topic, properties, payload.
const MESSAGE: u8 = 2;
/// A published checkpoint, with its size.
const TOLD: u8 = 3;
/// The number below which everything is acknowledged.
const ACKNOWLEDGED: u8 = 4;
/// The end of an epoch.
const CLOSED: u8 = 5;
/// The inputs of a processor so far, as [`Taken`] saves them.
const TAKEN: u8 = 6;
/// A drop record of this processor.
const DROPPED: u8 = 7;
/// A lane of inputs of a processor.
const HEARD: u8 = 8;
/// A start of the producer.
const STARTED: u8 = 9;
/// A drop record of another processor.
const ELSEWHERE: u8 = 10;

/// An open spool. Its methods block on the disk.
#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
    file: File,
    /// Of the file.
    bytes: u64,
    bytes_max: u64,
    /// Entries for the next frame.
    body: Vec<u8>,
    /// After the last time it was trimmed.
    trimmed_bytes: u64,
    /// Held while the spool is open.
    _lock: File,
}

/// What was in a spool.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// The lane, caught up; `None` if no epoch is open.
    pub(super) lane: Option<Lane>,
    /// The last epoch that was closed.
    pub(super) closed: Option<Epoch>,
    /// Messages since the saved lane, the newest of which has the lane's last number.
    pub(super) messages: VecDeque<Message>,
    /// Everything below is acknowledged.
    pub(super) acknowledged: u64,
    /// The last checkpoint that was published, and its size.
    pub(super) told: Option<(u32, u64)>,
    /// The inputs that a processor has seen to.
    pub(super) taken: Taken,
    /// Drop records that may not have been told.
    pub(super) dropped: Vec<Arc<[u8]>>,
    /// The last start, as directories tell it, and no less than any epoch: earlier versions told
    /// that in its place.
    pub(super) start: u32,
}

/// What a spool that is written anew has besides messages.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) acknowledged: u64,
    pub(super) told: Option<(u32, u64)>,
    pub(super) taken: Option<Vec<u8>>,
    pub(super) dropped: Vec<Arc<[u8]>>,
    pub(super) start: u32,
}

impl Spool {
    /// Opens the spool of a lane in a directory, and makes both if they are missing.
    pub(super) fn open(
        directory: &Path,
        lane: LaneId,
        bytes_max: u64,
        limits: &LaneLimits,
        hasher: &Hasher,
    ) -> Result<(Self, Remembered), SpoolError> {
        let path = directory.join(format!("{lane}.spool"));
        let failed = |doing| failed(doing, &path);
        fs::create_dir_all(directory).map_err(failed("make a directory for"))?;
        let lock = open_file(&path.with_extension("lock")).map_err(failed("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let mut file = open_file(&path).map_err(failed("open"))?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed("read"))?;
        let is_new = content.len() < MAGIC.len() && MAGIC.starts_with(&content);
        let (remembered, whole) = if is_new {
            file.set_len(0).map_err(failed("empty"))?;
            file.rewind().map_err(failed("empty"))?;
            file.write_all(MAGIC).map_err(failed("write"))?;
            (Remembered::default(), MAGIC.len())
        } else {
            let read = Reading::new(&content, limits, hasher).all();
            read.map_err(|(at, what)| SpoolError::Damaged {
                path: path.clone(),
                at: at as u64,
                what,
            })?
        };
        let bytes = whole as u64;
        file.set_len(bytes)
            .map_err(failed("cut the torn end off"))?;
        file.seek(SeekFrom::Start(bytes)).map_err(failed("read"))?;
        file.sync_data().map_err(failed("sync"))?;
        sync_directory(directory).map_err(failed("sync the directory of"))?;
        let spool = Self {
            path,
            file,
            bytes,
            bytes_max,
            body: Vec::new(),
            trimmed_bytes: 0,
            _lock: lock,
        };
        Ok((spool, remembered))
    }

    /// Notes a new lane.
    pub(super) fn put_lane(&mut self, lane: &Lane, hasher: &Hasher) {
        let mut saved = Vec::new();
        lane.save(lane.size(), hasher, &mut saved);
        put_lane(&saved, &mut self.body);
    }

    /// Whether there is room for these messages too, if nothing is trimmed.
    pub(super) fn has_room<'a>(
        &self,
        messages: impl Iterator<Item = &'a Message>,
    ) -> Result<(), SpoolError> {
        let entries: u64 = messages.map(message_bytes).sum();
        let bytes = self.bytes + (self.body.len() + HEAD) as u64 + entries;
        if bytes > self.bytes_max {
            return Err(SpoolError::Full {
                path: self.path.clone(),
                bytes,
                max: self.bytes_max,
            });
        }
        Ok(())
    }

    /// Notes a message, as it was before it was stamped.
    pub(super) fn put_message(&mut self, number: u64, message: &Message) {
        put_message(number, message, &mut self.body);
    }

    /// Notes that a checkpoint is published.
    pub(super) fn put_told(&mut self, checkpoint: u32, size: u64) {
        self.body.push(TOLD);
        self.body.extend_from_slice(&checkpoint.to_be_bytes());
        self.body.extend_from_slice(&size.to_be_bytes());
    }

    /// Notes that everything below a number is acknowledged.
    pub(super) fn put_acknowledged(&mut self, below: u64) {
        self.body.push(ACKNOWLEDGED);
        self.body.extend_from_slice(&below.to_be_bytes());
    }

    /// Notes the end of an epoch.
    pub(super) fn put_closed(&mut self, epoch: Epoch) {
        self.body.push(CLOSED);
        self.body.extend_from_slice(&epoch.0.to_be_bytes());
    }

    /// Notes what a processor has seen to, as [`Taken::save`] gives it.
    pub(super) fn put_taken(&mut self, saved: &[u8]) {
        self.body.push(TAKEN);
        put_bytes(saved, &mut self.body);
    }

    /// Notes a drop record that is to be published.
    pub(super) fn put_dropped(&mut self, record: &[u8]) {
        self.body.push(DROPPED);
        put_bytes(record, &mut self.body);
    }

    /// Notes a drop record that another processor has told.
    pub(super) fn put_elsewhere(&mut self, record: &[u8]) {
        self.body.push(ELSEWHERE);
        put_bytes(record, &mut self.body);
    }

    /// Notes that inputs come in a lane.
    pub(super) fn put_heard(&mut self, lane: LaneId) {
        self.body.push(HEARD);
        self.body.extend_from_slice(&lane.value().to_be_bytes());
    }

    /// Notes a start of the producer.
    pub(super) fn put_start(&mut self, start: u32) {
        self.body.push(STARTED);
        self.body.extend_from_slice(&start.to_be_bytes());
    }

    /// Whether something is noted and not written.
    pub(super) fn has_notes(&self) -> bool {
        !self.body.is_empty()
    }

    /// Writes and syncs what was noted. After an error the spool must not be used any more: what
    /// the disk has is not known.
    pub(super) fn commit(&mut self) -> Result<(), SpoolError> {
        if self.body.is_empty() {
            return Ok(());
        }
        let frame = frame(&self.body);
        let failed = |doing| failed(doing, &self.path);
        self.file.write_all(&frame).map_err(failed("write"))?;
        self.file.sync_data().map_err(failed("sync"))?;
        self.bytes += frame.len() as u64;
        self.body.clear();
        Ok(())
    }

    /// The largest that it may become.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Whether anything was written or noted since it was trimmed.
    pub(super) fn has_grown(&self) -> bool {
        self.has_notes() || self.bytes > self.trimmed_bytes
    }

    /// Whether it has grown enough for trimming to be worth its while: to twice what was left, or
    /// into half of the room that was.
    pub(super) fn is_worth_trimming(&self) -> bool {
        let twice = (self.trimmed_bytes * 2).max(1 << 20);
        let into_half = self.trimmed_bytes.midpoint(self.bytes_max);
        self.bytes > twice.min(into_half)
    }

    /// Writes the spool anew, from a saved lane on: `saved` is the lane, `messages` those since,
    /// with their numbers.
    pub(super) fn rewrite<'a>(
        &mut self,
        saved: &[u8],
        messages: impl Iterator<Item = (u64, &'a Message)>,
        rest: &Rest,
    ) -> Result<(), SpoolError> {
        self.commit()?;
        put_lane(saved, &mut self.body);
        self.put_start(rest.start);
        if let Some(taken) = &rest.taken {
            self.put_taken(taken);
        }
        for (number, message) in messages {
            put_message(number, message, &mut self.body);
        }
        if let Some((checkpoint, size)) = rest.told {
            self.put_told(checkpoint, size);
        }
        rest.dropped
            .iter()
            .for_each(|record| self.put_dropped(record));
        self.put_acknowledged(rest.acknowledged);
        let new = self.path.with_extension("new");
        let content = [MAGIC, &*frame(&self.body)].concat();
        self.body.clear();
        let failed = |doing| failed(doing, &self.path);
        let mut file = open_file(&new).map_err(failed("write anew"))?;
        file.set_len(0).map_err(failed("write anew"))?;
        file.write_all(&content).map_err(failed("write anew"))?;
        file.sync_all().map_err(failed("sync"))?;
        fs::rename(&new, &self.path).map_err(failed("rename"))?;
        if let Some(directory) = self.path.parent() {
            sync_directory(directory).map_err(failed("sync the directory of"))?;
        }
        self.file = file;
        self.bytes = content.len() as u64;
        self.trimmed_bytes = self.bytes;
        Ok(())
    }
}

/// The lanes of which a directory has spools, in ascending order; none if there is no directory.
pub fn spooled_lanes(directory: &Path) -> Result<Vec<LaneId>, SpoolError> {
    let failed = || failed("look for", directory);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed()(error)),
    };
    let mut lanes = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed())?.file_name();
        let lane = name.to_str().and_then(|name| name.strip_suffix(".spool"));
        let lane = lane.and_then(|lane| u64::from_str_radix(lane, 16).ok());
        lanes.extend(lane.and_then(LaneId::new));
    }
    lanes.sort_unstable();
    Ok(lanes)
}

/// What a message takes in a spool, at most.
pub(super) fn message_bytes(message: &Message) -> u64 {
    let parts = message.topic.len() + message.payload.len() + message.properties().len();
    parts as u64 + 32
}

/// Reads a spool's content.
struct Reading<'a> {
    content: &'a [u8],
    limits: &'a LaneLimits,
    hasher: &'a Hasher,
    remembered: Remembered,
}

impl<'a> Reading<'a> {
    fn new(content: &'a [u8], limits: &'a LaneLimits, hasher: &'a Hasher) -> Self {
        Self {
            content,
            limits,
            hasher,
            remembered: Remembered::default(),
        }
    }

    /// What is remembered, and how many bytes of the file are whole; or what is wrong, and where.
    fn all(mut self) -> Result<(Remembered, usize), (usize, String)> {
        if !self.content.starts_with(MAGIC) {
            return Err((0, "this is no spool of version 1".to_owned()));
        }
        let mut at = MAGIC.len();
        while let Some(body) = self.frame(at)? {
            self.entries(body)
                .map_err(|what| (at, format!("a frame with {what}")))?;
            at += HEAD + body.len();
        }
        Ok((self.remembered, at))
    }

    /// The body of the frame there; `None` at the end, torn or not.
    fn frame(&self, at: usize) -> Result<Option<&'a [u8]>, (usize, String)> {
        let rest = &self.content[at..];
        // A file system may have lengthened the file and not written all of it.
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let Some((head, behind)) = rest.split_at_checked(HEAD).filter(|_| !is_blank(rest)) else {
            return Ok(None);
        };
        let [length, check, hash] = [&head[..4], &head[4..8], &head[8..]];
        if check != length_check(length) {
            return if is_blank(behind) {
                Ok(None)
            } else {
                Err((
                    at,
                    "the length of a frame does not fit its check".to_owned(),
                ))
            };
        }
        match behind.split_at_checked(length_of(length)) {
            None => Ok(None),
            Some((body, _)) if xxh3_64(body) == number(hash) => Ok(Some(body)),
            Some((_, after)) if is_blank(after) => Ok(None),
            Some(_) => Err((
                at,
                "the content of a frame does not fit its hash".to_owned(),
            )),
        }
    }

    fn entries(&mut self, mut body: &'a [u8]) -> Result<(), String> {
        let body = &mut body;
        while let Some(kind) = take(body, 1) {
            self.entry(kind[0], body)
                .ok_or_else(|| format!("an entry of kind {} that makes no sense", kind[0]))?;
        }
        Ok(())
    }

    fn entry(&mut self, kind: u8, body: &mut &'a [u8]) -> Option<()> {
        let remembered = &mut self.remembered;
        match kind {
            LANE => {
                let length = length_of(take(body, 4)?);
                let saved = take(body, length)?;
                let now = std::time::Duration::ZERO;
                let lane = Lane::restore(saved, self.limits.clone(), now, self.hasher).ok()?;
                remembered.acknowledged = lane.size();
                remembered.messages.clear();
                remembered.dropped.clear();
                remembered.start = remembered.start.max(lane.epoch().0);
                remembered.lane = Some(lane);
            }
            MESSAGE => {
                let (number, message) = read_message(body)?;
                let lane = remembered.lane.as_mut()?;
                if number != lane.size() {
                    return None;
                }
                let topic = Arc::<[u8]>::from(Arc::clone(&message.topic));
                lane.issue(topic, Arc::clone(&message.payload), self.hasher);
                remembered.taken.output(&message);
                remembered.messages.push_back(message);
            }
            TOLD => {
                let checkpoint = u32::try_from(number(take(body, 4)?)).ok()?;
                let size = number(take(body, 8)?);
                remembered.lane.as_mut()?.told(checkpoint, size);
                remembered.told = Some((checkpoint, size));
            }
            ACKNOWLEDGED => remembered.acknowledged = number(take(body, 8)?),
            CLOSED => {
                let epoch = u32::try_from(number(take(body, 4)?)).ok()?;
                *remembered = Remembered {
                    closed: Some(Epoch(epoch)),
                    taken: std::mem::take(&mut remembered.taken),
                    start: remembered.start,
                    ..Remembered::default()
                };
            }
            TAKEN => {
                remembered.taken = Taken::restore(take_bytes(body)?, self.hasher).ok()?;
            }
            DROPPED => {
                let bytes = take_bytes(body)?;
                let record = DropRecord::parse(bytes).ok()?.open(self.hasher).ok()?;
                remembered.taken.dropped(&record);
                remembered.dropped.push(bytes.into());
            }
            ELSEWHERE => {
                let record = DropRecord::parse(take_bytes(body)?).ok()?;
                remembered.taken.dropped(&record.open(self.hasher).ok()?);
            }
            HEARD => {
                remembered.taken.hears(LaneId::new(number(take(body, 8)?))?);
            }
            STARTED => {
                let start = u32::try_from(number(take(body, 4)?)).ok()?;
                remembered.start = remembered.start.max(start);
            }
            _ => return None,
        }
        Some(())
    }
}

fn put_lane(saved: &[u8], body: &mut Vec<u8>) {
    body.push(LANE);
    put_bytes(saved, body);
}

fn put_message(number: u64, message: &Message, body: &mut Vec<u8>) {
    body.push(MESSAGE);
    body.extend_from_slice(&number.to_be_bytes());
    body.push(u8::from(message.qos) | u8::from(message.retain) << 2);
    put_bytes(message.topic.as_bytes(), body);
    put_bytes(message.properties().as_bytes(), body);
    put_bytes(&message.payload, body);
}

fn read_message(body: &mut &[u8]) -> Option<(u64, Message)> {
    let number_of = number(take(body, 8)?);
    let flags = take(body, 1)?[0];
    let topic = std::str::from_utf8(take_bytes(body)?).ok()?;
    let properties = take_bytes(body)?;
    let payload = take_bytes(body)?;
    let mut message = Message::new(topic, payload).ok()?;
    message.qos = QoS::try_from(flags & 0b11).ok()?;
    message.retain = flags & 0b100 != 0;
    let section = PropertySection::Packet(PacketType::Publish);
    message.properties = PropertyBuf::new();
    message
        .properties
        .extend(Properties::parse(properties, section).ok()?);
    Some((number_of, message))
}

fn put_bytes(bytes: &[u8], body: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("no part of a packet has 4 GiB");
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(bytes);
}

fn take_bytes<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = length_of(take(body, 4)?);
    take(body, length)
}

fn take<'a>(body: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some(taken)
}

/// Up to 8 bytes, big-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// More than there is where memory has no such length.
fn length_of(bytes: &[u8]) -> usize {
    usize::try_from(number(bytes)).unwrap_or(usize::MAX)
}

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a frame is far below 4 GiB");
    let length = length.to_be_bytes();
    let hash = xxh3_64(body).to_be_bytes();
    [&length[..], &length_check(&length), &hash, body].concat()
}

fn length_check(length: &[u8]) -> [u8; 4] {
    let [_, _, _, _, check @ ..] = xxh3_64(length).to_be_bytes();
    check
}

fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened, and renaming is kept by the file system.
    if cfg!(unix) {
        File::open(directory)?.sync_all()
    } else {
        Ok(())
    }
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SpoolError + 'a {
    move |source| SpoolError::Io {
        doing,
        path: path.to_owned(),
        source: Arc::new(source),
    }
}

#[cfg(test)]
mod tests;
