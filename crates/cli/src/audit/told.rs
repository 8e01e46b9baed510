//! What an observer knows, in words or as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;
use unbroken_merkle_log::ledger::State;
use unbroken_mqtt_proto::Escaped;

use super::broker_side::{Account, MAY_BE_FORGED, Said};
use super::neighbours::Neighbour;
use super::news::{LaneKey, numbers, word};
use super::observer::Observer;
use super::unjudged;
use super::wall::{date, span};
use super::watched::Watched;

/// Characters of a payload that are shown.
const EXCERPT: usize = 60;

/// What became known since the last call, by the messages and by the broker, a line each.
pub(super) fn all_news(
    out: &mut impl Write,
    observer: &mut Observer,
    json: bool,
) -> io::Result<()> {
    for news in observer.take_news() {
        if json {
            writeln!(out, "{}", news.to_json())?;
        } else {
            writeln!(out, "{news}")?;
        }
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

/// Why not all could be judged, where nothing was wrong.
pub(super) fn why_unjudged(
    out: &mut impl Write,
    observer: &Observer,
    json: bool,
) -> io::Result<()> {
    if observer.found_faults() {
        return Ok(());
    }
    let reasons = unjudged::reasons(observer);
    if json && !reasons.is_empty() {
        return writeln!(out, "{}", json!({ "unjudged": reasons }));
    }
    for reason in reasons {
        writeln!(out, "not all was judged: {reason}")?;
    }
    Ok(())
}

/// A line for each lane: what its messages prove, and beside it what the broker says.
pub(super) fn status(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    if !json {
        writeln!(
            out,
            "{:<16} {:>10} {:>12} {:>9} {:>7} {:>7} {:>8} {:>12} {:>7}  {:<22} {:>10}  THE BROKER SAYS",
            "LANE",
            "EPOCH",
            "ARRIVED",
            "DROPPED",
            "PROVEN",
            "FAULTY",
            "UNPROVEN",
            "OUT OF SCOPE",
            "FAULTS",
            "STATE",
            "CHECKPOINT"
        )?;
    }
    for (key, watched) in observer.lanes() {
        lane_status(out, observer, key, watched, json)?;
    }
    unheard_status(out, observer, json)?;
    for (at, (client, account)) in observer.broker.accounts().enumerate() {
        if json {
            writeln!(out, "{}", account.to_json(client))?;
            continue;
        }
        if at == 0 {
            writeln!(out, "\n{}", Account::HEAD)?;
        }
        writeln!(out, "{}", account.line(client))?;
    }
    if !json {
        for ((lane, epoch), watched) in observer.lanes() {
            for declared in declared(observer, watched) {
                writeln!(out, "lane {lane} epoch {epoch}: {declared}")?;
            }
        }
    }
    remarks(out, observer, json)
}

/// A lane that is heard.
fn lane_status(
    out: &mut impl Write,
    observer: &Observer,
    (lane, epoch): LaneKey,
    watched: &Watched,
    json: bool,
) -> io::Result<()> {
    let said = observer.broker.lane(lane, epoch.0);
    let [proven, faulty, unproven] =
        [State::Proven, State::Faulty, State::Unproven].map(|state| watched.count(state));
    let (arrived, faults) = (watched.arrived, watched.faults_named);
    let out_of_scope = watched.doubts.out_of_scope();
    let age = age(observer, watched);
    let state = state(watched);
    if json {
        let value = json!({
            "lane": lane.to_string(), "epoch": epoch.0, "arrived": arrived, "proven": proven,
            "faulty": faulty, "unproven": unproven, "out_of_scope": out_of_scope,
            "dropped": watched.declared.to_json(), "faults": faults,
            "lost_while_away": watched.lost_while_away, "state": state,
            "proven_to": watched.proven().end, "checkpoint_age_s": age.map(|age| age.as_secs()),
            "checkpoint_at": watched.newest_us().map(date), "old": watched.old().is_some(),
            "suspected": watched.doubts.suspected(), "forgotten": watched.forgotten,
            "silent_s": observer.silent_for(watched).map(|since| since.as_secs()),
            "broker": said.map(Said::to_json),
        });
        return writeln!(out, "{value}");
    }
    let said = said.map_or_else(|| "-".to_owned(), Said::to_string);
    let age = age.map_or_else(|| "-".to_owned(), span);
    let dropped = &watched.declared;
    writeln!(
        out,
        "{lane} {epoch:>10} {arrived:>12} {dropped:>9} {proven:>7} {faulty:>7} {unproven:>8} \
         {out_of_scope:>12} {faults:>7}  {state:<22} {age:>10}  {said}"
    )
}

/// Lanes of which only the broker speaks.
fn unheard_status(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    let is_heard = |lane, epoch| {
        let mut lanes = observer
            .lanes()
            .map(|((id, its), _)| (id, Some(u64::from(its.0))));
        lanes.any(|heard| heard == (lane, epoch))
    };
    let others = observer.broker.lanes();
    for ((lane, epoch), said) in others.filter(|((lane, epoch), _)| !is_heard(*lane, *epoch)) {
        let state = if observer.lanes().any(|((heard, _), _)| heard == lane) {
            "not heard"
        } else if observer.strays.is_other(lane) {
            "keyed by another key"
        } else if !said.stamps_itself() {
            "not stamped"
        } else if observer.broker.hears_all() {
            "not heard"
        } else {
            "not in this filter"
        };
        let lane = lane.to_string();
        if json {
            let value = json!({
                "lane": lane, "epoch": epoch, "state": state, "broker": said.to_json(),
            });
            writeln!(out, "{value}")?;
            continue;
        }
        let epoch = epoch.map_or_else(|| "-".to_owned(), |it| it.to_string());
        writeln!(
            out,
            "{lane} {epoch:>10} {:>12} {:>9} {:>7} {:>7} {:>8} {:>12} {:>7}  {state:<22} {:>10}  {said}",
            "-", "-", "-", "-", "-", "-", "-", "-"
        )?;
    }
    Ok(())
}

/// Each lane with its first bad window, and each fault with what came before and after it.
pub(super) fn explanation(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    for (key, watched) in observer.lanes() {
        if json {
            explain_as_json(out, key, watched)?;
        } else {
            explain(out, observer, key, watched)?;
        }
    }
    remarks(out, observer, json)
}

fn explain(
    out: &mut impl Write,
    observer: &Observer,
    (lane, epoch): LaneKey,
    watched: &Watched,
) -> io::Result<()> {
    writeln!(out, "lane {lane} epoch {epoch}: {}", state(watched))?;
    if let (Some(made_us), Some(age)) = (watched.newest_us(), age(observer, watched)) {
        let (made, age) = (date(made_us), span(age));
        writeln!(out, "  newest checkpoint: of {made}, {age} ago")?;
    }
    for declared in declared(observer, watched) {
        writeln!(out, "  {declared}")?;
    }
    if let Some((window, state)) = watched.first_bad() {
        let (numbers, word) = (numbers(window), word(*state));
        writeln!(out, "  first window that is not proven: {numbers}, {word}")?;
    }
    for fault in &watched.faults {
        writeln!(out, "  {fault}")?;
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
                "    {place:<6} it: number {number}, after {at:.3} s, on {topic}: {excerpt}",
                topic = Escaped::new(topic),
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
        "checkpoint_at": watched.newest_us().map(date), "old": watched.old().is_some(),
        "dropped": watched.declared.to_json(),
        "declared": watched.declared.sentences().collect::<Vec<_>>(),
        "first_bad_window": first_bad, "faults": faults, "faults_named": watched.faults_named,
    });
    writeln!(out, "{value}")
}

/// How much came of which nothing is claimed.
fn not_of_lanes(out: &mut impl Write, observer: &Observer) -> io::Result<()> {
    if observer.unstamped > 0 {
        let count = observer.unstamped;
        writeln!(
            out,
            "{count} messages without a stamp, on topics where none has one: nothing is claimed of \
             them"
        )?;
    }
    if observer.retained > 0 {
        let count = observer.retained;
        writeln!(
            out,
            "{count} retained copies, published before this listener subscribed: out of scope, and \
             nothing is claimed of them"
        )?;
    }
    if observer.strays.elsewhere > 0 {
        let count = observer.strays.elsewhere;
        writeln!(
            out,
            "{count} messages on the audit's topics of other lanes were refused: named without -t"
        )?;
    }
    Ok(())
}

/// What would otherwise be a silent gap in the report, and each reason of the exit code.
fn remarks(out: &mut impl Write, observer: &Observer, json: bool) -> io::Result<()> {
    let verdict = observer.broker.verdict();
    let unheard: Vec<_> = observer.unheard().map(|lane| lane.to_string()).collect();
    let unjudged = unjudged::reasons(observer);
    let strays: Vec<_> = observer.strays.sentences().collect();
    if json {
        let value = json!({
            "judged": observer.has_judged(), "unstamped": observer.unstamped,
            "retained": observer.retained, "refused_elsewhere": observer.strays.elsewhere,
            "other_algorithm": observer.strays.foreign_messages(),
            "no_room": observer.no_room().map_or(0, |(messages, _)| messages),
            "other_keys": observer.other_keys, "unheard": unheard, "strays": strays,
            "unjudged": unjudged, "broker": verdict,
        });
        return writeln!(out, "{value}");
    }
    for stray in strays {
        writeln!(out, "{stray}")?;
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
            "no stamped message was received: does a client publish on these topics with a stamp?"
        )?;
    }
    not_of_lanes(out, observer)?;
    for ((lane, epoch), watched) in observer.lanes() {
        if !observer.has_key() && watched.faults.iter().any(|fault| fault.kind == "lost") {
            writeln!(out, "lost in lane {lane} epoch {epoch}: {MAY_BE_FORGED}")?;
        }
        if watched.forgotten > 0 {
            let forgotten = watched.forgotten;
            writeln!(
                out,
                "lane {lane} epoch {epoch}: {forgotten} lost messages are no longer remembered: \
                 a later copy is reported as repeated"
            )?;
        }
        let doubts = observer.in_doubt(watched).filter(|doubts| {
            let sentence = format!("in doubt in lane {lane} epoch {epoch}: {doubts}");
            !unjudged.contains(&sentence)
        });
        if let Some(doubts) = doubts {
            writeln!(out, "in doubt in lane {lane} epoch {epoch}: {doubts}")?;
        }
    }
    for reason in &unjudged {
        writeln!(out, "{reason}")?;
    }
    match verdict {
        Some(verdict) => writeln!(out, "the broker says: {verdict}"),
        None => writeln!(
            out,
            "the broker has no account of its own ($SYS/audit/verdict): this is what the \
             messages prove"
        ),
    }
}

