//! What is known of the line at this moment: what the views show, and what decides how it ends.
//!
//! A value: whoever learns something tells it, with the time since the start. It holds the counts,
//! the windows of each lane, the faults that still stand, and every wound with when it was named
//! and when it was repaired.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use unbroken_merkle_log::ledger::State;

use crate::doubt::{Doubt, Doubts};
use crate::fault::{Fault, Kind, Place};
use crate::limits::{FAULTS_SHOWN, RATES_SHOWN, TOLD_WITHIN, WINDOWS_SHOWN};
use crate::wound::Wounded;

/// The line at this moment.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// Messages that A has numbered.
    pub sent: u64,
    /// Messages of A that C has handed on: each once, unaltered, in A's order.
    pub delivered: u64,
    /// Times that C has handed on a message of A again.
    pub duplicated: u64,
    /// Messages of A that C has handed on behind later ones.
    pub reordered: u64,
    /// The parts of the line, and how they are.
    pub parts: Vec<Part>,
    /// The windows that B and C check.
    pub strips: Vec<Strip>,
    /// Every hurt, oldest first.
    pub hurts: Vec<Hurt>,
    /// Faults that no wound explains, oldest first.
    pub unexplained: VecDeque<Fault>,
    /// Faults that are no wound's own name, though they are of a message that one hurt.
    pub secondary: VecDeque<Fault>,
    /// What is in doubt on the ways where something is or was, by their names.
    pub doubts: BTreeMap<&'static str, Doubts>,
    /// Messages delivered in each stretch of time between two looks.
    pub rates: VecDeque<u64>,
    standing: BTreeMap<Place, Kind>,
    named: BTreeMap<Kind, u64>,
    next_hurt: u64,
}

/// A part of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who.
    pub name: &'static str,
    /// How it is.
    pub state: String,
    /// Whether it does what it should.
    pub is_well: bool,
}

/// The windows of one lane.
#[derive(Clone, Debug)]
pub struct Strip {
    /// From whom to whom.
    pub name: &'static str,
    windows: BTreeMap<u64, State>,
}

/// Something done to the line.
#[derive(Clone, Debug)]
pub struct Hurt {
    /// Counted from 0; some of those before it may be gone.
    pub id: u64,
    /// What.
    pub what: What,
    /// When.
    pub given: Duration,
    /// When a receiver named it, and how.
    pub named: Option<(Duration, String)>,
    /// When all was well again.
    pub repaired: Option<Duration>,
    /// It was named while the disorder lasted, at whose end it is named for good.
    is_early: bool,
}

/// What was done.
#[derive(Clone, Debug)]
pub enum What {
    /// To a message.
    Message(Box<Wounded>),
    /// To a part of the line.
    Part(String),
}

impl Board {
    /// A hurt was given.
    pub fn hurt(&mut self, what: What, now: Duration) {
        let id = self.next_hurt;
        self.next_hurt += 1;
        self.hurts.push(Hurt {
            id,
            what,
            given: now,
            named: None,
            repaired: None,
            is_early: false,
        });
        // A fast receiver may have named it before the relay was asked what it did.
        let waiting: Vec<Fault> = self.unexplained.drain(..).collect();
        for fault in waiting {
            self.attribute(fault, now);
        }
    }

    /// Nobody saw a wound: its message was sent again before. One that was named was seen.
    pub fn unhurt(&mut self, wounded: &Wounded) {
        self.hurts.retain(|hurt| match &hurt.what {
            What::Message(known) => **known != *wounded || hurt.named.is_some(),
            What::Part(_) => true,
        });
    }

    /// A receiver has named a fault. `standing`: a good copy is still to come.
    pub fn fault(&mut self, fault: Fault, now: Duration) {
        *self.named.entry(fault.kind).or_default() += 1;
        if fault.kind.needs_repair() {
            self.standing.insert(fault.place, fault.kind);
        }
        self.attribute(fault, now);
    }

    /// A message came late, and others are still missing: so its hurt is named, and all is well
    /// when it is told what moved.
    pub fn overtaken(&mut self, place: Place, by: u64, now: Duration) {
        let kind = Kind::Reordered;
        if let Some(hurt) = self.hurt_named_by(&Fault { kind, place }) {
            let how = format!("number {} behind {by} with higher numbers", place.number);
            hurt.named.get_or_insert((now, how));
            hurt.is_early = true;
        }
    }

