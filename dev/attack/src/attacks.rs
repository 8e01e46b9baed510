//! The table of attacks, and which of them are not held off yet.

mod data_directory;
mod handshakes;
mod log_flood;
mod login_flood;
mod shares;
mod slow_links;
mod slow_reader;
mod small_disk;
mod topic_matching;
mod unfinished;

use crate::stage::{AttackError, Outcome, Scale};

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Why its limit does not hold yet. A known gap fails no run.
    pub(crate) open: Option<&'static str>,
    pub(crate) run: fn(Scale) -> Result<Outcome, AttackError>,
}

/// All of them.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "topic-matching",
        about: "filters, topics, wills and queries that make matching dear, in eight shapes",
        open: None,
        run: topic_matching::run,
    },
    Attack {
        name: "unfinished-connects",
        about: "4,000 connections with 380 KB of a CONNECT that does not end",
        open: Some(
            "the slowest honest message takes 127 to 572 ms beside the attacker on two cores; no \
             turn of the broker takes more than 4 ms",
        ),
        run: unfinished::connects,
    },
    Attack {
        name: "long-connects",
        about: "the same with 980 KB, more than a CONNECT may have",
        open: None,
        run: unfinished::long_connects,
    },
    Attack {
        name: "unfinished-publishes",
        about: "150 clients with 16 MiB of a PUBLISH that does not end",
        open: None,
        run: unfinished::publishes,
    },
    Attack {
        name: "slow-reader",
        about: "40 subscribers that do not read, and publishers that fill what waits for them",
        open: None,
        run: slow_reader::run,
    },
    Attack {
        name: "slow-links",
        about: "clients that acknowledge and ping behind links of 2 to 200 KB/s",
        open: None,
        run: slow_links::run,
    },
    Attack {
        name: "login-flood",
        about: "120 wrong passwords per second, each connection closed at once",
        open: None,
        run: login_flood::run,
    },
    Attack {
        name: "silent-handshakes",
        about: "1,000 peers that fall silent in the middle of a handshake",
        open: None,
        run: handshakes::silent,
    },
    Attack {
        name: "aborted-handshakes",
        about: "handshakes of TLS and WebSocket that are aborted as soon as they have begun",
        open: None,
        run: handshakes::aborted,
    },
    Attack {
        name: "small-disk",
        about: "a fast publisher on disks of 64 to 400 MiB",
        open: None,
        run: small_disk::run,
    },
    Attack {
        name: "filled-disk",
        about: "a fast publisher, and another program that fills the disk to the last byte",
        open: None,
        run: small_disk::filled,
    },
    Attack {
        name: "log-flood",
        about: "9,000 refused filters in each SUBSCRIBE, while other clients come and go",
        open: None,
        run: log_flood::run,
    },
    Attack {
        name: "retained-share",
        about: "one client fills the limit of retained messages",
        open: None,
        run: shares::retained,
    },
    Attack {
        name: "session-share",
        about: "one address fills the limit of sessions",
        open: None,
        run: shares::sessions,
    },
    Attack {
        name: "connection-share",
        about: "one address fills the limit of connections",
        open: None,
        run: shares::connections,
    },
    Attack {
        name: "data-deleted",
        about: "the data directory is deleted under the running broker",
        open: None,
        run: data_directory::deleted,
    },
    Attack {
        name: "data-replaced",
        about: "an empty directory takes the place of the data directory",
        open: None,
        run: data_directory::replaced,
    },
];
