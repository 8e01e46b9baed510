//! A quiet pair of which is known when each message was due, so that those can be told apart that
//! somebody else may have held up.
//!
//! The load generator has latencies in a histogram, in which a short stall that comes seldom is in
//! no percentile that one looks at.

use std::{
    io,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use crate::client::Client;

/// One message that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) due: Instant,
    pub(super) came: Instant,
}

/// From one message to the next.
const INTERVAL: Duration = Duration::from_millis(1);
const WARM_UP: Duration = Duration::from_millis(500);
const TOPIC: &str = "quiet";

/// Sends for so long, after a warm-up that is not told of. Fails unless every message comes, once
/// and in order.
pub(super) fn run(target: SocketAddr, time: Duration) -> io::Result<Vec<Message>> {
    let mut subscriber = Client::passing(target, "quiet-to")?;
    subscriber.subscribe([TOPIC.to_owned()].into_iter())?;
    let mut subscriber = subscriber.messages();
    let mut publisher = Client::passing(target, "quiet-from")?;
    let interval = INTERVAL.as_nanos();
    let count = |time: Duration| u32::try_from(time.as_nanos() / interval).unwrap_or(u32::MAX);
    let (skipped, count) = (count(WARM_UP), count(WARM_UP + time));
    let began = Instant::now();
    let due = |number: u32| began + INTERVAL * number;
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            (0..count).try_for_each(|number| {
                thread::sleep(due(number).saturating_duration_since(Instant::now()));
                publisher.send(TOPIC, &number.to_be_bytes())
            })
        });
        let mut messages = Vec::new();
        for number in 0..count {
            let (_, payload) = subscriber.next()?;
            let came = Instant::now();
            if payload != number.to_be_bytes() {
                let text = format!("{payload:02x?} is not message {number} of the quiet pair");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if number >= skipped {
                let due = due(number);
                messages.push(Message { due, came });
            }
        }
        let sent = sending.join();
        sent.map_err(|_| io::Error::other("the quiet publisher panicked"))??;
        Ok(messages)
    })
}

/// Milliseconds from when it was due, of the slowest hundredth at least; not a number of none.
pub(super) fn p99_ms<'a>(messages: impl IntoIterator<Item = &'a Message>) -> f64 {
    let latency = |message: &Message| message.came.saturating_duration_since(message.due);
    let mut latencies: Vec<_> = messages.into_iter().map(latency).collect();
    latencies.sort_unstable();
    let place = (latencies.len() * 99).div_ceil(100).saturating_sub(1);
    let slow = latencies.get(place);
    slow.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_of_a_hundred_is_the_percentile() {
        let due = Instant::now();
        let after = |ms| Message {
            due,
            came: due + Duration::from_millis(ms),
        };
        let hundred: Vec<_> = (1..=100).rev().map(after).collect();
        assert!((p99_ms(&hundred) - 99.0).abs() < 1e-9);
        assert!((p99_ms(&[after(7)]) - 7.0).abs() < 1e-9);
        assert!(p99_ms(&[]).is_nan());
    }
}
