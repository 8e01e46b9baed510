//! The live view on a terminal: the sentence, the parts, the windows, the faults, the keys.
//!
//! At 80 columns and 24 rows the sentence, the pipeline, the keys and five faults are readable;
//! smaller terminals are cut.

use std::io;
use std::time::Duration;

use unbroken_merkle_log::ledger::State;
use unbroken_terminal::ratatui::Frame;
use unbroken_terminal::ratatui::crossterm::event::KeyCode;
use unbroken_terminal::ratatui::layout::{Alignment, Constraint, Layout};
use unbroken_terminal::ratatui::style::{Color, Style, Stylize};
use unbroken_terminal::ratatui::text::{Line, Span};
use unbroken_terminal::ratatui::widgets::{Block, Borders, Paragraph, Sparkline, Wrap};
use unbroken_terminal::{Pressed, Terminal};

use super::lines::after;
use crate::board::{Board, Incident, Strip, grouped};
use crate::fault::Kind;
use crate::run::Key;

const REDRAW_EVERY: Duration = Duration::from_millis(100);

pub(crate) struct Screen(Terminal);

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(Terminal::open(REDRAW_EVERY)?))
    }

    /// Draws the board, if it is time to.
    pub(crate) fn show(&mut self, board: &Board, now: Duration) {
        if self.0.due().is_some() {
            self.0.draw(|frame| draw(board, now, frame));
        }
    }

    /// The keys pressed since the last call that mean something.
    pub(crate) fn keys(&mut self) -> Vec<Key> {
        self.0.pressed().into_iter().filter_map(key).collect()
    }
}

fn key(pressed: Pressed) -> Option<Key> {
    match pressed.code {
        _ if pressed.ends() => Some(Key::Quit),
        KeyCode::Char(letter) if !pressed.control => Key::of(letter),
        _ => None,
    }
}

fn draw(board: &Board, now: Duration, frame: &mut Frame<'_>) {
    let strips = u16::try_from(board.strips.len()).unwrap_or(2);
    let area = frame.area();
    // Where rows are few, only the sentence and the faults have a frame.
    let borders = if area.height < ROWS_FRAMED {
        Borders::TOP
    } else {
        Borders::ALL
    };
    let below = u16::from(borders == Borders::ALL);
    let sentence_rows = if area.width < COLUMNS_WIDE { 6 } else { 5 };
    let rows = [
        Constraint::Length(sentence_rows),
        Constraint::Length(2 + below),
        Constraint::Length(strips + 1 + below),
        Constraint::Length(2 + 4 * below),
        Constraint::Min(4),
        Constraint::Length(2),
    ];
    let [sentence, parts, windows, rates, incidents, keys] = Layout::vertical(rows).areas(area);
    let framed = Block::new().borders(borders);
    let inside = parts.width.saturating_sub(2 * below);
    frame.render_widget(self::sentence(board, now), sentence);
    frame.render_widget(self::parts(board, inside, framed.clone()), parts);
    frame.render_widget(self::windows(board, windows.width, framed.clone()), windows);
    frame.render_widget(self::rates(board, rates.width, framed), rates);
    frame.render_widget(
        self::incidents(board, incidents.width, incidents.height),
        incidents,
    );
    frame.render_widget(self::keys(), keys);
}

/// From so many rows on, everything has a frame.
const ROWS_FRAMED: u16 = 30;
/// From so many columns on, a fault with its name and its repair fits a line.
const COLUMNS_WIDE: u16 = 100;

fn sentence(board: &Board, now: Duration) -> Paragraph<'_> {
    let color = if board.is_green() {
        Color::Green
    } else {
        Color::Red
    };
    let so_far = if Kind::ALL.iter().all(|kind| board.named(*kind) == 0) {
        "nothing was wrong so far".to_owned()
    } else {
        format!("named so far: {}", board.all_named())
    };
    Paragraph::new(vec![
        Line::styled(board.sentence().to_string(), Style::new().fg(color).bold()),
        Line::from(so_far).dim(),
        in_doubt(board, now),
    ])
    .alignment(Alignment::Center)
    .wrap(Wrap { trim: true })
    .block(
        Block::bordered()
            .border_style(Style::new().fg(color))
            .title(" unbroken demo "),
    )
}

