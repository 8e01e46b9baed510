//! The disk under the broker, which can be told to fail, and to lose what no sync has made safe.
//!
//! The work is done by `disk.c` inside the broker's process, built here with the C compiler that
//! Rust needs for linking anyway. What a power cut takes back is in `undo.rs`.
//!
//! Behind a power cut each file is as it was at some moment since its last sync, each at a moment
//! of its own, and the change after that may be there in part, by whole sectors, or as zeros where
//! the file had grown already. The names in a directory are those of some moment since the last
//! sync of that directory: files and directories made since are gone with all that is in them, and
//! what was removed or renamed is back.

mod undo;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the disk does from some moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Every write fails: no space.
    Full,
    /// Every write fails: input/output error.
    Write,
    /// One sync fails, and what it was to make safe is not until it is written and synced again.
    Sync,
    /// Writes of more than a sector take half of it, which is no error.
    Short,
    /// No file is opened: input/output error.
    Open,
    /// No file and no directory is made: no space.
    Make,
    /// Nothing is renamed: no space.
    Rename,
    /// No file is cut or made longer: no space.
    Truncate,
    /// Nothing is removed: input/output error.
    Remove,
    /// A sector of a journal cannot be read, from this byte on: input/output error.
    Sector,
}

/// The disk under one directory.
#[derive(Debug)]
pub struct Disk {
    library: PathBuf,
    directory: PathBuf,
    undo: PathBuf,
    graves: PathBuf,
    fault: PathBuf,
}

impl Disk {
    /// Under `directory`, which exists; with files of its own in `beside`.
    pub fn under(directory: &Path, beside: &Path) -> io::Result<Self> {
        let disk = Self {
            library: beside.join("disk.so"),
            directory: directory.canonicalize()?,
            undo: beside.join("undo"),
            graves: beside.join("graves"),
            fault: beside.join("fault"),
        };
        fs::create_dir_all(&disk.graves)?;
        let source = beside.join("disk.c");
        fs::write(&source, include_str!("disk.c"))?;
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
            .arg(&disk.library)
            .arg(&source)
            .output()
            .map_err(|error| {
                let advice = "install a C compiler, or name one in CC";
                io::Error::other(format!("cannot run {compiler}: {error}; {advice}"))
            })?;
        if built.status.success() {
            Ok(disk)
        } else {
            let said = String::from_utf8_lossy(&built.stderr);
            Err(io::Error::other(format!(
                "{compiler} refuses disk.c:\n{said}"
            )))
        }
    }

    /// What a process needs in its environment to stand on this disk.
    pub fn environment(&self) -> [(&'static str, &Path); 5] {
        [
            ("LD_PRELOAD", &self.library),
            ("DISK_DIRECTORY", &self.directory),
            ("DISK_UNDO", &self.undo),
            ("DISK_GRAVES", &self.graves),
            ("DISK_FAULT", &self.fault),
        ]
    }

    /// The fault begins after so many more calls of its kind; [`Fault::Sector`] at this byte.
    pub fn fail(&self, fault: Fault, after: u64) -> io::Result<()> {
        let (call, error) = match fault {
            Fault::Full => ("write", "ENOSPC"),
            Fault::Write => ("write", "EIO"),
            Fault::Sync => ("sync", "EIO"),
            Fault::Short => ("write", "short"),
            Fault::Open => ("open", "EIO"),
            Fault::Make => ("make", "ENOSPC"),
            Fault::Rename => ("rename", "ENOSPC"),
            Fault::Truncate => ("truncate", "ENOSPC"),
            Fault::Remove => ("remove", "EIO"),
            Fault::Sector => ("sector", "EIO"),
        };
        // Whole at once, since it is looked for all the time.
        let new = self.fault.with_extension("new");
        fs::write(&new, format!("{call} {error} {after}\n"))?;
        fs::rename(&new, &self.fault)
    }

    /// Whether a call has met the fault: until then it may as well not be there.
    pub fn has_failed(&self) -> bool {
        self.met().exists()
    }

    /// It works again, for whoever is started next.
    pub fn repair(&self) -> io::Result<()> {
        for file in [&self.fault, &self.met()] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Where `disk.c` says that the fault was met.
    fn met(&self) -> PathBuf {
        self.fault.with_extension("met")
    }

    /// A moment, for [`Disk::has_synced`].
    pub fn now(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.undo)?.len())
    }

