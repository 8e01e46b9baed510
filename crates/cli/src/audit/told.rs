//! What an observer knows, in words or as JSON.

use std::io::{self, Write};
use std::ops::Range;

use serde_json::{Value, json};
use unbroken_merkle_log::ledger::{Presence, State};

use super::broker_side::{Account, MAY_BE_FORGED, Said};
use super::observer::{LaneKey, News, Observer};
use super::watched::{Fault, Neighbour, Watched};

/// Characters of a payload that are shown.
const EXCERPT: usize = 60;

/// What became known since the last call, by the messages and by the broker, a line each.
pub(super) fn all_news(
    out: &mut impl Write,
    observer: &mut Observer,
    json: bool,
) -> io::Result<()> {
    for found in observer.take_news() {
        news(out, &found, json)?;
    }
    for word in observer.broker.take_news() {
        if json {
            writeln!(out, "{}", word.to_json())?;
        } else {
            writeln!(out, "{word}")?;
        }
    }
    Ok(())
}

/// One piece of news, on a line.
fn news(out: &mut impl Write, news: &News, json: bool) -> io::Result<()> {
    match news {
        News::Fault((lane, epoch), fault) if json => {
            let value = json!({
                "lane": lane.to_string(), "epoch": epoch.0, "fault": fault.kind,
                "first": fault.numbers.start, "end": fault.numbers.end, "reason": fault.reason,
            });
            writeln!(out, "{value}")
        }
        News::Fault((lane, epoch), fault) => {
            writeln!(out, "lane {lane} epoch {epoch}: {}", sentence(fault))
        }
        News::Stray { topic, why } if json => {
            writeln!(
                out,
                "{}",
                json!({ "fault": "injected", "topic": topic, "reason": why })
            )
        }
        News::Stray { topic, why } => {
            writeln!(out, "on {}: injected: {why}", topic.escape_debug())
        }
        News::Dropped {
            lane: (lane, epoch),
            numbers: of,
            reason,
            by_broker,
        } => {
            let by = if *by_broker { "broker" } else { "processor" };
            if json {
                let value = json!({
                    "lane": lane.to_string(), "epoch": epoch.0, "dropped": reason, "by": by,
                    "first": of.start, "end": of.end,
                });
                return writeln!(out, "{value}");
            }
            let of = numbers(of);
            writeln!(
                out,
                "lane {lane} epoch {epoch}: {of} not delivered: {reason}, by the {by}"
            )
        }
        News::Overtaken {
            lane: (lane, epoch),
            number,
            by,
        } => {
            if json {
                let value = json!({
                    "lane": lane.to_string(), "epoch": epoch.0, "overtaken": number, "by": by,
                });
                return writeln!(out, "{value}");
            }
            writeln!(
                out,
                "lane {lane} epoch {epoch}: number {number} came behind {by} with higher numbers; \
                 which of them moved is told when nothing before them is missing"
            )
        }
        News::Doubt((lane, epoch), doubt) => {
            if json {
                let mut members = doubt.to_json();
                members.insert("lane".to_owned(), json!(lane.to_string()));
                members.insert("epoch".to_owned(), json!(epoch.0));
                return writeln!(out, "{}", Value::Object(members));
            }
            writeln!(out, "lane {lane} epoch {epoch}: {doubt}")
        }
        News::Forgotten((lane, epoch), of) => {
            if json {
                let value = json!({
                    "lane": lane.to_string(), "epoch": epoch.0, "forgotten": true,
                    "first": of.start, "end": of.end,
                });
                return writeln!(out, "{value}");
            }
            writeln!(
                out,
                "lane {lane} epoch {epoch}: {} lost long ago and no longer remembered: a copy that \
                 still comes is called repeated",
                numbers(of)
            )
        }
        News::Expected(lane, presence) => {
            if json {
                let (word, after) = match presence {
                    Presence::Absent(after) => ("absent", after),
                    Presence::Come(after) => ("come", after),
                    Presence::Unannounced(after) => ("unannounced", after),
                };
                let after_s = after.as_secs();
                let value =
                    json!({ "lane": lane.to_string(), "expected": word, "after_s": after_s });
                return writeln!(out, "{value}");
            }
            let expected = match presence {
                Presence::Unannounced(_) => "lane",
                Presence::Absent(_) | Presence::Come(_) => "expected lane",
            };
            writeln!(out, "{expected} {lane}: {presence}")
        }
        News::OtherKey(why) if json => writeln!(out, "{}", json!({ "other_key": why })),
        News::OtherKey(why) => writeln!(out, "{why}"),
        News::Window {
            lane: (lane, epoch),
            numbers: of,
            state,
            roots,
        } => {
            if json {
                let (root, of_lane) = roots
                    .map(|(window, lane)| (window.to_string(), lane.to_string()))
                    .unzip();
                let value = json!({
                    "lane": lane.to_string(), "epoch": epoch.0, "window": word(*state),
                    "first": of.start, "end": of.end, "root": root, "lane_root": of_lane,
                });
                return writeln!(out, "{value}");
            }
            let roots = roots.map(|(window, lane)| format!(", root {window}, lane root {lane}"));
            writeln!(
                out,
                "lane {lane} epoch {epoch}: {} {}{}",
                numbers(of),
                word(*state),
                roots.unwrap_or_default()
            )
        }
    }
}