fn in_doubt(board: &Board, now: Duration) -> Line<'static> {
    let doubts = board.in_doubt(now);
    let doubts: Vec<String> = doubts
        .map(|(way, sentence)| format!("{way}: {sentence}"))
        .collect();
    match doubts.len() {
        0 => Line::from("nothing is in doubt").dim(),
        _ => Line::from(doubts.join("; ")).yellow(),
    }
}

fn parts<'a>(board: &'a Board, width: u16, framed: Block<'a>) -> Paragraph<'a> {
    let room = usize::from(width);
    // The widest arrows with which all parts are readable.
    let arrows = ["  →  ", " → ", "→"];
    let fitting = arrows.map(|arrow| pipeline(board, arrow));
    let [.., narrowest] = &fitting;
    let line = fitting.iter().find(|line| line.width() <= room);
    Paragraph::new(line.unwrap_or(narrowest).clone()).block(framed.title(" pipeline "))
}

fn pipeline<'a>(board: &'a Board, arrow: &'static str) -> Line<'a> {
    let mut spans = Vec::new();
    for part in &board.parts {
        if !spans.is_empty() {
            spans.push(Span::from(arrow).dim());
        }
        spans.push(Span::from(format!("{} ", part.name)).bold());
        let state = Span::from(part.state.as_str());
        spans.push(if part.is_well {
            state.green()
        } else {
            state.red().bold()
        });
    }
    Line::from(spans)
}

fn windows<'a>(board: &'a Board, width: u16, framed: Block<'a>) -> Paragraph<'a> {
    let lines: Vec<Line<'_>> = board.strips.iter().map(|strip| of(strip, width)).collect();
    let title = Line::from(vec![
        Span::from(" windows of 1,024: "),
        Span::from("■ proven ").green(),
        Span::from("■ faulty ").red(),
        Span::from("■ not proven yet ").dark_gray(),
    ]);
    Paragraph::new(lines).block(framed.title(title))
}

fn of(strip: &Strip, width: u16) -> Line<'_> {
    const NAME: usize = 8;
    let room = usize::from(width).saturating_sub(NAME + 2);
    let mut latest: Vec<Span<'_>> = strip.windows().rev().take(room).map(block).collect();
    latest.push(Span::from(format!("{:<NAME$}", strip.name)));
    latest.reverse();
    Line::from(latest)
}

fn block(state: State) -> Span<'static> {
    let block = Span::from("■");
    match state {
        State::Proven => block.green(),
        State::Faulty => block.red(),
        State::Unproven => block.dark_gray(),
    }
}

fn rates<'a>(board: &'a Board, width: u16, framed: Block<'a>) -> Sparkline<'a> {
    let room = usize::from(width.saturating_sub(2));
    let skipped = board.rates.len().saturating_sub(room);
    let shown: Vec<u64> = board.rates.iter().copied().skip(skipped).collect();
    let latest = grouped(shown.last().copied().unwrap_or_default());
    Sparkline::default()
        .block(framed.title(format!(" delivered per second: {latest} ")))
        .style(Style::new().fg(Color::Cyan))
        .data(shown)
}

fn incidents(board: &Board, width: u16, height: u16) -> Paragraph<'_> {
    let room = usize::from(height.saturating_sub(2));
    let unexplained = board.unexplained.iter().rev();
    let unexplained = unexplained.map(|fault| {
        Line::from(format!("{fault}, though not injected"))
            .red()
            .bold()
    });
    let columns = usize::from(width.saturating_sub(2));
    let mut shown = board.incidents.iter().rev().take(room);
    let form = if shown.all(|incident| told(incident).width() <= columns) {
        told
    } else {
        told_briefly
    };
    let lines: Vec<Line<'_>> = unexplained
        .chain(board.incidents.iter().rev().map(form))
        .take(room)
        .collect();
    Paragraph::new(lines).block(Block::bordered().title(" faults, latest first "))
}