    /// Whether a sync of this file has succeeded that began after this moment. Of what was written
    /// since the last power cut.
    pub fn has_synced(&self, file: &Path, since: u64) -> io::Result<bool> {
        undo::has_synced(&self.undo, fs::metadata(file)?.ino(), since)
    }

    /// Whether a file was given this name in its directory since the last power cut.
    pub fn has_renamed(&self, name: &str) -> io::Result<bool> {
        undo::has_renamed(&self.undo, name)
    }

    /// Makes the files what they are after a power cut, now that the process is gone. `below` gives
    /// a number below another, and so decides what is lost. Gives how many changes were.
    pub fn cut_power(&self, below: &mut dyn FnMut(u64) -> u64) -> io::Result<u64> {
        undo::take_back(&self.undo, &self.directory, &self.graves, Some(below))
    }

    /// The same, and everything is lost that no sync has made safe.
    pub fn lose_all(&self) -> io::Result<u64> {
        undo::take_back(&self.undo, &self.directory, &self.graves, None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A directory on such a disk, and what `dd` makes of it.
    struct Room {
        temp: tempfile::TempDir,
        disk: Disk,
    }

    impl Room {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let data = temp.path().join("data");
            fs::create_dir(&data).unwrap();
            let disk = Disk::under(&data, temp.path()).unwrap();
            fs::write(data.join("file"), "").unwrap();
            Self { temp, disk }
        }

        /// Writes over the beginning of a file; whether that went well.
        fn write(&self, text: &str, conversion: &str) -> bool {
            let input = self.temp.path().join("input");
            fs::write(&input, text).unwrap();
            let status = Command::new("dd")
                .args([
                    if text.len() > 512 { "bs=2048" } else { "bs=4" },
                    "status=none",
                ])
                .arg(format!("conv=notrunc{conversion}"))
                .arg(format!("if={}", input.display()))
                .arg(format!("of={}", self.file().display()))
                .envs(self.disk.environment())
                .status();
            status.unwrap().success()
        }

        /// Carries out a shell command in the directory; whether that went well.
        fn shell(&self, command: &str) -> bool {
            let mut shell = Command::new("sh");
            shell.args(["-ec", command]);
            shell.current_dir(&self.disk.directory);
            let status = shell.envs(self.disk.environment()).status();
            status.unwrap().success()
        }

        /// What is below the directory, directories with a slash behind their names.
        fn names(&self) -> Vec<String> {
            let found = Command::new("find")
                .args([
                    "-mindepth",
                    "1",
                    "(",
                    "-type",
                    "d",
                    "-printf",
                    "%P/\\n",
                    "-o",
                ])
                .args(["-printf", "%P\\n", ")"])
                .current_dir(&self.disk.directory)
                .output();
            let text = String::from_utf8(found.unwrap().stdout).unwrap();
            let mut names: Vec<_> = text.lines().map(str::to_owned).collect();
            names.sort();
            names
        }

        fn file(&self) -> PathBuf {
            self.disk.directory.join("file")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.file()).unwrap()
        }
    }

    #[test]
    fn a_power_cut_takes_back_what_was_not_synced() {
        let room = Room::new();
        assert!(room.write("one two three", ",fsync"));
        room.disk.lose_all().unwrap();
        assert_eq!(room.text(), "one two three");
        assert!(room.write("ONE TWO THREE FOUR", ""));
        assert_eq!(room.text(), "ONE TWO THREE FOUR");
        room.disk.lose_all().unwrap();
        assert_eq!(room.text(), "one two three");
    }

    #[test]
    fn what_a_failed_sync_was_to_make_safe_is_not_until_it_is_written_again() {
        for (again, safe) in [("", ""), ("one tw", "one "), ("one two", "one two")] {
            let room = Room::new();
            room.disk.fail(Fault::Sync, 0).unwrap();
            assert!(!room.write("one two", ",fsync"));
            assert_eq!(room.text(), "one two");
            room.disk.repair().unwrap();
            assert!(room.write(again, ",fsync"));
            assert!(room.shell("sync file"));
            room.disk.lose_all().unwrap();
            assert_eq!(room.text(), safe);
        }
    }

    /// A broker does without the copy of its list of trees: whoever waits for its end would wait
    /// for ever.
    #[test]
    fn the_sync_that_fails_is_not_of_what_a_broker_does_without() {
        let room = Room::new();
        room.disk.fail(Fault::Sync, 0).unwrap();
        assert!(room.shell("touch list.new; sync list.new"));
        assert!(!room.shell("sync file"));
    }

