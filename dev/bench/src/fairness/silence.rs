//! Everybody beside a subscriber that has stopped reading.
//!
//! At QoS 0 what it does not take is dropped, and the others are compared with the same load
//! without it. At QoS 1 with a session that stays everything is kept for it, on disk where a broker
//! has one; what keeping costs is a question of `unbroken-bench durability`, so there the others
//! are compared with the same load beside such a session whose client is away.
//!
//! When the load is over the silent one has to be connected still: it reads what has waited, and
//! the broker has to answer behind it. To have cut it off is no way for ours to be fair, so the
//! benchmark fails; of a peer the figures say so.

use std::{fmt, io, net::SocketAddr, time::Duration};

use unbroken_load::{Extent, Report, Scenario, Settings, grouped};

use super::{Rounds, is_peer, load, names};
use crate::{
    client::Client,
    error::BenchError,
    figure::{Bar, Figure},
    peer::{OURS, Peer},
    results::{DELIVERED, P99},
};

/// What the others found on one broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    passing: Beside,
    staying: Beside,
}

/// Without the silent one, and beside it.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Messages delivered each second, at full speed.
    rate: [f64; 2],
    /// Milliseconds, at [`RATE`].
    p99: [f64; 2],
    /// Whether the silent one was connected to the end.
    stayed: bool,
}

type Part = fn(&Found) -> Beside;

/// Who else has asked for everything.
#[derive(Clone, Copy, Debug)]
enum Other {
    Nobody,
    /// Connected, at QoS 0, and reads nothing.
    Silent,
    /// A session that stays, at QoS 1, whose client has left.
    Away,
    /// The same whose client is connected and reads nothing.
    StayingSilent,
}

const ROW: &str = "silence";
/// Messages a second, open loop. With their size it fills every buffer on the way to the silent
/// subscriber before anything is measured.
const RATE: f64 = 5_000.0;
const PAYLOAD: usize = 1_024;
const CONNECTIONS: u32 = 100;
const WARM_UP: Duration = Duration::from_secs(2);
/// What is left of the rate at least: each message has one receiver more, for whom it is dropped
/// or kept.
const RATE_AT_LEAST: f64 = 0.95;
/// How much later the slowest hundredth may come.
const ADDED_MS: f64 = 2.0;

pub(super) fn measure(peer: &Peer, secs: Duration) -> Result<Found, BenchError> {
    Ok(Found {
        passing: Beside::measure(peer, secs, [Other::Nobody, Other::Silent])?,
        staying: Beside::measure(peer, secs, [Other::Away, Other::StayingSilent])?,
    })
}

impl Beside {
    fn measure(peer: &Peer, secs: Duration, others: [Other; 2]) -> Result<Self, BenchError> {
        let mut stayed = true;
        let mut of = |rate, metric: fn(&Report) -> Option<f64>| {
            let mut value = |other| {
                let (report, has_stayed) = run(peer, secs, rate, other)?;
                stayed &= has_stayed;
                Ok::<_, BenchError>(metric(&report).unwrap_or(f64::NAN))
            };
            Ok::<_, BenchError>([value(others[0])?, value(others[1])?])
        };
        Ok(Self {
            rate: of(None, DELIVERED)?,
            p99: of(Some(RATE), P99)?.map(|micros| micros / 1e3),
            stayed,
        })
    }
}

/// What the others found, and whether the silent one, if there is one, was connected to the end.
/// Fails if ours did not keep it.
fn run(
    peer: &Peer,
    secs: Duration,
    rate: Option<f64>,
    other: Other,
) -> Result<(Report, bool), BenchError> {
    let running = peer.start()?;
    // It is connected as long as this lives.
    let connected = other.come(running.target)?;
    let scenario = Scenario::Pairs {
        connections: CONNECTIONS,
    };
    let (qos, window) = other.load();
    let settings = Settings {
        payload: PAYLOAD,
        qos,
        window,
        rate,
        warm_up: WARM_UP.min(secs),
        extent: Extent::Time(secs),
        ..Settings::new(running.target, scenario)
    };
    let report = load(ROW, peer, settings)?;
    let stayed = connected.is_none_or(|silent| silent.messages().ping_behind().is_ok());
    if !stayed && !is_peer(peer.name) {
        return Err(BenchError::CutOff { peer: peer.name });
    }
    Ok((report, stayed))
}

impl Other {
    /// Asks for everything, and stays connected or leaves.
    fn come(self, target: SocketAddr) -> io::Result<Option<Client>> {
        let staying = || Client::subscribing(target, "silent", "#");
        match self {
            Self::Nobody => Ok(None),
            Self::Silent => {
                let mut client = Client::passing(target, "silent")?;
                client.subscribe(["#".to_owned()].into_iter())?;
                Ok(Some(client))
            }
            Self::Away => {
                staying()?.leave()?;
                Ok(None)
            }
            Self::StayingSilent => Ok(Some(staying()?.answered()?)),
        }
    }