    /// A receiver at the end of the line has named a fault of a message that its own was made from:
    /// counted where it happened, so here it only has to have a reason.
    pub fn echo(&mut self, fault: Fault, now: Duration) {
        if !self.part_explains(&fault, now) && self.wound_of(&fault).is_none() {
            self.unexplain(fault);
        }
    }

    /// The receiver at the end of the way with this name is in doubt, or is no longer.
    pub fn doubt(&mut self, way: &'static str, doubt: &Doubt, now: Duration) {
        self.doubts.entry(way).or_default().take(doubt, now);
    }

    /// What is in doubt now, a sentence for each way.
    pub fn in_doubt(&self, now: Duration) -> impl Iterator<Item = (&'static str, String)> {
        let doubts = self.doubts.iter();
        doubts.filter_map(move |(way, doubts)| Some((*way, doubts.sentence(now)?)))
    }

    /// A good copy of a message has come.
    pub fn repaired(&mut self, place: Place, now: Duration) {
        self.standing.remove(&place);
        for hurt in &mut self.hurts {
            if let What::Message(wounded) = &hurt.what
                && Place::from(&wounded.message.audit) == place
                && hurt.named.is_some()
            {
                hurt.repaired.get_or_insert(now);
            }
        }
    }

    /// The latest hurt of a part was noticed by the line itself.
    pub fn part_named(&mut self, by: &str, now: Duration) {
        if let Some(hurt) = self.open_part() {
            hurt.named.get_or_insert_with(|| (now, by.to_owned()));
        }
    }

    /// A part works again and nothing of what it cost is missing any more.
    pub fn part_repaired(&mut self, now: Duration) {
        if self.standing.is_empty()
            && let Some(hurt) = self.open_part()
            && hurt.named.is_some()
        {
            hurt.repaired = Some(now);
        }
    }

    /// Whether a part was hurt and is not well.
    pub fn has_open_part(&self) -> bool {
        let mut hurts = self.hurts.iter();
        hurts.any(|hurt| matches!(hurt.what, What::Part(_)) && hurt.repaired.is_none())
    }

    /// A window ended, or ended differently, on the way with this name.
    pub fn window(&mut self, way: &'static str, numbers: &Range<u64>, state: State) {
        let known = self.strips.iter().position(|strip| strip.name == way);
        let at = known.unwrap_or_else(|| {
            self.strips.push(Strip::new(way));
            self.strips.len() - 1
        });
        let strip = &mut self.strips[at];
        strip.windows.insert(numbers.start, state);
        while strip.windows.len() > WINDOWS_SHOWN {
            strip.windows.pop_first();
        }
    }