    #[test]
    fn a_power_cut_takes_back_names_until_their_directory_is_synced() {
        let room = Room::new();
        // Its name is safe where nobody finds it.
        assert!(room.shell("mkdir d; touch d/e; sync d/e; sync d"));
        room.disk.lose_all().unwrap();
        assert_eq!(room.names(), ["file"]);
        assert!(room.shell("mkdir d; touch d/e; sync ."));
        room.disk.lose_all().unwrap();
        assert_eq!(room.names(), ["d/", "file"]);
    }

    #[test]
    fn a_power_cut_brings_back_what_was_removed_or_renamed() {
        let room = Room::new();
        assert!(room.write("one", ",fsync"));
        let safe = "mkdir d; touch d/e other; sync other d .";
        assert!(room.shell(safe));
        // What was written since the sync is not safe in a file that is back either.
        assert!(room.write("ONE", ""));
        assert!(room.shell("rm -r d; mv other file; mv file third"));
        assert_eq!(room.names(), ["third"]);
        assert!(room.disk.lose_all().unwrap() > 4);
        assert_eq!(room.names(), ["d/", "d/e", "file", "other"]);
        assert_eq!(room.text(), "one");
    }

    #[test]
    fn a_power_cut_makes_no_directory_of_a_pipe_that_was_removed() {
        let room = Room::new();
        assert!(room.shell("mkfifo pipe; sync .; rm pipe"));
        room.disk.lose_all().unwrap();
        assert_eq!(room.names(), ["file"]);
    }

    #[test]
    fn what_was_synced_and_renamed_since_a_moment_is_known() {
        let room = Room::new();
        assert!(room.write("one", ",fsync"));
        let moment = room.disk.now().unwrap();
        assert!(room.disk.has_synced(&room.file(), 0).unwrap());
        assert!(!room.disk.has_synced(&room.file(), moment).unwrap());
        assert!(room.shell("touch other; sync other"));
        assert!(!room.disk.has_synced(&room.file(), moment).unwrap());
        assert!(room.shell("sync file"));
        assert!(room.disk.has_synced(&room.file(), moment).unwrap());
        assert!(!room.disk.has_renamed("third").unwrap());
        assert!(room.shell("mv other third"));
        assert!(room.disk.has_renamed("third").unwrap());
        assert!(!room.disk.has_renamed("other").unwrap());
    }

    #[test]
    fn names_are_taken_back_from_some_moment_on() {
        let room = Room::new();
        assert!(room.shell("touch a; touch b; touch c"));
        room.disk.cut_power(&mut |bound| 2.min(bound - 1)).unwrap();
        assert_eq!(room.names(), ["a", "b", "file"]);
    }

    #[test]
    fn a_call_that_changes_names_fails_on_request() {
        let room = Room::new();
        assert!(room.shell("mkdir d"));
        for (fault, command) in [
            (Fault::Open, "dd if=file of=/dev/null"),
            (Fault::Make, "mkdir new"),
            (Fault::Make, "dd if=/dev/null of=new"),
            (Fault::Rename, "mv file new"),
            (Fault::Truncate, "truncate -s 10 file"),
            (Fault::Remove, "rm file"),
            (Fault::Remove, "rmdir d"),
        ] {
            room.disk.fail(fault, 0).unwrap();
            assert!(!room.disk.has_failed());
            assert!(!room.shell(command), "{fault:?}: {command}");
            assert!(room.disk.has_failed());
            assert_eq!(room.names(), ["d/", "file"], "{command}");
            room.disk.repair().unwrap();
            assert!(room.shell(&format!("mkdir e; touch e/file; cd e; mkdir d; {command}")));
            assert!(room.shell("rm -r e"));
        }
    }

    #[test]
    fn a_full_disk_refuses_after_the_requested_number_of_writes() {
        let room = Room::new();
        room.disk.fail(Fault::Full, 2).unwrap();
        assert!(room.write("one two", ""));
        assert!(!room.disk.has_failed());
        assert!(!room.write("one two three", ""));
        assert!(room.disk.has_failed());
        assert_eq!(room.text(), "one two ");
        room.disk.repair().unwrap();
        assert!(room.write("one two three", ""));
    }

    #[test]
    fn short_writes_are_no_error() {
        let room = Room::new();
        room.disk.fail(Fault::Short, 0).unwrap();
        assert!(room.write("one two three", ""));
        assert!(!room.disk.has_failed(), "a sector is written whole");
        let text = "one two three ".repeat(200);
        assert!(room.write(&text, ""));
        assert_eq!(room.text(), text);
        assert!(room.disk.has_failed());
    }
}
