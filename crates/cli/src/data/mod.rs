//! Commands that read a data directory, with or without a running broker.
//!
//! [`Data`] is what they read and change; who has the directory is decided here and nowhere else.
//! What is read is of one moment.

pub(crate) mod access_args;
pub(crate) mod backup;
pub(crate) mod bans;
pub(crate) mod db;
pub(crate) mod doctor;
mod examine;
pub(crate) mod human_format;
mod pattern;
mod queued;
mod record;
pub(crate) mod restore;
pub(crate) mod retained;
pub(crate) mod roles;
mod session;
pub(crate) mod sessions;
pub(crate) mod users;

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::unistd::Uid;
use unbroken_broker::config::{Config, Sources};
use unbroken_broker::control::{Remote, RemoteError, Who};
use unbroken_broker::failure as failure_file;
use unbroken_broker::stored_access::{Change, ChangeError, Edit, StoredAccess};
use unbroken_store::hand_over;
use unbroken_store::quarantine::{self, OnCorruption};
use unbroken_store::{
    Batch, Embedded, LogId, Looked, Options, Pair, Sequence, Space, Store, StoreError, View,
};

use crate::exit::{self, Failure};

/// Which directory.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// The broker's data directory; without it that of its configuration, as for `serve`
    #[arg(long = "data", value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The broker's config file (TOML)
    #[arg(short, long, value_name = "FILE", env = "UNBROKEN_CONFIG")]
    config: Option<PathBuf>,
}

/// What is in the directory, from whoever has it.
#[derive(Debug)]
pub(crate) enum Data {
    /// Nobody else has it.
    Own(Box<Embedded>),
    /// A broker that is running.
    Broker(Remote),
}

impl DataArgs {
    /// What is there, from whoever has it; of a store that has failed, standard error says so. A
    /// directory without a store is refused, not made.
    pub(crate) fn open(&self) -> Result<Data, Failure> {
        let data = self.try_open()?.map_err(|error| failure(&error))?;
        if let Some(failed) = data.failed(&self.path()?)? {
            let warning = format_args!("Warning: {failed}; this is what is on disk");
            let _ = writeln!(io::stderr(), "{warning}"); // nobody is left to be told
        }
        Ok(data)
    }

    /// As [`open`](Self::open); why a store that is there could not be opened is for the caller.
    pub(crate) fn try_open(&self) -> Result<Result<Data, StoreError>, Failure> {
        let path = self.path()?;
        if let Some(remote) = remote(&path)? {
            return Ok(Ok(Data::Broker(remote)));
        }
        // One that is known to be damaged stays as it is: the start sets it aside.
        let opened = quarantine::open(&path, Options::default(), OnCorruption::Refuse);
        Ok(opened.map(|(store, _)| Data::Own(Box::new(store))))
    }

    /// As [`open`](Self::open), to add users and roles: a directory without a store gets one.
    pub(crate) fn open_or_create(&self) -> Result<Data, Failure> {
        let path = self.path()?;
        let is_missing = match Embedded::is_in(&path) {
            Ok(is_in) => !is_in,
            Err(StoreError::Io { source, .. }) => source.kind() == io::ErrorKind::NotFound,
            Err(_) => false,
        };
        if !is_missing {
            return self.open();
        }
        if path.exists() {
            own(&path)?;
        }
        let opened = quarantine::open(&path, Options::default(), OnCorruption::Refuse);
        let (store, _) = opened.map_err(|error| failure(&error))?;
        Ok(Data::Own(Box::new(store)))
    }

    /// What is found in it without opening it; none if a broker has it.
    pub(crate) fn try_look(&self) -> Result<Option<Looked>, Failure> {
        let path = self.path()?;
        match remote(&path)? {
            Some(_) => Ok(None),
            None => Ok(Some(Embedded::look(&path)?)),
        }
    }

    /// The broker that has the directory, if one is running.
    pub(crate) fn running(&self) -> Result<Option<Remote>, Failure> {
        remote(&self.path()?)
    }

    /// The directory of the control socket that the configuration names, if the broker stores
    /// nothing with it.
    fn memory_control(&self) -> Result<Option<PathBuf>, Failure> {
        if self.directory.is_some() {
            return Ok(None);
        }
        let control = self.config()?.storage.memory_control().map(Path::to_owned);
        Ok(control)
    }