/// A line for each lane: what its messages prove, and beside it what the broker says.
pub(super) fn status(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    if !json {
        writeln!(
            out,
            "{:<16} {:>10} {:>12} {:>7} {:>7} {:>8} {:>12} {:>7}  {:<17}  THE BROKER SAYS",
            "LANE",
            "EPOCH",
            "ARRIVED",
            "PROVEN",
            "FAULTY",
            "UNPROVEN",
            "OUT OF SCOPE",
            "FAULTS",
            "STATE"
        )?;
    }
    let broker = &observer.broker;
    for ((lane, epoch), watched) in observer.lanes() {
        let [proven, faulty, unproven] =
            [State::Proven, State::Faulty, State::Unproven].map(|state| watched.count(state));
        let (arrived, faults) = (watched.arrived, watched.faults_named);
        let out_of_scope = watched.doubts.out_of_scope();
        let said = broker.lane(lane, epoch.0);
        if json {
            let value = json!({
                "lane": lane.to_string(), "epoch": epoch.0, "arrived": arrived, "proven": proven,
                "faulty": faulty, "unproven": unproven, "out_of_scope": out_of_scope,
                "faults": faults, "state": state(watched),
                "suspected": watched.doubts.suspected(), "forgotten": watched.forgotten,
                "silent_s": observer.silent_for(watched).map(|since| since.as_secs()),
                "broker": said.map(Said::to_json),
            });
            writeln!(out, "{value}")?;
        } else {
            let said = said.map_or_else(|| "-".to_owned(), Said::to_string);
            writeln!(
                out,
                "{lane} {epoch:>10} {arrived:>12} {proven:>7} {faulty:>7} {unproven:>8} \
                 {out_of_scope:>12} {faults:>7}  {:<17}  {said}",
                state(watched)
            )?;
        }
    }
    let is_lane_heard = |lane| observer.lanes().any(|((heard, _), _)| heard == lane);
    let is_heard = |lane, epoch| {
        let mut lanes = observer
            .lanes()
            .map(|((id, its), _)| (id, Some(u64::from(its.0))));
        lanes.any(|heard| heard == (lane, epoch))
    };
    let others = broker.lanes();
    for ((lane, epoch), said) in others.filter(|((lane, epoch), _)| !is_heard(*lane, *epoch)) {
        let state = if is_lane_heard(lane) {
            "not heard"
        } else {
            "not stamped"
        };
        let lane = lane.to_string();
        if json {
            let value = json!({ "lane": lane, "epoch": epoch, "broker": said.to_json() });
            writeln!(out, "{value}")?;
        } else {
            let epoch = epoch.map_or_else(|| "-".to_owned(), |it| it.to_string());
            writeln!(
                out,
                "{lane} {epoch:>10} {:>12} {:>7} {:>7} {:>8} {:>12} {:>7}  {:<17}  {said}",
                "-", "-", "-", "-", "-", "-", state
            )?;
        }
    }
    for (at, (client, account)) in broker.accounts().enumerate() {
        if json {
            writeln!(out, "{}", account.to_json(client))?;
            continue;
        }
        if at == 0 {
            writeln!(out, "\n{}", Account::HEAD)?;
        }
        writeln!(out, "{}", account.line(client))?;
    }
    remarks(out, observer, json)
}

