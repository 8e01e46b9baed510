//! What the audit says of itself: the totals under `$SYS/audit/`.
//!
//! | topic | is |
//! |---|---|
//! | `received` | messages accepted from clients and numbered |
//! | `expected` | deliveries owed: one for each session that is to have a message |
//! | `stored`, `sent`, `acknowledged`, `processed` | how far those came |
//! | `waiting` | accepted and not sent: in the queue, or held until something is stored |
//! | `dropped`, `dropped/<reason>` | not delivered, by name |
//! | `unrouted` | messages nobody subscribed to |
//! | `handed-on`, `redelivered`, `received-again/…` | what is neither loss nor duplicate |
//! | `lost`, `duplicated`, `reordered`, `altered`, `unbalanced` | faults of the broker: 0 |
//! | `windows/proven`, `windows/faulty`, `windows/unproven` | windows of 1,024 deliveries |
//! | `publishers/…` | what was found in the lanes of publishers that stamp themselves |
//! | `verdict` | all of it in a sentence |

use crate::output::DropReason;
use crate::stats::Stats;

pub(crate) fn sys_values(sum: &Stats) -> impl Iterator<Item = (String, String)> {
    let audit = &sum.audit;
    let of = &audit.publishers;
    let counts = [
        ("received", audit.received),
        ("received-again/on-one-connection", audit.retransmitted),
        ("received-again/after-a-reconnect", audit.redelivered_in),
        ("expected", audit.expected),
        ("stored", audit.stored()),
        ("sent", audit.sent.saturating_sub(audit.unsaid)),
        ("acknowledged", audit.acknowledged),
        ("processed", audit.processed),
        ("waiting", audit.waiting()),
        ("redelivered", audit.redelivered),
        ("handed-on", audit.handed_on),
        ("unrouted", sum.publishes_unrouted),
        ("dropped", sum.dropped_total()),
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
        ("publishers/reordered", of.reordered),
        ("publishers/altered", of.altered),
        ("publishers/injected", of.injected),
        ("publishers/forged", of.forged),
        ("publishers/roots-differing", of.roots_differing),
        ("publishers/contradicted", of.contradicted),
        ("publishers/windows/proven", of.windows_proven),
        ("publishers/windows/faulty", of.windows_faulty),
        ("publishers/windows/unproven", of.windows_unproven),
        ("windows/proven", audit.windows_proven),
        ("windows/faulty", audit.windows_faulty),
        ("windows/unproven", audit.windows_unproven),
    ];
    let by_reason = DropReason::ALL.map(|reason| {
        let topic = format!("$SYS/audit/dropped/{}", reason.name());
        (topic, sum.dropped[reason as usize].to_string())
    });
    let topic = |(name, count): (&str, u64)| (format!("$SYS/audit/{name}"), count.to_string());
    let verdict = ("$SYS/audit/verdict".to_owned(), sentence(sum));
    let counts = counts.map(topic).into_iter();
    counts.chain(by_reason).chain([verdict])
}

/// "1,204,331 received, …, 0 lost, 0 duplicated, 0 reordered".
fn sentence(sum: &Stats) -> String {
    let audit = &sum.audit;
    let words = [
        ("received", audit.received),
        ("deliveries owed", audit.expected),
        ("sent", audit.sent.saturating_sub(audit.unsaid)),
        ("waiting", audit.waiting()),
        ("dropped by name", sum.dropped_total()),
        ("lost", audit.lost),
        ("duplicated", audit.duplicated),
        ("reordered", audit.reordered),
        ("altered", audit.altered),
    ];
    let words = words.map(|(word, count)| format!("{} {word}", grouped(count)));
    words.join(", ")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_a_sentence() {
        let mut sum = Stats::default();
        sum.audit.received = 1_204_331;
        sum.audit.expected = 12;
        sum.audit.sent = 10;
        sum.dropped[DropReason::QueueFull as usize] = 1;
        sum.audit.dropped = 1;
        assert_eq!(
            sentence(&sum),
            "1,204,331 received, 12 deliveries owed, 10 sent, 1 waiting, 1 dropped by name, \
             0 lost, 0 duplicated, 0 reordered, 0 altered"
        );
    }
}
