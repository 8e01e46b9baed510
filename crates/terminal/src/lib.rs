//! The terminal of a live view: raw mode, keys, and drawing at a bounded rate; and a progress bar,
//! which needs no raw mode.
//!
//! Invariants: the terminal is restored when a [`Terminal`] is dropped, and on a panic; this crate
//! alone depends on `ratatui`, so nothing else can change the terminal's mode.
//!
//! Deliberately absent: what a view shows.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

pub use ratatui;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};

/// Whether standard output is a terminal, on which a live view makes sense.
pub fn is_live() -> bool {
    io::stdout().is_terminal()
}

/// The terminal, as long as a view has it.
#[derive(Debug)]
pub struct Terminal {
    inner: DefaultTerminal,
    redraw_every: Duration,
    drawn: Instant,
}

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// Which.
    pub code: KeyCode,
    /// Together with Ctrl.
    pub control: bool,
}

impl Terminal {
    /// Takes the terminal over.
    pub fn open(redraw_every: Duration) -> io::Result<Self> {
        Ok(Self {
            inner: ratatui::try_init()?,
            redraw_every,
            drawn: Instant::now(),
        })
    }

    /// The time since the last drawing, if another is due.
    pub fn due(&self) -> Option<Duration> {
        let elapsed = self.drawn.elapsed();
        (elapsed >= self.redraw_every).then_some(elapsed)
    }

    /// Draws a frame. A terminal that cannot be drawn on is no reason to end anything.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) {
        self.drawn = Instant::now();
        drop(self.inner.draw(draw));
    }

    /// The keys that were pressed since the last call.
    pub fn pressed(&mut self) -> Vec<Pressed> {
        let mut pressed = Vec::new();
        while event::poll(Duration::ZERO).unwrap_or(false) {
            match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => pressed.push(Pressed {
                    code: key.code,
                    control: key.modifiers.contains(KeyModifiers::CONTROL),
                }),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        pressed
    }
}

/// A line on standard error that shows how far a long run is, if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    total: u64,
    done: u64,
    is_shown: bool,
    drawn: Option<Instant>,
}

impl Progress {
    const WIDTH: u64 = 30;
    const REDRAW_EVERY: Duration = Duration::from_millis(100);

    /// Of a run with so much to do.
    pub fn new(total: u64) -> Self {
        Self {
            total: total.max(1),
            done: 0,
            is_shown: io::stderr().is_terminal(),
            drawn: None,
        }
    }

    /// So much more is done of what is named. Draws at most ten times a second.
    pub fn advance(&mut self, by: u64, what: &str) {
        self.done = self.done.saturating_add(by).min(self.total);
        let is_due = self
            .drawn
            .is_none_or(|drawn| drawn.elapsed() >= Self::REDRAW_EVERY);
        if self.is_shown && is_due {
            self.drawn = Some(Instant::now());
            // A terminal that cannot be written to is no reason to end anything.
            let _ = write!(io::stderr(), "\r{}\x1b[K", self.line(what));
        }
    }

    fn line(&self, what: &str) -> String {
        let share = |of: u64| u128::from(self.done) * u128::from(of) / u128::from(self.total);
        let bars: String = (0..u128::from(Self::WIDTH))
            .map(|at| {
                if at < share(Self::WIDTH) {
                    '█'
                } else {
                    '░'
                }
            })
            .collect();
        format!("{bars} {:>3} %  {what}", share(100))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl Pressed {
    /// Escape or Ctrl-C.
    pub fn ends(self) -> bool {
        self.code == KeyCode::Esc || self.control && self.code == KeyCode::Char('c')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_bar_fills_up() {
        let mut progress = Progress::new(200);
        progress.is_shown = false;
        progress.advance(50, "");
        assert_eq!(progress.line("rings").matches('█').count(), 7);
        assert!(progress.line("rings").ends_with(" 25 %  rings"));
        progress.advance(u64::MAX, "");
        assert!(progress.line("rings").contains("100 %"));
        assert_eq!(progress.line("rings").matches('░').count(), 0);
    }
}
