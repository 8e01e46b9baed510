//! What the audit says of itself: the totals under `$SYS/audit/`.
//!
//! | topic | is |
//! |---|---|
//! | `received` | messages accepted from clients and numbered |
//! | `expected` | expected deliveries: one for each session that is to have a message |
//! | `handed-to-network` | of those, QoS 0 that was written to a connection |
//! | `stored`, `sent`, `acknowledged`, `processed` | how far those of QoS 1 and 2 came |
//! | `since` | when the counting began |
//! | `waiting` | accepted and not sent: in the queue, or held until something is stored |
//! | `dropped`, `dropped/<reason>` | not delivered, by name |
//! | `unrouted` | messages nobody subscribed to |
//! | `to-watchers` | deliveries to clients that only verify; in none of the others |
//! | `handed-on`, `redelivered`, `received-again/…` | what is neither loss nor duplicate |
//! | `lost`, `duplicated`, `reordered`, `altered`, `unbalanced` | faults of the broker: 0 |
//! | `windows/proven`, `windows/faulty`, `windows/unproven` | windows of 1,024 deliveries |
//! | `publishers/…` | what was found in the lanes of publishers that stamp themselves |
//! | `verdict` | all of it in a sentence |
//!
//! `$SYS` itself, what the audit's own topics carry, and deliveries to watchers are in none of
//! these: to read or verify the figures does not change them. Faults are counted there too.

use super::Stats;
use crate::reason::DropReason;
use crate::settings::AuditSettings;

/// The topic of the sentence.
pub(crate) const VERDICT: &str = "$SYS/audit/verdict";

/// All but the verdict.
pub(crate) fn sys_values(
    sum: &Stats,
    settings: &AuditSettings,
) -> impl Iterator<Item = (String, String)> {
    let by_reason = DropReason::ALL.map(|reason| {
        let topic = format!("$SYS/audit/dropped/{}", reason.name());
        (topic, sum.dropped_shown(reason).to_string())
    });
    let topic = |(name, count): (&str, u64)| (format!("$SYS/audit/{name}"), count.to_string());
    let since = ("$SYS/audit/since".to_owned(), since(settings));
    let counts = figures(sum).into_iter().map(topic);
    counts.chain(by_reason).chain([since])
}