    fn config(&self) -> Result<Config, Failure> {
        let sources = Sources {
            file: self.config.clone(),
            ..Sources::from_environment()
        };
        let loaded = sources.load();
        Ok(loaded
            .map_err(|error| Failure::new(exit::CONFIG, error))?
            .config)
    }

    /// The directory: that which the broker has with the same file and environment.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.directory {
            return Ok(directory.clone());
        }
        self.config()?.storage.place().ok_or_else(|| {
            let what = "storage.in_memory is set, so nothing is stored; choose a directory with \
                        `--data DIR`, or, for users, roles and bans of a broker that runs, its \
                        control socket with `--control DIR`";
            Failure::new(exit::NO_INPUT, what)
        })
    }
}

impl Data {
    /// What is to be read, all of it of one moment.
    pub(crate) fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        match self {
            Self::Own(store) => store.snapshot(),
            Self::Broker(remote) => Ok(Box::new(remote)),
        }
    }

    /// Bytes that the store takes on disk.
    pub(crate) fn disk_bytes(&self) -> Result<u64, StoreError> {
        match self {
            Self::Own(store) => store.size_bytes(),
            Self::Broker(remote) => remote.size_bytes(),
        }
    }

    /// The number with which each generation of a log begins, oldest first.
    pub(crate) fn generations(&self, log: LogId) -> Result<Vec<Sequence>, StoreError> {
        match self {
            Self::Own(store) => Ok(store.generations(log)),
            Self::Broker(remote) => remote.generations(log),
        }
    }

    /// The broker that has it.
    pub(crate) fn broker(&self) -> Result<Option<Who>, StoreError> {
        match self {
            Self::Own(_) => Ok(None),
            Self::Broker(remote) => remote.who().map(Some),
        }
    }

    /// What the store has died of, in this run of the broker or in the last one.
    pub(crate) fn failed(&self, directory: &Path) -> Result<Option<String>, StoreError> {
        Ok(match self.broker()? {
            Some(broker) => {
                let cause = broker.failure;
                cause.map(|cause| format!("the store has failed: {cause}"))
            }
            None => failed_in_last_run(directory),
        })
    }

    /// What is stored about users.
    pub(crate) fn access(&self) -> Result<StoredAccess, StoreError> {
        StoredAccess::load(&*self.view()?)
    }

    /// Changes users, roles or bans. A running broker puts it in force, too.
    pub(crate) fn change(&self, change: &Change) -> Result<(), Failure> {
        let store = match self {
            Self::Own(store) => store,
            Self::Broker(remote) => {
                // To say what is wrong in the same words and with the same code. Only the broker
                // knows its automatic bans.
                if !matches!(change, Change::Unban { .. }) || self.automatic_bans()?.is_empty() {
                    planned(&self.access()?, change)?;
                }
                remote.change(change)?;
                if remote.who()?.in_memory {
                    let note = "Note: the broker stores nothing: this change ends with it";
                    let _ = writeln!(io::stderr(), "{note}"); // closed, it has no reader
                }
                return Ok(());
            }
        };
        let edits = planned(&self.access()?, change)?;
        Ok(commit(store, &Edit::batch(&edits))?)
    }

    /// Addresses that a running broker has banned for failed logins, and the milliseconds that are
    /// left.
    pub(crate) fn automatic_bans(&self) -> Result<Vec<(IpAddr, u64)>, StoreError> {
        match self {
            Self::Own(_) => Ok(Vec::new()),
            Self::Broker(remote) => remote.automatic_bans(),
        }
    }

    /// Removes a session with everything that is kept of it; what groups gave to it goes to others.
    pub(crate) fn remove_session(&self, client_id: &str) -> Result<(), StoreError> {
        match self {
            Self::Own(store) => commit(store, &hand_over::end_session(&**store, client_id)?),
            Self::Broker(remote) => remote.remove_session(client_id),
        }
    }

    /// Removes the retained message of a topic.
    pub(crate) fn remove_retained(&self, topic: &str) -> Result<(), StoreError> {
        match self {
            Self::Own(store) => {
                let mut batch = Batch::new();
                batch.delete(Space::Retained, topic.as_bytes().to_vec());
                commit(store, &batch)
            }
            Self::Broker(remote) => remote.remove_retained(topic),
        }
    }
}

fn planned(access: &StoredAccess, change: &Change) -> Result<Vec<Edit>, Failure> {
    let planned = access.plan(change);
    planned.map_err(|error| {
        let code = match &error {
            ChangeError::Missing { .. } | ChangeError::Exists { .. } => 1,
            _ => exit::USAGE,
        };
        Failure::new(code, error)
    })
}