    /// QoS and messages under way of those beside it.
    const fn load(self) -> (u8, u32) {
        match self {
            Self::Nobody | Self::Silent => (0, 50),
            Self::Away | Self::StayingSilent => (1, 10),
        }
    }
}

/// The names of the figures, what they are about, and what of a round they show.
const FIGURES: [(&str, &str, &str, Part); 2] = [
    (
        "silence-rate",
        "silence-added",
        "a subscriber that has stopped reading, to those without it",
        |found| found.passing,
    ),
    (
        "kept-rate",
        "kept-added",
        "one whose session stays, at QoS 1, to those beside one whose client is away",
        |found| found.staying,
    ),
];

pub(super) fn figures(rounds: &Rounds<Found>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for name in names(rounds) {
        let bar = |bar| (name == OURS).then_some(bar);
        for (rate, added, whom, beside) in FIGURES {
            let mut rate = Figure::new(rate, "", "ratio", bar(Bar::AtLeast(RATE_AT_LEAST))).titled(
                format!("{name}: messages delivered to others beside {whom}"),
            );
            let mut added =
                Figure::new(added, "", "ms", bar(Bar::AtMost(ADDED_MS))).titled(format!(
                    "{name}: what it adds to the p99 of others, at {} messages/s",
                    grouped(RATE)
                ));
            let of_peer = rounds.iter().filter(|(_, peer, _)| *peer == name);
            let mut cut_off = 0;
            for (_, _, found) in of_peer {
                let Beside {
                    rate: [rate_without, rate_beside],
                    p99: [p99_without, p99_beside],
                    stayed,
                } = beside(found);
                cut_off += usize::from(!stayed);
                rate.add(rate_beside / rate_without);
                added.add(p99_beside - p99_without);
            }
            if cut_off > 0 {
                let remark = format!("; in {cut_off} rounds the silent one was cut off");
                [rate, added] = [rate, added].map(|figure| figure.with_remark(&remark));
            }
            figures.extend([rate, added]);
        }
    }
    figures
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passing, staying } = self;
        write!(f, "{passing}; with a session that stays {staying}")
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([rate, rate_beside], [p99, p99_beside]) = (self.rate, self.p99);
        let (rate, rate_beside) = (grouped(rate), grouped(rate_beside));
        write!(
            f,
            "{rate_beside} msgs/s, without {rate}; p99 {p99_beside:.2} ms, without {p99:.2} ms"
        )?;
        if self.stayed {
            Ok(())
        } else {
            f.write_str(", the silent one CUT OFF")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::TWO_SHARDS;

    #[test]
    fn both_silences_are_taken_round_by_round_and_only_ours_as_it_comes_has_bars() {
        let beside = |rate, p99| Beside {
            rate: [100.0, rate],
            p99: [1.0, p99],
            stayed: true,
        };
        let found = |kept| Found {
            passing: beside(99.0, 2.0),
            staying: beside(kept, 4.0),
        };
        let rounds = [
            (0, OURS, found(96.0)),
            (0, TWO_SHARDS, found(10.0)),
            (0, "mosquitto", found(10.0)),
        ];
        let figures = figures(&rounds);
        let shown: Vec<_> = figures
            .iter()
            .map(|figure| (figure.name(), figure.median(), figure.outcome().is_some()))
            .collect();
        assert_eq!(
            shown[..4],
            [
                ("silence-rate", 0.99, true),
                ("silence-added", 1.0, true),
                ("kept-rate", 0.96, true),
                ("kept-added", 3.0, true),
            ]
        );
        assert_eq!(shown.len(), 12);
        assert!(shown[4..].iter().all(|(_, _, has_bar)| !has_bar));
    }

    #[test]
    fn a_peer_that_did_not_keep_the_silent_one_is_shown_so() {
        let beside = |stayed| Beside {
            rate: [1.0; 2],
            p99: [1.0; 2],
            stayed,
        };
        let found = |stayed| Found {
            passing: beside(stayed),
            staying: beside(true),
        };
        let rounds = [false, true, false].map(|stayed| (0, "mosquitto", found(stayed)));
        let figures = figures(&rounds);
        let is_said = |figure: &Figure| {
            figure
                .title()
                .ends_with("in 2 rounds the silent one was cut off")
        };
        let said: Vec<_> = figures[4..].iter().map(is_said).collect();
        assert_eq!(said, [true, true, false, false]);
    }
}