/// The counts by their names, but those by reason.
pub(super) fn figures(sum: &Stats) -> [(&'static str, u64); FIGURES] {
    let audit = &sum.audit;
    let of = &audit.publishers;
    [
        ("received", received(sum)),
        ("received-again/on-one-connection", audit.retransmitted),
        ("received-again/after-a-reconnect", audit.redelivered_in),
        ("expected", expected(sum)),
        ("stored", audit.shown_stored()),
        ("handed-to-network", audit.shown_handed_to_network()),
        ("sent", audit.shown_sent()),
        ("acknowledged", acknowledged(sum)),
        ("processed", audit.processed),
        ("waiting", audit.shown_waiting()),
        ("redelivered", audit.redelivered),
        (
            "handed-on",
            audit.handed_on.saturating_sub(audit.aside.handed_on),
        ),
        ("unrouted", unrouted(sum)),
        ("to-watchers", audit.to_watchers),
        ("dropped", dropped(sum)),
        ("lost", audit.lost),
        ("duplicated", audit.duplicated),
        ("reordered", audit.reordered),
        ("altered", audit.altered),
        ("unbalanced", audit.unbalanced),
        ("publishers/verified", of.verified),
        ("publishers/unaudited", of.unaudited),
        ("publishers/unverifiable", of.unverifiable),
        ("publishers/refused", of.refused),
        ("publishers/lost", of.lost),
        ("publishers/duplicated", of.duplicated),
        ("publishers/repeated", of.repeated),
        ("publishers/reordered", of.reordered),
        ("publishers/altered", of.altered),
        ("publishers/injected", of.injected),
        ("publishers/intruded", of.intruded),
        ("publishers/lanes-refused", of.lanes_refused),
        ("publishers/lanes-joined-late", of.lanes_joined_late),
        ("publishers/forged", of.forged),
        ("publishers/roots-differing", of.roots_differing),
        ("publishers/contradicted", of.contradicted),
        ("publishers/windows/proven", of.windows_proven),
        ("publishers/windows/faulty", of.windows_faulty),
        ("publishers/windows/unproven", of.windows_unproven),
        ("windows/proven", audit.windows_proven),
        ("windows/faulty", audit.windows_faulty),
        ("windows/unproven", audit.windows_unproven),
    ]
}

const FIGURES: usize = 42;

/// "1,204,331 received, …, 0 lost, 0 duplicated, 0 reordered, 0 altered; since …".
pub(crate) fn sentence(sum: &Stats, settings: &AuditSettings) -> String {
    let audit = &sum.audit;
    let words = [
        ("received", received(sum)),
        ("unrouted", unrouted(sum)),
        ("expected deliveries", expected(sum)),
        (
            "handed to the network (QoS 0)",
            audit.shown_handed_to_network(),
        ),
        ("sent (QoS 1 and 2)", audit.shown_sent()),
        ("acknowledged", acknowledged(sum)),
        ("processed", audit.processed),
        ("waiting", audit.shown_waiting()),
        ("dropped by name", dropped(sum)),
        ("lost", audit.lost),
        ("duplicated", audit.duplicated),
        ("reordered", audit.reordered),
        ("altered", audit.altered),
    ];
    let words = words.map(|(word, count)| format!("{} {word}", grouped(count)));
    format!("{}; since {}", words.join(", "), since(settings))
}

fn received(sum: &Stats) -> u64 {
    sum.audit.received.saturating_sub(sum.audit.aside.received)
}

fn unrouted(sum: &Stats) -> u64 {
    sum.publishes_unrouted
        .saturating_sub(sum.audit.aside.unrouted)
}

fn expected(sum: &Stats) -> u64 {
    sum.audit.expected.saturating_sub(sum.audit.aside.expected)
}

fn acknowledged(sum: &Stats) -> u64 {
    let aside = sum.audit.aside.acknowledged;
    sum.audit.acknowledged.saturating_sub(aside)
}

fn dropped(sum: &Stats) -> u64 {
    let reasons = DropReason::ALL.into_iter();
    reasons.map(|reason| sum.dropped_shown(reason)).sum()
}

/// When the counting began, and whether what was counted before was lost in a crash.
fn since(settings: &AuditSettings) -> String {
    let time = rfc3339(settings.started_us).replace('T', " ");
    let (second, _) = time.split_once('.').unwrap_or((&time, ""));
    let crash = if settings.after_crash {
        " (started after a crash)"
    } else {
        ""
    };
    format!("{second} UTC{crash}")
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds since 1970 as RFC 3339, in UTC, to the millisecond.
pub(crate) fn rfc3339(us: u64) -> String {
    let (days, of_day) = (us / DAY_US, us % DAY_US);
    // Days from the first of March of the year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let (month, later) = match march_month {
        0..=9 => (march_month + 3, 0),
        _ => (march_month - 9, 1),
    };
    let year = era * 400 + year_of_era + later;
    let ms = of_day / 1_000;
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

const DAY_US: u64 = 86_400_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_a_sentence() {
        let mut sum = Stats::default();
        sum.audit.received = 1_204_331;
        sum.publishes_unrouted = 4;
        sum.audit.expected = 12;
        sum.audit.sent = 10;
        sum.audit.sent_qos0 = 7;
        sum.audit.acknowledged = 2;
        sum.audit.processed = 1;
        sum.drop(DropReason::QueueFull, 1, false);
        sum.audit.dropped = 1;
        let mut settings = AuditSettings {
            started_us: 1_795_291_445_900_000,
            after_crash: true,
            ..AuditSettings::default()
        };
        assert_eq!(
            sentence(&sum, &settings),
            "1,204,331 received, 4 unrouted, 12 expected deliveries, \
             7 handed to the network (QoS 0), 3 sent (QoS 1 and 2), 2 acknowledged, 1 processed, \
             1 waiting, 1 dropped by name, 0 lost, 0 duplicated, 0 reordered, 0 altered; \
             since 2026-11-21 20:04:05 UTC (started after a crash)"
        );
        settings.after_crash = false;
        assert!(sentence(&sum, &settings).ends_with("since 2026-11-21 20:04:05 UTC"));
    }

    #[test]
    fn what_the_audit_itself_carries_is_in_no_figure() {
        let mut all = Stats::default();
        let totals = &mut all.audit;
        (totals.received, totals.expected, totals.sent) = (5, 9, 6);
        (totals.sent_qos0, totals.dropped, totals.refused) = (4, 2, 1);
        totals.acknowledged = 1;
        let aside = &mut totals.aside;
        (aside.received, aside.expected, aside.sent) = (5, 9, 6);
        (aside.sent_qos0, aside.dropped, aside.refused) = (4, 2, 1);
        aside.acknowledged = 1;
        all.drop(DropReason::SlowReceiver, 2, true);
        let nothing = sentence(&Stats::default(), &AuditSettings::default());
        assert_eq!(sentence(&all, &AuditSettings::default()), nothing);
    }

    #[test]
    fn days_become_dates() {
        let check = |seconds: u64, date: &str| assert_eq!(rfc3339(seconds * 1_000_000), date);
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400, "2000-02-29T00:00:00.000Z");
        check(1_795_291_445, "2026-11-21T20:04:05.000Z");
        check(4_102_444_799, "2099-12-31T23:59:59.000Z");
    }
}