/// How far it is comes first: the end of a long line is cut.
fn told_briefly(incident: &Incident) -> Line<'_> {
    const STATE: usize = 17;
    let state = match (&incident.named, incident.repaired) {
        (None, _) => Span::from(format!("{:STATE$}", "not named yet")).red(),
        (Some((at, _)), None) => {
            let named = format!("named {}", after(incident, *at));
            Span::from(format!("{named:STATE$}")).yellow()
        }
        (Some(_), Some(at)) => {
            let repaired = format!("repaired {}", after(incident, at));
            Span::from(format!("{repaired:STATE$}")).green()
        }
    };
    Line::from(vec![state, Span::from(incident.what.to_string())])
}

fn told(incident: &Incident) -> Line<'_> {
    let mut spans = vec![Span::from(incident.what.to_string())];
    match &incident.named {
        None => spans.push(Span::from("  not named yet").red()),
        Some((at, how)) => {
            let named = format!("  named after {}: {how}", after(incident, *at));
            spans.push(Span::from(named).yellow());
        }
    }
    if let Some(at) = incident.repaired {
        spans.push(Span::from(format!("  repaired after {}", after(incident, at))).green());
    }
    Line::from(spans)
}

fn keys() -> Paragraph<'static> {
    Paragraph::new(vec![
        Line::from("inject:   l lose  d duplicate  s swap  a alter  f forge  i inject  h hold"),
        Line::from(
            "          capitals: before B  k kill the broker  n cut the network to C  q end",
        ),
    ])
    .dim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::What;
    use crate::doubt::Doubt;
    use unbroken_terminal::ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

    const NOW: Duration = Duration::from_secs(9);

    fn drawn(board: &Board) -> (String, Buffer) {
        drawn_at(100, 30, board)
    }

    fn drawn_at(columns: u16, rows: u16, board: &Board) -> (String, Buffer) {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(board, NOW, frame)).unwrap();
        let backend = terminal.backend();
        (backend.to_string(), backend.buffer().clone())
    }

    fn board() -> Board {
        let mut board = Board::default();
        (board.sent, board.delivered) = (1_204_331, 1_204_331);
        board.part("A", "2,000/s", true);
        board.part("broker", "process 77", true);
        board.rate(1_999);
        board.window("A to C", &(0..1_024), State::Proven);
        board.window("A to C", &(1_024..2_048), State::Faulty);
        board.window("A to C", &(2_048..2_100), State::Unproven);
        board
    }

    #[test]
    fn the_sentence_the_parts_and_the_rate_are_on_the_screen() {
        let (text, _) = drawn(&board());
        for expected in [
            "1,204,331 sent, 1,204,331 delivered, 0 lost, 0 duplicated, 0 reordered",
            "nothing was wrong so far",
            "A 2,000/s  →  broker process 77",
            "delivered per second: 1,999",
            "l lose",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_below_the_sentence_until_it_is_not() {
        let mut board = board();
        assert!(drawn(&board).0.contains("nothing is in doubt"));
        let since = Duration::from_secs(4);
        board.doubt("A to B", &Doubt::Silent(since), NOW);
        board.doubt("B to C", &Doubt::Suspected(17..18), NOW);
        let told = "A to B: no checkpoint for 4 s; its producer may have stopped; \
                    B to C: number 17 may be missing";
        let (text, _) = drawn(&board);
        assert!(text.contains(told), "{text}");
        board.doubt("A to B", &Doubt::Heard(since), NOW);
        board.doubt("B to C", &Doubt::Settled, NOW);
        assert!(drawn(&board).0.contains("nothing is in doubt"));
    }

    #[test]
    fn windows_have_the_colour_of_their_state_oldest_first() {
        let (_, buffer) = drawn(&board());
        let blocks = buffer.content().iter().filter(|cell| cell.symbol() == "■");
        let colors: Vec<Color> = blocks.map(|cell| cell.fg).collect();
        let states = [Color::Green, Color::Red, Color::DarkGray];
        assert_eq!(colors, [states, states].concat(), "legend, then strip");
    }

    #[test]
    fn the_sentence_is_red_while_an_incident_is_open_and_green_when_it_is_repaired() {
        let color = |board: &Board| {
            let (text, buffer) = drawn(board);
            let row = text
                .lines()
                .position(|line| line.contains(" sent, "))
                .unwrap();
            let row = u16::try_from(row).unwrap();
            let cells = (0..100).map(|column| &buffer[(column, row)]);
            let mut digits = cells.filter(|cell| cell.symbol() == "1");
            digits.next().unwrap().fg
        };
        let mut board = board();
        assert_eq!(color(&board), Color::Green);
        let second = Duration::from_secs(1);
        board.begin_incident(What::Part("network cut".to_owned()), second);
        assert_eq!(color(&board), Color::Red);
        assert!(drawn(&board).0.contains("network cut  not named yet"));
        board.part_named("C lost its connection", second * 3 / 2);
        board.part_repaired(second * 2);
        assert_eq!(color(&board), Color::Green);
        let told = "named after 0.50 s: C lost its connection  repaired after 1.00 s";
        assert!(drawn(&board).0.contains(told));
    }

    #[test]
    fn the_sentence_the_pipeline_the_keys_and_five_faults_are_readable_at_80_columns_and_24_rows() {
        let mut board = board();
        // As wide as they get: the largest process ids of Linux, and all that a day delivers.
        board.part("A", "connected", true);
        board.part("broker", "pid 4194303", true);
        board.part("B", "pid 4194304", true);
        board.part("C", "connected, 8,640,000,000", true);
        board.window("A to B", &(0..1_024), State::Proven);
        board.window("B to C", &(0..1_024), State::Proven);
        let second = Duration::from_secs(1);
        for number in 1..=5 {
            let what =
                format!("swapped: number {number}234567 on plant/clean, overtaken by 1234568");
            board.begin_incident(What::Part(what), second);
            if number < 4 {
                board.part_named("B lost its connection", second * 3 / 2);
            }
            if number < 3 {
                board.part_repaired(second * 2);
            }
        }
        let (text, _) = drawn_at(80, 24, &board);
        for expected in [
            "1,204,331 sent, 1,204,331 delivered, 0 lost, 0 duplicated, 0 reordered",
            "A connected → broker pid 4194303 → B pid 4194304 → C connected, 8,640,000,000",
            "delivered per second: 1,999",
            "swapped: number 1234567 on plant/clean, overtaken by 1234568",
            "swapped: number 5234567 on plant/clean, overtaken by 1234568",
            "not named yet",
            "l lose  d duplicate  s swap  a alter  f forge  i inject  h hold",
            "capitals: before B  k kill the broker  n cut the network to C  q end",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert_eq!(text.matches("swapped: number").count(), 5, "{text}");
    }

    #[test]
    fn how_far_an_incident_is_can_be_read_at_any_width() {
        let mut board = board();
        let second = Duration::from_secs(1);
        board.begin_incident(What::Part("network cut".to_owned()), second);
        board.part_named("C lost its connection, and found another", second * 2);
        board.part_repaired(second * 3);
        for (width, expected) in [
            (60, "repaired 2.00 s  network cut"),
            (80, "repaired 2.00 s  network cut"),
            (120, "another  repaired after 2.00 s"),
        ] {
            let (text, _) = drawn_at(width, 40, &board);
            assert!(text.contains(expected), "{width}: {expected} in\n{text}");
        }
    }

    #[test]
    fn a_long_sentence_goes_on_in_the_next_line() {
        let mut board = board();
        (board.sent, board.delivered) = (1_204_331_000_000, 1_204_331_000_000);
        let (text, _) = drawn_at(80, 24, &board);
        let words = text
            .split_whitespace()
            .filter(|word| !word.contains(['│', '"']));
        let words: Vec<_> = words.collect();
        assert!(
            words.join(" ").contains("0 duplicated, 0 reordered"),
            "{text}"
        );
    }

    #[test]
    fn every_key_on_the_screen_means_something() {
        let key = |code, control| key(Pressed { code, control });
        for letter in "ldsafihLDSAFIHknq".chars() {
            assert!(key(KeyCode::Char(letter), false).is_some(), "{letter}");
        }
        assert_eq!(key(KeyCode::Char('c'), true), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), false), None);
        assert_eq!(key(KeyCode::Char('l'), true), None);
    }
}