/// What the store of a directory has about users; none if there is no store.
pub(crate) fn access_in(directory: &Path) -> Result<Option<StoredAccess>, Failure> {
    if !matches!(Embedded::is_in(directory), Ok(true)) {
        return Ok(None);
    }
    let of_directory = DataArgs {
        directory: Some(directory.to_owned()),
        config: None,
    };
    Ok(Some(of_directory.open()?.access()?))
}

/// The broker that has a directory; if there is none, this user may take it.
fn remote(path: &Path) -> Result<Option<Remote>, Failure> {
    if let Some(why) = no_directory(path) {
        return Err(Failure::new(exit::NO_INPUT, why));
    }
    let is_in = Embedded::is_in(path);
    if let Err(StoreError::Io { source, .. }) = &is_in
        && source.kind() == io::ErrorKind::PermissionDenied
    {
        // A directory that a broker has made only its user can look into.
        own(path)?;
    }
    if !is_in? {
        let what = format_args!("{}: there is no store in it", path.display());
        return Err(Failure::new(exit::NO_INPUT, what));
    }
    let remote = Remote::connect(path).map_err(remote_failure)?;
    if remote.is_none() {
        own(path)?;
    }
    Ok(remote)
}

fn remote_failure(error: RemoteError) -> Failure {
    let code = match error {
        RemoteError::NotPermitted { .. } => exit::NO_PERMISSION,
        _ => exit::UNAVAILABLE,
    };
    Failure::new(code, error)
}

/// Why a path is no directory, where it can be known.
fn no_directory(path: &Path) -> Option<String> {
    let path_shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(format!(
            "{path_shown} is not a directory; --data takes a data directory"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
            "{path_shown} does not exist; --data takes the broker's data directory"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Some(format!(
            "{path_shown} does not exist: a part of this path is not a directory"
        )),
        Err(_) => None,
    }
}

fn commit(store: &Embedded, batch: &Batch) -> Result<(), StoreError> {
    for result in store.commit(std::slice::from_ref(batch))? {
        // Nothing was expected to be there, so nothing can be otherwise.
        result.map_err(|conflict| StoreError::damaged("the store", conflict))?;
    }
    Ok(())
}

/// Refuses what belongs to somebody else: the broker could not open the files that are made there.
/// The broker is who has made the lock, also in a directory that was given to it.
fn own(path: &Path) -> Result<(), Failure> {
    let metadata = fs::metadata(path.join("lock")).or_else(|_| fs::metadata(path));
    let metadata = metadata.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let what = format_args!(
                "this user may not look at {}: {error}; run it as the broker's user",
                path.display()
            );
            Failure::new(exit::NO_PERMISSION, what)
        }
        _ => StoreError::io("looking at", path.display(), error).into(),
    })?;
    let (owner, user) = (metadata.uid(), Uid::effective().as_raw());
    if owner == user {
        return Ok(());
    }
    let what = format_args!(
        "{} belongs to user {owner}, and this is user {user}, whose files the broker could not \
         open; run it as that user: sudo -u '#{owner}' unbroken …",
        path.display()
    );
    Err(Failure::new(exit::NO_PERMISSION, what))
}

/// What the store of a directory that no broker has died of.
pub(crate) fn failed_in_last_run(directory: &Path) -> Option<String> {
    let cause = failure_file::of_last_run(directory)?;
    Some(format!("the store failed in the last run: {cause}"))
}

/// How a command ends that the store failed.
pub(crate) fn failure(error: &StoreError) -> Failure {
    let code = match error {
        StoreError::Held { .. } => exit::UNAVAILABLE,
        StoreError::Damaged { .. } | StoreError::Format { .. } => exit::DATA,
        _ => exit::IO,
    };
    Failure::new(code, error)
}

/// Calls `take` with every pair of a space, in the order of keys.
pub(crate) fn each<E: From<StoreError>>(
    view: &dyn View,
    space: Space,
    mut take: impl FnMut(Pair) -> Result<(), E>,
) -> Result<(), E> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = view.scan(space, &[], after.as_deref(), PIECE_BYTES)?;
        after = page.pairs.last().map(|pair| pair.key.clone());
        for pair in page.pairs {
            take(pair)?;
        }
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Bytes that are read at a time.
pub(crate) const PIECE_BYTES: usize = 1024 * 1024;
