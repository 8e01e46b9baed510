//! A store into a file: what is there into rows, rows into blocks.

use std::io::{self, Write};

use super::{
    BackupError, Contents, END, LOG, MESSAGE, NAME, PIECE_BYTES, Seal, VALUE, VERSION, seal,
};
use crate::batch::Space;
use crate::codec::{put_number, put_string};
use crate::store::{Bounds, View};

/// Writes all that is to be seen.
pub fn write(view: &dyn View, out: &mut dyn Write) -> Result<Contents, BackupError> {
    let mut writer = Writer::begin(out)?;
    for log in view.logs()? {
        let Bounds { first, next } = view.bounds(log)?;
        writer.row(LOG, |row| {
            put_number(row, log.0.into());
            put_number(row, first.0);
            put_number(row, next.0);
        })?;
        let mut from = first;
        while from < next {
            let chunk = view.read(log, from..next, PIECE_BYTES)?;
            for entry in &chunk.entries {
                writer.contents.messages += 1;
                writer.row(MESSAGE, |row| {
                    put_number(row, entry.sequence.0);
                    put_string(row, entry.message.as_bytes());
                })?;
            }
            from = chunk.next;
        }
    }
    for space in Space::ALL {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = view.scan(space, &[], after.as_deref(), PIECE_BYTES)?;
            for pair in &page.pairs {
                writer.contents.values += 1;
                writer.row(VALUE, |row| {
                    put_string(row, space.name().as_bytes());
                    put_string(row, &pair.key);
                    put_string(row, &pair.value.bytes);
                })?;
            }
            after = page.pairs.into_iter().next_back().map(|pair| pair.key);
            if !page.more || after.is_none() {
                break;
            }
        }
    }
    writer.finish()
}

/// Rows into blocks.
struct Writer<'w> {
    out: &'w mut dyn Write,
    body: Vec<u8>,
    seal: Seal,
    contents: Contents,
}

impl<'w> Writer<'w> {
    fn begin(out: &'w mut dyn Write) -> Result<Self, BackupError> {
        let line = format!("{NAME} {VERSION}\n");
        let mut writer = Self {
            out,
            body: Vec::new(),
            seal: blake3::hash(line.as_bytes()).into(),
            contents: Contents::default(),
        };
        writer.put(line.as_bytes())?;
        Ok(writer)
    }

    fn row(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), BackupError> {
        self.body.push(kind);
        fill(&mut self.body);
        if self.body.len() >= PIECE_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), BackupError> {
        let body = std::mem::take(&mut self.body);
        self.seal = seal(&self.seal, &body);
        // A row is a record and a key, each of them far below 4 GiB.
        let length = u32::try_from(body.len()).map_err(io::Error::other);
        let length = length.map_err(writing)?;
        let seal = self.seal;
        self.put(&length.to_be_bytes())?;
        self.put(&seal)?;
        self.put(&body)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.contents.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(writing)
    }

    fn finish(mut self) -> Result<Contents, BackupError> {
        let Contents {
            messages, values, ..
        } = self.contents;
        self.row(END, |row| {
            put_number(row, messages);
            put_number(row, values);
        })?;
        if !self.body.is_empty() {
            self.end_block()?;
        }
        self.out.flush().map_err(writing)?;
        Ok(self.contents)
    }
}

fn writing(source: io::Error) -> BackupError {
    let doing = "writing";
    BackupError::Io { doing, source }
}