/// What was declared as not delivered.
fn declared(observer: &Observer, watched: &Watched) -> impl Iterator<Item = String> {
    let forged = if observer.has_key() {
        ""
    } else {
        "; the lane has no key, so this record may be forged"
    };
    let sentences = watched.declared.sentences();
    sentences.map(move |sentence| format!("{sentence}{forged}"))
}

/// How old the newest checkpoint of a lane is at the end.
fn age(observer: &Observer, watched: &Watched) -> Option<Duration> {
    let made_us = watched.newest_us()?;
    Some(observer.wall.age(made_us, observer.now()))
}

fn state(watched: &Watched) -> String {
    let old = if watched.old().is_some() { "old, " } else { "" };
    let proven = watched.proven();
    let is_from_0 = proven.start == 0;
    if watched.faults_of_others() > 0 {
        "faulty".to_owned()
    } else if watched.lost_while_away > 0 {
        "lost while away".to_owned()
    } else if watched.first_bad().is_some() || proven.is_empty() {
        format!("{old}not proven yet")
    } else if proven.end < watched.known_to() {
        let last = proven.end - 1;
        if is_from_0 {
            format!("{old}proven to {last}")
        } else {
            format!("{old}proven {} to {last}", proven.start)
        }
    } else if is_from_0 {
        format!("{old}proven")
    } else {
        format!("{old}proven from {}", proven.start)
    }
}

