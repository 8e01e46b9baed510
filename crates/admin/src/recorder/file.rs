//! Minutes of the series on disk, so that a restart shows the charts of before.
//!
//! ```text
//! header: magic, length of the names, names of the series
//! record: minute u32, check u32, then for each series: mean f32, least u16, most u16
//! ```
//!
//! Two files: when one has the minutes of seven days the other is begun anew, so both together have
//! at least seven days and at most fourteen. A record that was not written whole ends its file. A
//! file with other series is replaced.

use std::fs::{File, OpenOptions, read};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::rings::{MINUTES, Row, lower, upper, whole};
use super::series::SERIES;
use crate::delivery::file::open_private;

const MAGIC: &[u8; 8] = b"unbrser1";
const RECORD: usize = 8 + 8 * SERIES.len();

/// The file that is being written.
#[derive(Debug)]
pub(crate) struct Minutes {
    directory: PathBuf,
    file: File,
    /// Which of the two.
    is_second: bool,
    records: usize,
}

impl Minutes {
    /// Opens the files, and gives each minute in them to `restore`.
    pub(crate) fn open(directory: &Path, mut restore: impl FnMut(u64, &Row)) -> io::Result<Self> {
        let mut last = [None, None];
        let mut records = [0, 0];
        for (at, is_second) in [false, true].into_iter().enumerate() {
            let Ok(bytes) = read(path(directory, is_second)) else {
                continue;
            };
            let Some(body) = bytes.strip_prefix(&*header()) else {
                continue;
            };
            for record in body.chunks_exact(RECORD).take(MINUTES) {
                let Some((minute, row)) = parse(record) else {
                    break;
                };
                restore(minute, &row);
                last[at] = last[at].max(Some(minute));
                records[at] += 1;
            }
        }
        let is_second = last[1] > last[0];
        let records = records[usize::from(is_second)];
        let path = path(directory, is_second);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let mut file = open_private(&path, &mut options)?;
        let end = match records {
            0 => 0,
            _ => header().len() + records * RECORD,
        };
        file.set_len(end as u64)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        if records == 0 {
            file.write_all(&header())?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            file,
            is_second,
            records,
        })
    }

    /// Adds a minute. It is not waited for until the disk has it.
    pub(crate) fn add(&mut self, minute: u64, row: &Row) -> io::Result<()> {
        if self.records >= MINUTES {
            let path = path(&self.directory, !self.is_second);
            let mut options = OpenOptions::new();
            let mut file = open_private(&path, options.write(true).create(true).truncate(true))?;
            file.write_all(&header())?;
            self.file = file;
            self.is_second = !self.is_second;
            self.records = 0;
        }
        self.file.write_all(&record(minute, row))?;
        self.records += 1;
        Ok(())
    }
}

fn path(directory: &Path, is_second: bool) -> PathBuf {
    directory.join(if is_second { "series.2" } else { "series.1" })
}

fn header() -> Vec<u8> {
    let names = SERIES.join("\n");
    let length = u32::try_from(names.len()).unwrap_or(u32::MAX);
    [&MAGIC[..], &length.to_be_bytes(), names.as_bytes()].concat()
}

fn record(minute: u64, row: &Row) -> Vec<u8> {
    let minute = u32::try_from(minute).unwrap_or(u32::MAX);
    let mut record = minute.to_be_bytes().to_vec();
    record.extend(check(minute).to_be_bytes());
    for at in 0..SERIES.len() {
        record.extend(row.mean[at].to_be_bytes());
        record.extend(lower(row.least[at]).to_be_bytes());
        record.extend(upper(row.most[at]).to_be_bytes());
    }
    record
}

fn parse(record: &[u8]) -> Option<(u64, Row)> {
    let (minute, rest) = record.split_first_chunk()?;
    let (checked, mut values) = rest.split_first_chunk()?;
    let minute = u32::from_be_bytes(*minute);
    if u32::from_be_bytes(*checked) != check(minute) {
        return None;
    }
    let mut row = Row {
        mean: [f32::NAN; SERIES.len()],
        least: [f32::NAN; SERIES.len()],
        most: [f32::NAN; SERIES.len()],
    };
    for at in 0..SERIES.len() {
        let (mean, rest) = values.split_first_chunk()?;
        let (least, rest) = rest.split_first_chunk()?;
        let (most, rest) = rest.split_first_chunk()?;
        row.mean[at] = f32::from_be_bytes(*mean);
        row.least[at] = whole(u16::from_be_bytes(*least));
        row.most[at] = whole(u16::from_be_bytes(*most));
        values = rest;
    }
    Some((minute.into(), row))
}

/// Tells a record from what a crash may leave in its place, such as zeros.
fn check(minute: u32) -> u32 {
    minute ^ 0x5eed_ca5e
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f32) -> Row {
        let sample = [value; SERIES.len()];
        Row {
            mean: sample,
            least: sample,
            most: sample,
        }
    }

    fn restored(directory: &Path) -> Vec<(u64, f32)> {
        let mut found = Vec::new();
        Minutes::open(directory, |minute, row| found.push((minute, row.mean[3]))).unwrap();
        found
    }

    #[test]
    fn minutes_come_back_and_a_torn_record_ends_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut minutes = Minutes::open(directory.path(), |_, _| {}).unwrap();
        for minute in 5_u16..8 {
            minutes.add(minute.into(), &row(f32::from(minute))).unwrap();
        }
        drop(minutes);
        assert_eq!(restored(directory.path()), [(5, 5.0), (6, 6.0), (7, 7.0)]);
        let path = path(directory.path(), false);
        let length = std::fs::metadata(&path).unwrap().len();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length - 3)
            .unwrap();
        assert_eq!(restored(directory.path()), [(5, 5.0), (6, 6.0)]);
    }

    #[test]
    fn the_files_are_bounded_and_have_seven_days() {
        let directory = tempfile::tempdir().unwrap();
        let mut minutes = Minutes::open(directory.path(), |_, _| {}).unwrap();
        let all = 3 * MINUTES as u64;
        for minute in 0..all {
            minutes.add(minute, &row(1.0)).unwrap();
        }
        drop(minutes);
        let found = restored(directory.path());
        assert!(
            found.len() >= MINUTES && found.len() <= 2 * MINUTES,
            "{}",
            found.len()
        );
        assert!(
            found
                .iter()
                .any(|(minute, _)| *minute == all - MINUTES as u64)
        );
    }
}
