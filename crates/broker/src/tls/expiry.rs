//! When the files of listeners with TLS cease to be valid, and what the log says of it.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A file of a listener, and the last second in which all of it is valid.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Expiry {
    /// The file.
    pub file: PathBuf,
    /// What it has.
    pub what: Expiring,
    /// Seconds since 1970. Of several certificates in the file the first that expires counts.
    pub not_after: i64,
}

/// What expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiring {
    /// A certificate of the broker, or one of its chain.
    Certificate,
    /// An authority of clients' certificates.
    Authority,
    /// A list of revoked certificates of clients.
    RevocationList,
}

/// How soon it is; the log has a line for each that is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    Later,
    /// 30 days are left, or less.
    Month,
    /// 7 days.
    Week,
    /// One day.
    Day,
    Expired,
}

impl Expiry {
    /// Whole days until then; negative afterwards.
    pub fn days_left(&self) -> i64 {
        (self.not_after - seconds_now()).div_euclid(DAY)
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage_at(seconds_now())
    }

    fn stage_at(&self, now: i64) -> Stage {
        let left = self.not_after - now;
        if left < 0 {
            Stage::Expired
        } else if left > 30 * DAY || self.what == Expiring::RevocationList {
            Stage::Later // lists are made for a few days
        } else if left > 7 * DAY {
            Stage::Month
        } else if left > DAY {
            Stage::Week
        } else {
            Stage::Day
        }
    }

    /// Logs how long it is valid.
    pub(crate) fn log(&self) {
        let (file, days, what) = (self.file.display(), self.days_left(), self.what.name());
        match (self.stage(), self.what) {
            (Stage::Expired, Expiring::Certificate) => {
                tracing::error!(%file, what, "it has expired: clients refuse it; renew it");
            }
            (Stage::Expired, Expiring::Authority) => {
                tracing::error!(%file, what, "it has expired: its clients are refused; renew it");
            }
            (Stage::Expired, Expiring::RevocationList) => {
                tracing::error!(
                    %file,
                    what,
                    "it has expired: it may lack revocations, and with `enforce_crl_expiry` no \
                     certificate of its authority is accepted; renew it"
                );
            }
            (Stage::Later, _) => {
                tracing::info!(%file, what, days, "read; it is valid for so many days");
            }
            _ => tracing::warn!(%file, what, days, "it expires soon: renew it"),
        }
    }
}

impl Expiring {
    /// As a word for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Authority => "authority",
            Self::RevocationList => "revocation list",
        }
    }
}

fn seconds_now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since_1970.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

const DAY: i64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_warns_a_month_a_week_and_a_day_before() {
        let stage = |what, left| {
            let expiry = Expiry {
                file: PathBuf::new(),
                what,
                not_after: 1_000 * DAY + left,
            };
            expiry.stage_at(1_000 * DAY)
        };
        for (left, expected) in [
            (31 * DAY, Stage::Later),
            (30 * DAY, Stage::Month),
            (8 * DAY, Stage::Month),
            (7 * DAY, Stage::Week),
            (2 * DAY, Stage::Week),
            (DAY, Stage::Day),
            (0, Stage::Day),
            (-1, Stage::Expired),
        ] {
            assert_eq!(stage(Expiring::Certificate, left), expected, "{left}");
        }
        assert_eq!(stage(Expiring::RevocationList, DAY), Stage::Later);
        assert_eq!(stage(Expiring::RevocationList, -1), Stage::Expired);
    }
}