/// Each lane with its first bad window, and each fault with what came before and after it.
pub(super) fn explanation(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    for (key, watched) in observer.lanes() {
        if json {
            explain_as_json(out, key, watched)?;
        } else {
            explain(out, key, watched)?;
        }
    }
    remarks(out, observer, json)
}

fn explain(out: &mut impl Write, (lane, epoch): LaneKey, watched: &Watched) -> io::Result<()> {
    writeln!(out, "lane {lane} epoch {epoch}: {}", state(watched))?;
    if let Some((window, state)) = watched.first_bad() {
        let (numbers, word) = (numbers(window), word(*state));
        writeln!(out, "  first window that is not proven: {numbers}, {word}")?;
    }
    for fault in &watched.faults {
        writeln!(out, "  {}", sentence(fault))?;
        if fault.numbers.is_empty() {
            continue;
        }
        let (before, after) = watched.neighbours(&fault.numbers);
        for (place, neighbour) in [("before", before), ("after", after)] {
            let Some(message) = neighbour else {
                writeln!(out, "    {place:<6} it: not seen, or no longer remembered")?;
                continue;
            };
            let (number, topic) = (message.number, &message.topic);
            let at = message.at.as_secs_f64();
            let excerpt = excerpt(&message.payload);
            writeln!(
                out,
                "    {place:<6} it: number {number}, after {at:.3} s, on {topic}: {excerpt}"
            )?;
        }
    }
    let hidden = watched.faults_named - watched.faults.len() as u64;
    if hidden > 0 {
        writeln!(out, "  and {hidden} more faults")?;
    }
    Ok(())
}

fn explain_as_json(
    out: &mut impl Write,
    (lane, epoch): LaneKey,
    watched: &Watched,
) -> io::Result<()> {
    let neighbour = |found: Neighbour<'_>| {
        found.map(|message| {
            json!({
                "number": message.number, "at_s": message.at.as_secs_f64(), "topic": message.topic,
                "payload": excerpt(&message.payload),
            })
        })
    };
    let faults: Vec<_> = watched
        .faults
        .iter()
        .map(|fault| {
            let (before, after) = watched.neighbours(&fault.numbers);
            json!({
                "fault": fault.kind, "first": fault.numbers.start, "end": fault.numbers.end,
                "reason": fault.reason, "before": neighbour(before), "after": neighbour(after),
            })
        })
        .collect();
    let first_bad = watched.first_bad().map(
        |(window, state)| json!({ "first": window.start, "end": window.end, "window": word(*state) }),
    );
    let value = json!({
        "lane": lane.to_string(), "epoch": epoch.0, "state": state(watched),
        "first_bad_window": first_bad, "faults": faults, "faults_named": watched.faults_named,
    });
    writeln!(out, "{value}")
}

