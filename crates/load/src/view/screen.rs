//! The live view on a terminal: phase, rate over time, latency bars.
//!
//! `q`, Escape and Ctrl-C end the run.

use crate::{
    error::LoadError,
    report::grouped,
    run::{Observer, Progress},
    settings::Settings,
    tally::class_end_us,
};
use std::{ops::ControlFlow, time::Duration};
use unbroken_terminal::Terminal;
use unbroken_terminal::ratatui::{
    Frame,
    crossterm::event::KeyCode,
    layout::{Constraint, Layout},
    style::{Color, Style, Stylize},
    text::Line,
    widgets::{Bar, BarChart, BarGroup, Block, Gauge, Paragraph, Sparkline},
};

const REDRAW_EVERY: Duration = Duration::from_millis(250);
/// As many rates as any terminal has columns.
const HISTORY: usize = 400;

pub(crate) struct Screen {
    terminal: Terminal,
    title: String,
    published: u64,
    delivered: u64,
    publish_rate: u64,
    rates: Vec<u64>,
}

impl Screen {
    pub(crate) fn open(settings: &Settings) -> Result<Self, LoadError> {
        let scenario = settings.scenario;
        let title = format!(
            " unbroken bench: {} · {} connections · QoS {} · {} B · {} ",
            scenario.name(),
            scenario.connections(),
            settings.qos,
            settings.payload,
            settings.target,
        );
        Ok(Self {
            terminal: Terminal::open(REDRAW_EVERY)?,
            title,
            published: 0,
            delivered: 0,
            publish_rate: 0,
            rates: Vec::new(),
        })
    }

    fn note_rates(&mut self, progress: &Progress, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        self.publish_rate = per_second(progress.published.saturating_sub(self.published), seconds);
        self.rates.push(per_second(
            progress.delivered.saturating_sub(self.delivered),
            seconds,
        ));
        if self.rates.len() > HISTORY {
            self.rates.remove(0);
        }
        (self.published, self.delivered) = (progress.published, progress.delivered);
    }
}

impl Observer for Screen {
    fn observe(&mut self, progress: &Progress) -> ControlFlow<()> {
        let mut pressed = self.terminal.pressed().into_iter();
        if pressed.any(|key| key.ends() || key.code == KeyCode::Char('q')) {
            return ControlFlow::Break(());
        }
        let Some(elapsed) = self.terminal.due() else {
            return ControlFlow::Continue(());
        };
        self.note_rates(progress, elapsed);
        let view = View {
            title: &self.title,
            rates: &self.rates,
            publish_rate: self.publish_rate,
            progress,
        };
        self.terminal.draw(|frame| view.draw(frame));
        ControlFlow::Continue(())
    }
}

struct View<'a> {
    title: &'a str,
    rates: &'a [u64],
    publish_rate: u64,
    progress: &'a Progress,
}

impl View<'_> {
    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [
            Constraint::Length(3),
            Constraint::Length(4),
            Constraint::Length(8),
            Constraint::Min(6),
        ];
        let [phase, numbers, rates, latency] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(self.phase(), phase);
        frame.render_widget(self.numbers(), numbers);
        frame.render_widget(self.history(rates.width), rates);
        frame.render_widget(self.latency(latency.width), latency);
    }

    fn phase(&self) -> Gauge<'_> {
        let progress = self.progress;
        let ratio = progress
            .planned
            .filter(|planned| !planned.is_zero())
            .map_or(0.0, |planned| {
                progress.in_phase.div_duration_f64(planned).clamp(0.0, 1.0)
            });
        Gauge::default()
            .block(Block::bordered().title(self.title))
            .gauge_style(Style::new().fg(Color::Green))
            .ratio(ratio)
            .label(format!(
                "{} {:.1} s",
                progress.phase.name(),
                progress.in_phase.as_secs_f64()
            ))
    }

    fn numbers(&self) -> Paragraph<'_> {
        let progress = self.progress;
        let [published, delivered, clients, faults] = [
            progress.published,
            progress.delivered,
            progress.clients,
            progress.faults,
        ]
        .map(text);
        let rate = text(self.rates.last().copied().unwrap_or_default());
        let faults = Line::from(format!("{faults} faults"));
        Paragraph::new(vec![
            Line::from(format!(
                "{delivered} delivered ({rate}/s), {published} published ({}/s), {clients} clients",
                text(self.publish_rate),
            )),
            if progress.faults == 0 {
                faults.green()
            } else {
                faults.red().bold()
            },
        ])
        .block(Block::bordered().title(" messages · q ends "))
    }

    fn history(&self, width: u16) -> Sparkline<'_> {
        let first = self
            .rates
            .len()
            .saturating_sub(usize::from(width.saturating_sub(2)));
        let peak = self.rates.iter().max().copied().unwrap_or_default();
        Sparkline::default()
            .block(Block::bordered().title(format!(" delivered per second, peak {} ", text(peak))))
            .style(Style::new().fg(Color::Cyan))
            .data(&self.rates[first..])
    }

    /// Only the classes that occur, as wide as fits, each with its share.
    fn latency(&self, width: u16) -> BarChart<'_> {
        let classes = &self.progress.latency_classes;
        let first = classes.iter().position(|count| *count > 0).unwrap_or(0);
        let last = classes
            .iter()
            .rposition(|count| *count > 0)
            .unwrap_or(first);
        let total = classes.iter().sum::<u64>().max(1);
        let bars: Vec<_> = (first..=last)
            .map(|class| {
                Bar::default()
                    .value(classes[class])
                    .label(Line::from(bound(class)))
                    .text_value(format!("{}%", classes[class] * 100 / total))
            })
            .collect();
        let room = width.saturating_sub(2) / u16::try_from(bars.len()).unwrap_or(1).max(1);
        BarChart::default()
            .block(Block::bordered().title(" share of deliveries by latency, below "))
            .bar_width(room.saturating_sub(1).clamp(1, 9))
            .bar_gap(1)
            .bar_style(Style::new().fg(Color::Green))
            .value_style(Style::new().fg(Color::Black).bg(Color::Green))
            .data(BarGroup::default().bars(&bars))
    }
}

fn bound(class: usize) -> String {
    match class_end_us(class) {
        end @ 0..1_000 => format!("{end}µs"),
        end @ 1_000..1_000_000 => format!("{}ms", end / 1_000),
        end => format!("{}s", end / 1_000_000),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts on a screen are rounded anyway"
)]
fn text(count: u64) -> String {
    grouped(count as f64)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate on a screen is rounded anyway"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{run::Phase, tally::CLASSES};
    use unbroken_terminal::ratatui::{Terminal, backend::TestBackend};

    #[test]
    fn phase_rates_and_latencies_are_on_the_screen() {
        let mut latency_classes = [0; CLASSES];
        latency_classes[2] = 5;
        let progress = Progress {
            phase: Phase::Measuring,
            in_phase: Duration::from_secs(2),
            planned: Some(Duration::from_secs(4)),
            clients: 100,
            published: 1_000,
            delivered: 1_234_567,
            faults: 0,
            latency_classes,
        };
        let view = View {
            title: " bench ",
            rates: &[10, 4_321],
            publish_rate: 7,
            progress: &progress,
        };
        let mut terminal = Terminal::new(TestBackend::new(90, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        for expected in [
            "measuring 2.0 s",
            "1,234,567 delivered (4,321/s)",
            "0 faults",
            "64µs",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }
}