/// The beginning of a payload, on one line.
fn excerpt(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    Escaped::at_most(&text, EXCERPT).to_string()
}

#[cfg(test)]
mod tests {
    use unbroken_demo::Doubt;

    use super::*;

    #[test]
    fn a_payload_is_shown_on_one_line_and_not_longer_than_that() {
        assert_eq!(excerpt(b"21.5\n"), "21.5\\n");
        assert_eq!(excerpt(&[b'x'; 61]), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn a_lane_is_called_proven_as_far_as_it_is() {
        let window = |first, end| first..end;
        for (below, windows, next, expect) in [
            (0, vec![], 10, "not proven yet"),
            (0, vec![window(0, 1_024)], 1_024, "proven"),
            (0, vec![window(0, 1_024)], 1_050, "proven to 1023"),
            (1_024, vec![window(1_024, 1_030)], 1_030, "proven from 1024"),
            (
                1_024,
                vec![window(1_024, 2_048)],
                2_060,
                "proven 1024 to 2047",
            ),
            (0, vec![window(1_024, 2_048)], 2_048, "not proven yet"),
        ] {
            let mut watched = Watched::default();
            watched
                .doubts
                .take(&Doubt::OutOfScope(below), Duration::ZERO);
            for numbers in windows {
                watched.take_window(numbers, State::Proven);
            }
            watched.next = next;
            assert_eq!(state(&watched), expect);
            watched.lost_while_away = 1;
            watched.faults_named = 1;
            assert_eq!(state(&watched), "lost while away");
            watched.faults_named = 2;
            assert_eq!(state(&watched), "faulty");
        }
    }
}