    /// How a part is now.
    pub fn part(&mut self, name: &'static str, state: impl Into<String>, is_well: bool) {
        let state = state.into();
        let part = Part {
            name,
            state,
            is_well,
        };
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(known) => *known = part,
            None => self.parts.push(part),
        }
    }

    /// One more rate.
    pub fn rate(&mut self, per_second: u64) {
        self.rates.push_back(per_second);
        while self.rates.len() > RATES_SHOWN {
            self.rates.pop_front();
        }
    }

    /// Faults of a kind that still stand.
    pub fn standing(&self, kind: Kind) -> usize {
        self.standing.values().filter(|its| **its == kind).count()
    }

    /// Faults of a kind named so far.
    pub fn named(&self, kind: Kind) -> u64 {
        self.named.get(&kind).copied().unwrap_or_default()
    }

    /// The hurt whose name took longest, and how long.
    pub fn slowest(&self) -> Option<(&Hurt, Duration)> {
        let named = self.hurts.iter().filter_map(|hurt| {
            let (at, _) = hurt.named.as_ref()?;
            Some((hurt, at.saturating_sub(hurt.given)))
        });
        named.max_by_key(|(_, time)| *time)
    }

    /// The faults named so far, as in "3 lost, 0 duplicated, 0 reordered, 1 forged".
    pub fn all_named(&self) -> String {
        let named = counts(|kind| self.named(kind));
        named.collect::<Vec<_>>().join(", ")
    }

    /// It is green, nothing was named by another name, and all that was sent is delivered.
    pub fn is_exact(&self) -> bool {
        self.is_green() && self.secondary.is_empty() && self.sent == self.delivered
    }

    /// No fault stands, no hurt is open, nothing was named without a reason, and C has handed on
    /// nothing again or out of its place.
    pub fn is_green(&self) -> bool {
        self.standing.is_empty()
            && self.duplicated == 0
            && self.reordered == 0
            && self.unexplained.is_empty()
            && self.hurts.iter().all(|hurt| hurt.repaired.is_some())
    }

    /// The whole of it in one sentence.
    pub fn sentence(&self) -> Sentence<'_> {
        Sentence(self)
    }

    /// The first wound that hurt the message of this fault, by whatever name.
    pub(crate) fn wound_of(&self, fault: &Fault) -> Option<&Hurt> {
        self.hurts.iter().find(|hurt| match &hurt.what {
            What::Message(wounded) => wounded.explains(fault),
            What::Part(_) => false,
        })
    }

    /// Finds the hurt that a fault is a sign of.
    fn attribute(&mut self, fault: Fault, now: Duration) {
        let stands = self.standing.contains_key(&fault.place);
        if let Some(hurt) = self.hurt_named_by(&fault) {
            hurt.is_early = false;
            hurt.named.get_or_insert_with(|| (now, fault.to_string()));
            if !fault.kind.needs_repair() || !stands {
                hurt.repaired = Some(now);
            }
            return;
        }
        // What a broken connection costs is expected, and counted in what was named.
        if self.part_explains(&fault, now) {
            return;
        }
        let is_second_name = self.hurts.iter().any(|hurt| match &hurt.what {
            What::Message(wounded) => wounded.has_second_name(&fault),
            What::Part(_) => false,
        });
        if is_second_name {
            return;
        }
        if self.wound_of(&fault).is_some() {
            self.secondary.push_back(fault);
            while self.secondary.len() > FAULTS_SHOWN {
                self.secondary.pop_front();
            }
        } else {
            self.unexplain(fault);
        }
    }

    /// The first hurt of which this fault is the right name, and that has not got it yet.
    fn hurt_named_by(&mut self, fault: &Fault) -> Option<&mut Hurt> {
        let mut hurts = self.hurts.iter_mut();
        hurts.find(|hurt| match &hurt.what {
            What::Message(wounded) => {
                wounded.is_named_by(fault) && (hurt.named.is_none() || hurt.is_early)
            }
            What::Part(_) => false,
        })
    }

    fn unexplain(&mut self, fault: Fault) {
        self.unexplained.push_back(fault);
        while self.unexplained.len() > FAULTS_SHOWN {
            self.unexplained.pop_front();
        }
    }

    /// Whether a part is broken, or was a little earlier, and this is a kind that it can cause. Of
    /// which messages is not known beforehand.
    fn part_explains(&self, fault: &Fault, now: Duration) -> bool {
        fault.kind.comes_of_a_break()
            && self.hurts.iter().any(|hurt| {
                matches!(hurt.what, What::Part(_))
                    && hurt.given <= now
                    && hurt.repaired.is_none_or(|at| now <= at + TOLD_WITHIN)
            })
    }

    fn open_part(&mut self) -> Option<&mut Hurt> {
        let mut hurts = self.hurts.iter_mut();
        hurts.find(|hurt| matches!(hurt.what, What::Part(_)) && hurt.repaired.is_none())
    }
}

impl Strip {
    /// Nothing is known yet.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            windows: BTreeMap::new(),
        }
    }

    /// The states of its last windows, oldest first.
    pub fn windows(&self) -> impl DoubleEndedIterator<Item = State> {
        self.windows.values().copied()
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(wounded) => fmt::Display::fmt(wounded, f),
            Self::Part(text) => f.write_str(text),
        }
    }
}

/// "12,040 sent, 12,040 delivered, 0 lost, 0 duplicated, 0 reordered". What is duplicated or
/// reordered here is so in what C has handed on; what is lost, altered or forged has not come again
/// yet.
#[derive(Clone, Copy, Debug)]
pub struct Sentence<'a>(&'a Board);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = self.0;
        let (sent, delivered) = (grouped(board.sent), grouped(board.delivered));
        write!(f, "{sent} sent, {delivered} delivered")?;
        let mut counts = counts(|kind| match kind {
            Kind::Duplicated => board.duplicated,
            Kind::Reordered => board.reordered,
            // C has seen both copies whole.
            Kind::Repeated => 0,
            Kind::Lost | Kind::Altered | Kind::Forged | Kind::Injected => {
                board.standing(kind) as u64
            }
        });
        counts.try_for_each(|count| write!(f, ", {count}"))
    }
}

