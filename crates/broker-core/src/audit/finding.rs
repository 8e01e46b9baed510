//! What the audit finds while a message is handled, and the shard names or passes on afterwards.

use std::collections::VecDeque;
use std::sync::Arc;

use unbroken_merkle_log::Epoch;

use super::Audit;
use super::json::Object;
use super::receipt::News;
use crate::message::{Mark, Publication};
use crate::reason::{FaultKind, FaultPlace};
use crate::telemetry::{Event, Telemetry};

/// What was found and is not yet named.
#[derive(Debug, Default)]
pub(crate) struct Findings(VecDeque<Finding>);

#[derive(Debug)]
pub(crate) enum Finding {
    /// What must not happen inside the broker, by name.
    Fault {
        place: FaultPlace,
        kind: FaultKind,
        first: u64,
        count: u64,
    },
    /// What became known of a message of this client, whose lane is watched.
    News {
        publisher: Arc<str>,
        epoch: Epoch,
        number: u64,
        news: News,
    },
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Finding> + use<'_> {
        self.0.drain(..)
    }

    #[cold]
    pub(crate) fn fault(&mut self, place: FaultPlace, kind: FaultKind, first: u64, count: u64) {
        self.0.push_back(Finding::Fault {
            place,
            kind,
            first,
            count,
        });
    }

    /// A message is not the one that was accepted.
    #[cold]
    pub(crate) fn altered(&mut self, mark: &Mark, publisher: &Arc<str>) {
        let place = FaultPlace::Lane(Arc::clone(publisher));
        self.fault(place, FaultKind::Altered, mark.number, 1);
        if mark.tracked {
            self.news(mark, publisher, News::Altered);
        }
    }

    /// What became known of a message that is followed.
    #[cold]
    pub(crate) fn news(&mut self, mark: &Mark, publisher: &Arc<str>, news: News) {
        self.0.push_back(Finding::News {
            publisher: Arc::clone(publisher),
            epoch: mark.epoch,
            number: mark.number,
            news,
        });
    }
}

impl Audit {
    /// Looks whether a message that came from another shard is the one that was accepted there.
    pub(crate) fn check_unaltered(
        &mut self,
        publication: &Publication<'_>,
        publisher: Option<&Arc<str>>,
    ) {
        if let Some(publisher) = publisher
            && let Some(mark) = publication.mark.filter(|mark| !mark.fits(publication))
        {
            self.findings.altered(&mark, publisher);
        }
    }

    /// Takes what was found first.
    #[inline]
    pub(crate) fn take_finding(&mut self) -> Option<Finding> {
        self.findings.0.pop_front()
    }

    /// Counts and reports a fault.
    #[cold]
    pub(crate) fn name_fault(
        &mut self,
        telemetry: &mut Telemetry,
        place: FaultPlace,
        kind: FaultKind,
        first: u64,
        count: u64,
    ) {
        let totals = telemetry.audit();
        match kind {
            FaultKind::Lost => totals.lost += count,
            FaultKind::Duplicated => totals.duplicated += count,
            FaultKind::Reordered => {
                totals.reordered += count;
                totals.lost = totals.lost.saturating_sub(count);
            }
            FaultKind::Altered => totals.altered += count,
            FaultKind::Unbalanced
            | FaultKind::Repeated
            | FaultKind::Injected
            | FaultKind::Intruded
            | FaultKind::Forged
            | FaultKind::RootDiffers
            | FaultKind::Contradicted
            | FaultKind::EndContradicted
            | FaultKind::TwoProducers => totals.unbalanced += 1,
        }
        if self.is_watched() {
            self.report_fault(&place, kind, first, count);
        }
        telemetry.report(Event::Fault {
            place,
            kind,
            first,
            count,
        });
    }

    fn report_fault(&mut self, place: &FaultPlace, kind: FaultKind, first: u64, count: u64) {
        let (client, place) = match place {
            FaultPlace::Session(client) => (client, "among the messages for this client"),
            FaultPlace::Lane(client) => (client, "among the messages of this client"),
            FaultPlace::Messages(_) => return,
        };
        let object = Object::new()
            .text("kind", kind.name())
            .text("place", place)
            .text("client", client)
            .number("first", first)
            .number("count", count);
        self.watch.report_fault(client, object);
    }
}
