//! Asks a publisher to send messages again, as a receiver of the audit does.
//!
//! The answer shows that the publisher still has them. Receivers that audit ask for themselves;
//! others are not given the copy, which would reach them as a new message.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::{Instant, timeout_at};
use unbroken_client::{Filter, Message};
use unbroken_demo::random_lane;
use unbroken_merkle_log::ledger::{Answer, Request};
use unbroken_merkle_log::{Algorithm, Epoch};

use super::Incident;
use super::inside::Inside;
use crate::broker::Broker;
use crate::problem::Problem;

/// Messages sent again, and those that the publisher does not have any more.
pub(crate) async fn ask(broker: &Broker, incident: &Incident) -> Result<(u64, u64), Problem> {
    let conflict = |why: String| Problem::new(StatusCode::CONFLICT, why);
    let (Some(lane), Some(epoch), Some(first), Some(last)) = (
        &incident.lane,
        incident.epoch,
        incident.first,
        incident.last,
    ) else {
        return Err(conflict(
            "the incident names no messages of a lane".to_owned(),
        ));
    };
    let prefix = broker.handle().config().audit.prefix.clone();
    let answers = format!("{prefix}/answer/{}", random_lane());
    let rules = [
        format!("publish {prefix}/repair/#"),
        format!("subscribe,receive {prefix}/answer/#"),
    ];
    let inside = Inside::open(broker, rules.into()).await?;
    let failed =
        |why: &dyn std::fmt::Display| conflict(format!("the publisher was not asked: {why}"));
    let client = inside
        .options(inside.address)
        .connect()
        .await
        .map_err(|it| failed(&it))?;
    let filter = Filter::new(answers.as_str()).map_err(|it| failed(&it))?;
    let mut answered = client.subscribe(filter).await.map_err(|it| failed(&it))?;
    let wanted = first..last.saturating_add(1).min(first.saturating_add(ASKED_MAX));
    let mut request = Vec::new();
    Request::Numbers(vec![wanted.clone()]).encode(Epoch(epoch), &mut request);
    let message = Message::new(format!("{prefix}/repair/{lane}"), request);
    let message = message.map_err(|it| failed(&it))?.response_topic(&answers);
    let message = message.and_then(|it| it.correlation_data(lane.as_bytes()));
    let message = message.map_err(|it| failed(&it))?;
    client.publish(message).await.map_err(|it| failed(&it))?;
    let (mut sent_again, mut gone) = (0, 0);
    let deadline = Instant::now() + WAIT;
    while sent_again + gone < wanted.end - wanted.start {
        let Ok(Ok(answer)) = timeout_at(deadline, answered.recv()).await else {
            break;
        };
        match Answer::parse(Algorithm::Xxh3, answer.payload()) {
            _ if answer.user_property("audit").is_some() => sent_again += 1,
            Ok((_, Answer::NotHeld(numbers))) => {
                let told = numbers.iter().map(|run| run.end.saturating_sub(run.start));
                let told = told.fold(0, u64::saturating_add);
                gone += told.min(wanted.end - wanted.start); // a client tells it
            }
            _ => {}
        }
    }
    client.disconnect().await;
    if sent_again + gone == 0 {
        let detail = "the publisher did not answer within 3 s: it is not connected, or its \
                      library does not answer requests for repair";
        return Err(conflict(detail.to_owned()));
    }
    Ok((sent_again, gone))
}

/// For all answers.
const WAIT: Duration = Duration::from_secs(3);
/// Messages that one request asks for.
const ASKED_MAX: u64 = 1_024;