/// How many there are of each kind, in words: always of the usual ones, of others if there are any.
fn counts(of: impl Fn(Kind) -> u64) -> impl Iterator<Item = String> {
    Kind::ALL.into_iter().filter_map(move |kind| {
        let count = of(kind);
        let is_usual = matches!(kind, Kind::Lost | Kind::Duplicated | Kind::Reordered);
        let is_told = is_usual || count > 0;
        is_told.then(|| format!("{} {}", grouped(count), kind.participle()))
    })
}

/// A count with a comma before every three digits.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wound::{Stamps, Wound};
    use std::time::Instant;
    use unbroken_merkle_log::{Epoch, Hasher, LaneId, Property};

    const SECOND: Duration = Duration::from_secs(1);

    fn lane() -> LaneId {
        LaneId::new(7).unwrap()
    }

    fn place(number: u64) -> Place {
        Place {
            lane: lane(),
            epoch: Epoch(0),
            number,
        }
    }

    fn fault(kind: Kind, number: u64) -> Fault {
        Fault {
            kind,
            place: place(number),
        }
    }

    fn wounded(wound: Wound, number: u64) -> What {
        let audit = Property::stamp(&Hasher::xxh3(), lane(), Epoch(0), number, b"t", b"p");
        What::Message(Box::new(Wounded {
            wound,
            topic: "t".to_owned(),
            message: Stamps {
                audit,
                origins: vec![],
            },
            overtaken_by: None,
            at: Instant::now(),
        }))
    }

    #[test]
    fn a_lost_message_makes_the_sentence_red_until_it_is_repaired() {
        let mut board = Board {
            sent: 1_204_331,
            delivered: 1_204_330,
            ..Board::default()
        };
        assert!(board.is_green());
        board.hurt(wounded(Wound::Lose, 5), SECOND);
        assert!(!board.is_green());
        board.fault(fault(Kind::Lost, 5), SECOND * 2);
        assert_eq!(
            board.sentence().to_string(),
            "1,204,331 sent, 1,204,330 delivered, 1 lost, 0 duplicated, 0 reordered"
        );
        board.repaired(place(5), SECOND * 3);
        assert!(board.is_green());
        let hurt = &board.hurts[0];
        assert_eq!(hurt.named.as_ref().map(|(at, _)| *at), Some(SECOND * 2));
        assert_eq!(hurt.repaired, Some(SECOND * 3));
        assert_eq!(board.named(Kind::Lost), 1);
        assert_eq!(board.standing(Kind::Lost), 0);
    }

    #[test]
    fn a_copy_set_aside_needs_no_repair() {
        let mut board = Board::default();
        board.hurt(wounded(Wound::Duplicate, 5), SECOND);
        board.fault(fault(Kind::Duplicated, 5), SECOND);
        assert!(board.is_green());
    }

    #[test]
    fn the_sentence_says_what_c_handed_on_again_or_out_of_its_place() {
        let mut board = Board {
            sent: 9,
            delivered: 9,
            ..Board::default()
        };
        assert!(board.is_exact());
        board.duplicated = 2;
        assert!(!board.is_green());
        board.reordered = 3;
        assert_eq!(
            board.sentence().to_string(),
            "9 sent, 9 delivered, 0 lost, 2 duplicated, 3 reordered"
        );
    }

    #[test]
    fn a_fault_may_be_named_before_the_relay_is_asked() {
        let mut board = Board::default();
        board.fault(fault(Kind::Injected, 5), SECOND);
        assert!(!board.is_green());
        board.hurt(wounded(Wound::Inject, 5), SECOND * 2);
        assert!(board.is_green());
    }

    #[test]
    fn a_message_that_was_overtaken_is_named_at_once_and_well_when_the_disorder_ends() {
        let mut board = Board::default();
        board.hurt(wounded(Wound::Swap, 5), SECOND);
        board.overtaken(place(5), 3, SECOND * 2);
        let named = |board: &Board| board.hurts[0].named.as_ref().map(|(at, _)| *at);
        assert_eq!(named(&board), Some(SECOND * 2));
        assert!(!board.is_green());
        board.fault(fault(Kind::Reordered, 5), SECOND * 3);
        assert!(board.is_green() && board.secondary.is_empty());
        assert_eq!(named(&board), Some(SECOND * 2));
        assert_eq!(board.hurts[0].repaired, Some(SECOND * 3));
    }

    #[test]
    fn a_message_held_for_too_long_is_lost_and_then_found_and_that_is_no_other_name() {
        let mut board = Board::default();
        board.hurt(wounded(Wound::Hold(SECOND), 5), SECOND);
        board.fault(fault(Kind::Lost, 5), SECOND * 2);
        board.repaired(place(5), SECOND * 3);
        board.fault(fault(Kind::Reordered, 5), SECOND * 3);
        assert!(board.is_exact());
    }

    #[test]
    fn a_wound_that_nobody_saw_is_no_hurt() {
        let mut board = Board::default();
        for number in [5, 6] {
            board.hurt(wounded(Wound::Alter, number), SECOND);
        }
        board.fault(fault(Kind::Altered, 5), SECOND);
        for hurt in board.hurts.clone() {
            if let What::Message(wounded) = &hurt.what {
                board.unhurt(wounded);
            }
        }
        let left: Vec<u64> = board.hurts.iter().map(|hurt| hurt.id).collect();
        assert_eq!(left, [0]);
    }

    #[test]
    fn a_fault_that_nobody_made_keeps_the_sentence_red() {
        let mut board = Board::default();
        board.hurt(wounded(Wound::Lose, 5), SECOND);
        board.fault(fault(Kind::Lost, 5), SECOND);
        board.fault(fault(Kind::Duplicated, 6), SECOND);
        board.repaired(place(5), SECOND);
        assert!(!board.is_green());
        assert_eq!(board.unexplained, [fault(Kind::Duplicated, 6)]);
    }

    #[test]
    fn a_broken_part_explains_its_losses_and_is_repaired_when_they_are() {
        let mut board = Board::default();
        board.hurt(What::Part("broker killed".to_owned()), SECOND);
        board.part_repaired(SECOND);
        assert!(board.has_open_part(), "nobody has noticed yet");
        board.part_named("A lost its connection", SECOND);
        board.fault(fault(Kind::Lost, 6), SECOND);
        board.part_repaired(SECOND * 2);
        assert!(board.has_open_part());
        board.repaired(place(6), SECOND * 3);
        board.part_repaired(SECOND * 3);
        assert!(board.is_green());
    }

    #[test]
    fn a_broken_part_explains_no_message_that_was_changed() {
        for kind in [Kind::Altered, Kind::Forged, Kind::Injected] {
            let mut board = Board::default();
            board.hurt(What::Part("broker killed".to_owned()), SECOND);
            board.fault(fault(kind, 6), SECOND * 2);
            board.echo(fault(kind, 7), SECOND * 2);
            assert_eq!(board.unexplained, [fault(kind, 6), fault(kind, 7)]);
        }
    }

    #[test]
    fn another_name_for_a_wound_is_not_exact_and_the_cost_of_a_broken_part_is() {
        let mut board = Board::default();
        board.hurt(wounded(Wound::Duplicate, 5), SECOND);
        board.fault(fault(Kind::Duplicated, 5), SECOND);
        assert!(board.is_exact());
        let mut other = board.clone();
        other.fault(fault(Kind::Injected, 5), SECOND);
        assert!(other.is_green() && !other.is_exact());
        board.hurt(What::Part("broker killed".to_owned()), SECOND * 2);
        board.part_named("A lost its connection", SECOND * 2);
        board.fault(fault(Kind::Duplicated, 5), SECOND * 3);
        board.part_repaired(SECOND * 3);
        assert!(board.is_exact());
    }

    #[test]
    fn only_the_last_windows_are_kept_and_the_latest_word_on_each() {
        let mut board = Board::default();
        for window in 0..=WINDOWS_SHOWN as u64 {
            let numbers = window * 1_024..(window + 1) * 1_024;
            board.window("A to C", &numbers, State::Faulty);
            board.window("A to C", &numbers, State::Proven);
        }
        let windows: Vec<State> = board.strips[0].windows().collect();
        assert_eq!(windows, vec![State::Proven; WINDOWS_SHOWN]);
    }
}
