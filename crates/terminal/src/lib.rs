//! The terminal of a live view: raw mode, keys, and drawing at a bounded rate.
//!
//! Invariants: the terminal is restored when a [`Terminal`] is dropped, and on a panic; this crate
//! alone depends on `ratatui`, so nothing else can change the terminal's mode.
//!
//! Deliberately absent: what a view shows.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
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
