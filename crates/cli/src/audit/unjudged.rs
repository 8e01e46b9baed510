//! Why not all could be judged. While there is a reason, nothing is called right as a whole: the
//! commands end with exit code 3, and print each reason.

use unbroken_mqtt_proto::Escaped;

use super::news::{LaneKey, numbers};
use super::observer::{OTHER_WINDOWS, Observer, UNNAMED, no_room_for_producers, old_sentence};
use super::watched::Watched;

/// A sentence for each reason.
pub(super) fn reasons(observer: &Observer) -> Vec<String> {
    let mut reasons = Vec::new();
    if !observer.has_judged() {
        let broker = if observer.broker.has_judged() {
            "; what the broker says of its own lanes ends at the broker"
        } else {
            ""
        };
        reasons.push(format!("nothing was judged from end to end{broker}"));
    }
    reasons.extend(observer.away.sentences(observer.wall));
    for ((lane, epoch), watched) in observer.partly_judged() {
        let below = watched.doubts.out_of_scope();
        reasons.push(format!(
            "lane {lane} epoch {epoch}: numbers below {below} were not judged although this \
             listener was connected: what came first did not begin with number 0"
        ));
    }
    for (key, watched) in observer.lanes() {
        reasons.extend(of_lane(observer, key, watched));
    }
    reasons.extend(observer.other_keys.iter().cloned());
    reasons.extend(observer.strays.unjudged());
    reasons.extend(observer.producers_max.map(no_room_for_producers));
    if let Some((messages, lanes)) = observer.no_room() {
        let lanes: Vec<_> = lanes
            .iter()
            .take(3)
            .map(|(lane, _)| lane.to_string())
            .collect();
        reasons.push(format!(
            "{messages} messages of lanes for which there was no room were not judged, such as of {}",
            lanes.join(", ")
        ));
    }
    reasons.extend(intruders(observer));
    let elsewhere = observer.broker.faults_perhaps_elsewhere();
    if elsewhere > 0 {
        reasons.push(format!(
            "the broker names {elsewhere} faults in lanes received here, without a topic: they \
             may be on topics that are not listened to (--part)"
        ));
    }
    reasons
}

/// Without a key this listener cannot tell what an intruder sent from what the producer did.
fn intruders(observer: &Observer) -> impl Iterator<Item = String> {
    let lanes = observer.broker.intruded();
    let heard = lanes.filter(|((lane, _), ..)| {
        !observer.has_key() && observer.lanes().any(|((heard, _), _)| heard == *lane)
    });
    heard.map(|((lane, _), times, client)| {
        format!(
            "lane {lane}: the broker names {times} times what another client ({}) \
             sent in it; the lane has no key, so this listener cannot tell it from what the \
             producer sent",
            Escaped::new(client)
        )
    })
}

fn of_lane(observer: &Observer, (lane, epoch): LaneKey, watched: &Watched) -> Vec<String> {
    let name = format!("lane {lane} epoch {epoch}");
    let mut reasons = Vec::new();
    // Of a silent producer also what follows a proven window may be lost.
    if watched.doubts.suspected() > 0 || observer.silent_for(watched).is_some() {
        let doubts = observer.in_doubt(watched).unwrap_or_default();
        reasons.push(format!("in doubt in {name}: {doubts}"));
    }
    if let Some(outstanding) = &watched.outstanding {
        let outstanding = numbers(outstanding);
        reasons.push(format!(
            "in doubt in {name}: {outstanding} may be missing: the producer has told of them, and \
             this listener ended before they came or were late"
        ));
    }
    // Of some of the topics nothing can be proven.
    if !observer.hears_part() {
        if watched.unproven() > 0 {
            let count = watched.unproven();
            reasons.push(format!("{name}: {count} windows could not be proven"));
        }
        if let Some(beyond) = watched.beyond_cut() {
            let beyond = numbers(&beyond);
            reasons.push(format!(
                "{name}: {beyond} are beyond the end that the producer remembered when it came back, \
                 and nothing proves them"
            ));
        }
    }
    reasons.extend(
        watched
            .old()
            .map(|old| format!("{name}: {}", old_sentence(old))),
    );
    if watched.other_windows > 0 {
        let count = watched.other_windows;
        reasons.push(format!(
            "{name}: each of {count} checkpoints {OTHER_WINDOWS}"
        ));
    }
    if watched.unnamed > 0 {
        reasons.push(format!("{name}: {} {UNNAMED}", watched.unnamed));
    }
    reasons
}
