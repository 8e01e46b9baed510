//! Time as something to receive: once ([`after`]) or again and again ([`tick`]).
//!
//! Both are ports of a [set](crate::PortSet) and places of a [`select!`](crate::select!), and need
//! no runtime. A tick counts from when the
//! ticker was made, so however late each one is taken, they never drift.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::closed::Closed;
use crate::port_set::{Port, Taken};
use crate::select::{Found, Place, TakeHeld, TakeLocal};
use crate::timer::Deadline;

/// A future that is done when so much time has passed since this call. A time beyond what the clock
/// can count never comes.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// session_channels::block_on(session_channels::after(Duration::from_millis(5)));
/// assert!(begin.elapsed() >= Duration::from_millis(5));
/// ```
pub fn after(time: Duration) -> After {
    After(Deadline::after(time))
}

/// Made by [`after`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct After(Deadline);

impl After {
    /// Whether the time has come.
    pub fn is_ready(&self) -> bool {
        self.0.at().is_some_and(|at| Instant::now() >= at)
    }
}

impl Future for After {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll(context)
    }
}

impl Port for After {
    type Item = ();

    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        self.0.poll(context)
    }

    fn take_port(place: &mut Option<Self>) -> Taken<()> {
        match place.take_if(|after| after.is_ready()) {
            Some(_) => Taken::Item(()),
            None => Taken::Nothing,
        }
    }
}

/// A ticker whose first tick comes after one period.
///
/// # Panics
/// If the period is zero.
///
/// ```
/// use std::time::Duration;
///
/// let mut ticker = session_channels::tick(Duration::from_millis(2));
/// for _ in 0..3 {
///     let missed = ticker.next_blocking();
///     println!("a tick, and {missed} that were due before it");
/// }
/// ```
pub fn tick(period: Duration) -> Ticker {
    assert!(
        !period.is_zero(),
        "a ticker's period is longer than no time"
    );
    Ticker {
        period,
        next: Deadline::after(period),
    }
}

/// Made by [`tick`].
#[derive(Debug)]
pub struct Ticker {
    period: Duration,
    next: Deadline,
}

impl Ticker {
    /// Takes a tick that is due: how many more were due before it and are so missed.
    pub fn try_next(&mut self) -> Option<u64> {
        self.due(Instant::now())
    }

    fn due(&mut self, now: Instant) -> Option<u64> {
        let due = self.next.at()?;
        let late = now.checked_duration_since(due)?;
        let missed = late.as_nanos() / self.period.as_nanos();
        // The next one lies between now and one period from now, on the beat.
        let into = u64::try_from(late.as_nanos() % self.period.as_nanos());
        let since_beat = into.map_or(Duration::ZERO, Duration::from_nanos);
        let next = now.checked_add(self.period.saturating_sub(since_beat));
        self.next = Deadline::new(next);
        Some(u64::try_from(missed).unwrap_or(u64::MAX))
    }

    /// Waits until a tick is due, and takes nothing.
    pub fn poll_ready(&mut self, context: &Context<'_>) -> Poll<()> {
        self.next.poll(context)
    }

    /// For a readiness loop: answers whether a tick is due, and if not, has this waker woken when
    /// one is.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.poll_ready(&Context::from_waker(waker)).is_ready()
    }

    /// Waits for the next tick: how many more were due before it and are so missed. Dropped before
    /// it is done, it has taken nothing.
    pub async fn next(&mut self) -> u64 {
        poll_fn(|context| {
            self.poll_ready(context)
                .map(|()| self.try_next().unwrap_or(0))
        })
        .await
    }

    /// The same, the thread sleeping.
    pub fn next_blocking(&mut self) -> u64 {
        loop {
            if let Some(missed) = self.try_next() {
                return missed;
            }
            match self.next.at() {
                Some(at) => thread::sleep(at.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }
}

impl Port for Ticker {
    type Item = u64;

    fn poll_port(&mut self, context: &Context<'_>) -> Poll<()> {
        self.poll_ready(context)
    }

    fn take_port(place: &mut Option<Self>) -> Taken<u64> {
        let missed = place.as_mut().and_then(Self::try_next);
        missed.map_or(Taken::Nothing, Taken::Item)
    }
}

impl Place for After {
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        let come = match context {
            Some(context) => self.0.poll(context).is_ready(),
            None => self.is_ready(),
        };
        found(come)
    }
}

impl TakeLocal for After {
    type Message = ();

    fn take_selected(self) -> Result<(), Closed> {
        Ok(())
    }
}

impl TakeHeld for Option<After> {
    type Message = ();

    fn take_selected(&mut self) -> Result<(), Closed> {
        *self = None;
        Ok(())
    }
}

impl Place for Ticker {
    fn find(&mut self, context: Option<&Context<'_>>) -> Poll<Found> {
        let due = match context {
            Some(context) => self.poll_ready(context).is_ready(),
            None => self.next.at().is_some_and(|at| Instant::now() >= at),
        };
        found(due)
    }
}

impl TakeHeld for Ticker {
    type Message = u64;

    fn take_selected(&mut self) -> Result<u64, Closed> {
        Ok(self.try_next().unwrap_or(0))
    }
}

fn found(has_come: bool) -> Poll<Found> {
    if has_come {
        Poll::Ready(Found::Message)
    } else {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stay_on_the_beat_and_say_how_many_were_missed() {
        const PERIOD: Duration = Duration::from_hours(1);
        let mut ticker = tick(PERIOD);
        let first = ticker.next.at().expect("an hour can be counted");
        let mut at = |hours: u32, more: Duration| ticker.due(first + PERIOD * hours + more);
        let late = Duration::from_mins(59);
        assert_eq!(at(0, Duration::ZERO), Some(0));
        assert_eq!(at(0, late), None, "taken");
        assert_eq!(at(1, late), Some(0));
        assert_eq!(at(2, Duration::ZERO), Some(0), "being late shifts nothing");
        assert_eq!(at(7, late), Some(4));
        assert_eq!(at(7, late), None);
        assert_eq!(at(8, Duration::ZERO), Some(0));
    }

    #[test]
    fn a_time_that_cannot_be_counted_never_comes() {
        assert!(!after(Duration::MAX).is_ready());
        assert_eq!(tick(Duration::MAX).try_next(), None);
    }
}
