//! A wake-up finer than the millisecond of a readiness timeout, as one more readable descriptor.
//!
//! Deliberately absent: precision on systems other than Linux, where [`Timer::arm`] says so and the
//! caller polls.

use mio::{Registry, Token};
use std::{io, time::Duration};

/// At most one wake-up is armed at a time.
#[derive(Debug)]
pub(crate) struct Timer(system::Timer);

impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        system::Timer::new(registry, token).map(Self)
    }

    /// Makes the token readable once, after `delay`. False if this system cannot.
    pub(crate) fn arm(&self, delay: Duration) -> io::Result<bool> {
        self.0.arm(delay)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Duration, Registry, Token, io};
    use mio::{Interest, unix::SourceFd};
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use std::os::fd::{AsFd, AsRawFd};

    #[derive(Debug)]
    pub(super) struct Timer(TimerFd);

    impl Timer {
        pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            let descriptor = timer.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
            Ok(Self(timer))
        }

        /// Setting it again also clears the last expiration, so it is never read.
        pub(super) fn arm(&self, delay: Duration) -> io::Result<bool> {
            // Zero would disarm it.
            let delay = delay.max(Duration::from_nanos(1));
            self.0.set(
                Expiration::OneShot(delay.into()),
                TimerSetTimeFlags::empty(),
            )?;
            Ok(true)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Duration, Registry, Token, io};

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn arm(&self, _delay: Duration) -> io::Result<bool> {
            Ok(false)
        }
    }
}
