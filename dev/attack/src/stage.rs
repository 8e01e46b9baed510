//! What all attacks share: how large they are, the broker with an honest client beside it, and what
//! is checked at the end.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::{Broker, BrokerError, PASSWORD, Setup, USER};
use crate::honest::{Honest, Record};
use crate::link::LinkError;

/// The time that an attack takes in full.
pub(crate) const WHOLE_SECONDS: u64 = 10;
/// The longest delay of an honest message: 20 ms on a quiet machine. One that runs other programs
/// gets ten times as much, and beside the other steps of a short run fifty times.
const WORST: Duration = Duration::from_millis(200);
const WORST_IN_SHORT: Duration = Duration::from_secs(1);
/// The honest client alone before an attack, where its 99th percentile is compared: then it may be
/// three times as long beside the attack, and 10 ms more.
const LEAD_IN: Duration = Duration::from_secs(2);
const P99_TIMES: u32 = 3;
const P99_MORE: Duration = Duration::from_millis(10);
/// The memory that the documentation promises not to exceed at default limits.
pub(crate) const MEMORY_MIB: u64 = 2_048;

/// How long an attack takes; a shorter one is also smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) seconds: u64,
}

impl Scale {
    /// This many in a whole attack, and in proportion in a shorter one.
    pub(crate) fn of(self, whole: u64) -> u64 {
        (whole * self.seconds.min(WHOLE_SECONDS) / WHOLE_SECONDS).max(1)
    }

    /// The broker's budgets of memory in this proportion, as lines of its configuration.
    pub(crate) fn budgets(self) -> String {
        let (unadmitted, memory) = (self.of(64), self.of(1_024));
        format!(
            "[limits]\nunadmitted_bytes_max = \"{unadmitted} MiB\"\nmemory_bytes_max = \"{memory} MiB\"\n"
        )
    }

    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// A limit, and the figure that was measured.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) figure: String,
    pub(crate) limit: String,
    pub(crate) holds: bool,
}

impl Check {
    pub(crate) fn at_most(
        what: &'static str,
        figure: impl PartialOrd + fmt::Display,
        limit: impl fmt::Display,
        holds: bool,
    ) -> Self {
        Self {
            what,
            figure: figure.to_string(),
            limit: limit.to_string(),
            holds,
        }
    }

    /// Something that must be as it is named.
    pub(crate) fn must(what: &'static str, figure: impl fmt::Display, holds: bool) -> Self {
        Self {
            what,
            figure: figure.to_string(),
            limit: "required".to_owned(),
            holds,
        }
    }

    pub(crate) fn count(what: &'static str, figure: u64, limit: u64) -> Self {
        Self::at_most(what, figure, limit, figure <= limit)
    }

    pub(crate) fn mib(what: &'static str, figure: u64, limit: u64) -> Self {
        let (shown, most) = (format!("{figure} MiB"), format!("{limit} MiB"));
        Self::at_most(what, shown, most, figure <= limit)
    }

    pub(crate) fn time(what: &'static str, figure: Duration, limit: Duration) -> Self {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        Self::at_most(what, ms(figure), ms(limit), figure <= limit)
    }
}

/// What an attack found.
#[derive(Debug)]
pub(crate) enum Outcome {
    Measured(Vec<Check>),
    /// Why it cannot be tried on this machine.
    Skipped(String),
}

/// An attack that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttackError {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("the attacker: {0}")]
    Link(#[from] LinkError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A broker under attack with an honest client beside it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) broker: Broker,
    honest: Honest,
    begin: Instant,
}

impl Stage {
    pub(crate) fn set(setup: Setup) -> Result<Self, BrokerError> {
        Broker::start(setup).map(Self::around)
    }

    pub(crate) fn around(broker: Broker) -> Self {
        Self::around_calm(broker, false)
    }

    fn around_calm(broker: Broker, is_calm: bool) -> Self {
        let login = broker.has_passwords().then_some((USER, PASSWORD));
        Self {
            honest: Honest::start(broker.address, login, is_calm),
            broker,
            begin: Instant::now(),
        }
    }

    /// The same, and in a whole attack the honest client has the broker to itself at first.
    pub(crate) fn set_with_lead_in(setup: Setup, scale: Scale) -> Result<Self, BrokerError> {
        let is_whole = scale.seconds >= WHOLE_SECONDS;
        let mut stage = Self::around_calm(Broker::start(setup)?, is_whole);
        if is_whole {
            stage.honest.before_the_attack(LEAD_IN);
        }
        stage.begin = Instant::now();
        Ok(stage)
    }

    /// Ends the honest client and prints the figures that every attack has.
    pub(crate) fn finish(self) -> (Broker, Record) {
        let record = self.honest.finish();
        let usage = self.broker.usage();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "  honest client: {} messages, p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms, {} refusals, \
             {} lost",
            record.count(),
            ms(record.percentile(50)),
            ms(record.percentile(99)),
            ms(record.worst()),
            record.refusals,
            record.lost,
        );
        println!(
            "  broker: {:.1} s, CPU {:.1} s, memory now {} MiB, at most {} MiB",
            self.begin.elapsed().as_secs_f64(),
            usage.cpu_seconds(),
            usage.now_mib(),
            usage.peak_mib(),
        );
        (self.broker, record)
    }
}

/// The honest client got what it is promised.
pub(crate) fn unharmed(record: &Record, scale: Scale) -> Vec<Check> {
    let is_whole = scale.seconds >= WHOLE_SECONDS;
    let worst = if is_whole { WORST } else { WORST_IN_SHORT };
    let calm = record.calm_percentile(99);
    let unmoved = calm.map(|calm| {
        let limit = calm * P99_TIMES + P99_MORE;
        Check::time("honest p99", record.percentile(99), limit)
    });
    let checks = [
        Check::time("honest worst", record.worst(), worst),
        Check::count("honest refusals", record.refusals.into(), 0),
    ];
    checks.into_iter().chain(unmoved).collect()
}

/// What may be left of so much memory: a quarter, but what the process and its allocator keep in
/// any case, which does not shrink with a shorter attack.
pub(crate) fn afterwards_mib(limit: u64) -> u64 {
    (limit / 4).max(96)
}

/// Memory in MiB once it is at most `enough`, or has not fallen for longer than the allocator takes
/// to give it back, which is 10 s.
pub(crate) fn settled_mib(stage: &Stage, enough: u64) -> u64 {
    const LOOKS: usize = 120;
    let usage = stage.broker.usage();
    let mut least = usage.now_mib();
    let mut same = 0;
    while least > enough && same < LOOKS {
        thread::park_timeout(Duration::from_millis(100));
        let now = usage.now_mib();
        same = if now < least { 0 } else { same + 1 };
        least = least.min(now);
    }
    least
}
