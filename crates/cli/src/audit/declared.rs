//! Messages that were declared as not delivered, by the broker or by processors.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde_json::{Value, json};

/// Sums of one epoch of a lane, by who declared it and the reason, of which there are 256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared(BTreeMap<(By, String), Sum>);

/// What declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Broker,
    Processor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sum {
    messages: u64,
    /// From the first of them to the last.
    span: Range<u64>,
}

impl Declared {
    pub(crate) fn take(&mut self, by: By, reason: &str, numbers: &Range<u64>) {
        let sum = self.0.entry((by, reason.to_owned())).or_insert(Sum {
            messages: 0,
            span: numbers.clone(),
        });
        sum.messages += numbers.end - numbers.start;
        sum.span = sum.span.start.min(numbers.start)..sum.span.end.max(numbers.end);
    }

    /// Messages.
    pub(crate) fn sum(&self, by: By) -> u64 {
        let sums = self.0.iter().filter(|((its, _), _)| *its == by);
        sums.map(|(_, sum)| sum.messages).sum()
    }

    /// A sentence for each reason.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|((by, reason), Sum { messages, span })| {
            let last = span.end.saturating_sub(1);
            let among = match (messages, span.end - span.start) {
                (1, _) => format!("number {}", span.start),
                (messages, all) if *messages == all => format!("numbers {} to {last}", span.start),
                (messages, _) => format!("{messages} of numbers {} to {last}", span.start),
            };
            format!("{among} not delivered: {reason}, declared by {by}")
        })
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "by_broker": self.sum(By::Broker), "by_processors": self.sum(By::Processor) })
    }
}

impl By {
    pub(crate) const fn is_broker(by_broker: bool) -> Self {
        if by_broker {
            Self::Broker
        } else {
            Self::Processor
        }
    }

    /// One word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Processor => "processor",
        }
    }
}

/// "902/5": by the broker, and by processors.
impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}/{}", self.sum(By::Broker), self.sum(By::Processor));
        f.pad(&text)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}", self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_declared_is_summed_by_reason_and_by_who_says_so() {
        let mut declared = Declared::default();
        assert_eq!(declared.to_string(), "0/0");
        for numbers in [148..150, 160..200] {
            declared.take(By::Broker, "queue-full", &numbers);
        }
        declared.take(By::Processor, "filtered", &(7..8));
        declared.take(By::Processor, "expired", &(8..10));
        assert_eq!(format!("{declared:>6}"), "  42/3");
        let sentences: Vec<_> = declared.sentences().collect();
        assert_eq!(
            sentences,
            [
                "42 of numbers 148 to 199 not delivered: queue-full, declared by the broker",
                "numbers 8 to 9 not delivered: expired, declared by the processor",
                "number 7 not delivered: filtered, declared by the processor",
            ]
        );
    }
}