/// What would otherwise be a silent gap in the report.
fn remarks(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    let count = observer.not_audited;
    let verdict = observer.broker.verdict();
    let unheard: Vec<_> = observer.unheard().map(|lane| lane.to_string()).collect();
    if json {
        let value = json!({
            "judged": observer.has_judged(), "not_audited": count,
            "other_keys": observer.other_keys, "unheard": unheard, "broker": verdict,
        });
        return writeln!(out, "{value}");
    }
    for why in &observer.other_keys {
        writeln!(out, "{why}")?;
    }
    for lane in unheard {
        writeln!(
            out,
            "expected lane {lane}: there was no sign of it; an idle producer speaks every 10 s"
        )?;
    }
    if observer.lanes().next().is_none() && observer.other_keys.is_empty() {
        writeln!(
            out,
            "no stamped message was heard: is anybody publishing on these topics with a stamp?"
        )?;
    }
    if !observer.has_judged() {
        let broker = if observer.broker.has_judged() {
            "; what the broker says of its own lanes ends at the broker"
        } else {
            ""
        };
        writeln!(out, "nothing was judged from end to end{broker}")?;
    }
    if count > 0 {
        writeln!(
            out,
            "{count} messages without a stamp that can be judged here: nothing is claimed of them"
        )?;
    }
    for ((lane, epoch), watched) in observer.partly_judged() {
        let below = watched.doubts.out_of_scope();
        writeln!(
            out,
            "lane {lane} epoch {epoch}: numbers below {below} were not judged although this listener \
             was there: what came first did not begin with number 0"
        )?;
    }
    for ((lane, epoch), watched) in observer.lanes() {
        if !observer.has_key() && watched.faults.iter().any(|fault| fault.kind == "lost") {
            writeln!(out, "lost in lane {lane} epoch {epoch}: {MAY_BE_FORGED}")?;
        }
        if watched.forgotten > 0 {
            let forgotten = watched.forgotten;
            writeln!(
                out,
                "lane {lane} epoch {epoch}: {forgotten} lost messages are no longer remembered: a \
                 copy that still comes is called repeated"
            )?;
        }
        if let Some(doubts) = observer.in_doubt(watched) {
            writeln!(out, "in doubt in lane {lane} epoch {epoch}: {doubts}")?;
        }
    }
    match verdict {
        Some(verdict) => writeln!(out, "the broker says: {verdict}"),
        None => writeln!(
            out,
            "the broker keeps no account of its own ($SYS/audit/verdict): this is what the \
             messages prove"
        ),
    }
}

fn state(watched: &Watched) -> String {
    let out_of_scope = watched.doubts.out_of_scope();
    if watched.faults_named > 0 {
        "faulty".to_owned()
    } else if watched.first_bad().is_some() || watched.windows.is_empty() {
        "not proven yet".to_owned()
    } else if out_of_scope > 0 {
        format!("proven from {out_of_scope}")
    } else {
        "proven".to_owned()
    }
}

/// "number 5 lost: it was issued and did not come".
fn sentence(fault: &Fault) -> String {
    let (kind, reason) = (fault.kind, &fault.reason);
    if fault.numbers.is_empty() {
        return format!("{kind}: {reason}");
    }
    format!("{} {kind}: {reason}", numbers(&fault.numbers))
}

const fn word(state: State) -> &'static str {
    match state {
        State::Proven => "proven",
        State::Faulty => "faulty",
        State::Unproven => "unproven",
    }
}

fn numbers(numbers: &Range<u64>) -> String {
    match numbers.end - numbers.start {
        1 => format!("number {}", numbers.start),
        _ => format!("numbers {} to {}", numbers.start, numbers.end - 1),
    }
}

/// The beginning of a payload, on one line.
fn excerpt(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    let mut excerpt: String = text
        .chars()
        .take(EXCERPT)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(EXCERPT).is_some() {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use unbroken_merkle_log::{Epoch, LaneId};

    use super::*;

    #[test]
    fn a_payload_is_shown_on_one_line_and_not_longer_than_that() {
        assert_eq!(excerpt(b"21.5\n"), "21.5\\n");
        assert_eq!(excerpt(&[b'x'; 61]), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn what_was_not_delivered_has_a_reason_and_somebody_who_says_so() {
        let dropped = News::Dropped {
            lane: (LaneId::new(7).unwrap(), Epoch(2)),
            numbers: 5..8,
            reason: "queue-full".to_owned(),
            by_broker: true,
        };
        let told = |json| {
            let mut out = Vec::new();
            news(&mut out, &dropped, json).unwrap();
            String::from_utf8(out).unwrap()
        };
        let words = "numbers 5 to 7 not delivered: queue-full, by the broker\n";
        assert_eq!(
            told(false),
            format!("lane 0000000000000007 epoch 2: {words}")
        );
        assert!(told(true).contains(r#""dropped":"queue-full""#));
    }

    #[test]
    fn one_number_and_several_are_told_apart() {
        assert_eq!(numbers(&(5..6)), "number 5");
        assert_eq!(numbers(&(5..8)), "numbers 5 to 7");
    }
}
