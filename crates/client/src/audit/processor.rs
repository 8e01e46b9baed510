//! The middle of a line: what comes out is made of what came in, and says so.
//!
//! An [`Input`] is a right to one output, and to no more: every way to emit consumes it, and no
//! output can be made without one. Its message is acknowledged after its output, or the record that
//! it was dropped, was; so what a crash interrupts comes again. What is not new, or not as its
//! producer made it, never becomes an input: a processor passes no fault on. What came before the
//! first window that it saw begin ([`Scope::FromNow`](super::Scope)) it passes on without a claim.
//!
//! Checkpoints of its inputs' lanes are passed on behind the outputs of all that they cover, and
//! not before what is lost of them has come again or cannot: the next stage then does not name the
//! same loss.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use unbroken_merkle_log::ledger::Verdict;
use unbroken_merkle_log::{DropReason, EpochEnd, Hasher, LaneId, Parents, Part, Property};
use unbroken_mqtt_proto::{Property as Carried, PropertyBuf};

use super::error::{AuditError, ProcessError};
use super::gathered::LeftOut;
use super::judged::AuditedMessage;
use super::producer::{Elsewhere, Order, PassedOn};
use super::publisher::{AuditedPublisher, Made, Stamped};
use super::subscriber::{AuditedSubscriber, Delivery};
use super::{ORIGIN, PARENTS};
use crate::inbox::Acknowledgement;
use crate::{Message, TotalDuration};

/// A stage between two lines. `Claim` is that of its publisher.
///
/// # After a restart
///
/// The inputs must come in a session that the broker keeps ([`Session::Kept`](crate::Session), one
/// client id), at QoS 1 or 2; then, whether the processor was closed, dropped or killed:
///
/// - Every input without an output, and without a record that it was dropped, comes again: none is
///   lost.
/// - On a [`Spooled`](super::Spooled) lane the lane goes on with the next number. The spool knows
///   of each input whose output it has, since both are written in one step; such an input, when it
///   comes again, is acknowledged and not given out a second time. Outputs that the broker had not
///   acknowledged are sent again with their numbers, flagged re-sent. So each input has one output.
///   The parts of a split are written in one step too.
/// - What the processor knew of its inputs' lanes is in the spool as well, as far as they had
///   outputs: it goes on from there, and not from what its subscriber was
///   [restored](super::SubscriberOptions::restore) from.
/// - On an [`Unspooled`](super::Unspooled) lane a new epoch begins, and an input may have an output
///   in each.
///
/// Three exceptions: inputs before the scope of a [late joiner](super::Scope::FromNow), inputs of
/// lanes for which there is [no room](super::Delivery::NoRoom), and inputs of which the spool could
/// not be written, may have two outputs or none is promised of them.
#[derive(Debug)]
pub struct Processor<Claim> {
    input: AuditedSubscriber,
    output: AuditedPublisher<Claim>,
    hasher: Hasher,
    /// Inputs, and the checkpoints behind them, oldest first; the last has none yet.
    shifts: VecDeque<Shift>,
    /// What other processors have dropped, and the spool is to know.
    dropped: VecDeque<Elsewhere>,
}

/// Inputs that came between two checkpoints.
#[derive(Debug)]
struct Shift {
    /// Each is held by the inputs without output.
    unfinished: Vec<Arc<()>>,
    /// What covers them.
    checkpoint: Option<Held>,
}

/// A checkpoint to be passed on.
#[derive(Debug)]
struct Held {
    passed_on: PassedOn,
    /// Until when what is missing is waited for.
    patience: Instant,
}

/// A message to be worked on. Dropped without an output, it comes again on the next connection, as
/// [`Acknowledging::ByHand`](crate::Acknowledging::ByHand) says. As many as
/// [`receive_maximum`](crate::Limits::receive_maximum) may be held; then none comes.
#[derive(Debug)]
#[must_use = "emit an output or drop it with a reason; otherwise the message comes again"]
pub struct Input {
    message: AuditedMessage,
    acknowledgement: Option<Acknowledgement>,
    property: Property,
    _unfinished: Arc<()>,
}

/// What [`Processor::next`] gives.
#[derive(Debug)]
pub enum Step {
    /// A message to be worked on.
    Input(Input),
    /// Anything else, for the log: messages that are not worked on, with their verdicts, and what
    /// became known about lanes.
    Other(Delivery),
}

/// The outputs made of an input or a batch.
#[derive(Debug)]
pub struct Emitted(Vec<Stamped>);

impl<Claim> Processor<Claim> {
    /// Joins the ends. `input` must be [acknowledged by
    /// hand](super::SubscriberOptions::acknowledged_by_hand), and both must have the same prefix
    /// and hasher.
    pub fn new(mut input: AuditedSubscriber, output: AuditedPublisher<Claim>) -> Self {
        input.begin_processing(output.taken());
        Self {
            hasher: input.hasher().clone(),
            input,
            output,
            shifts: VecDeque::from([Shift::new()]),
            dropped: VecDeque::new(),
        }
    }

    /// The next message to be worked on, or something to know. To be called again and again, also
    /// when nothing is expected: it passes checkpoints on and sees to what is lost. Cancelling
    /// loses nothing.
    pub async fn next(&mut self) -> Result<Step, ProcessError> {
        let delivery = loop {
            self.note_dropped().await?;
            self.pass_checkpoints_on(Instant::now()).await?;
            tokio::select! {
                delivery = self.input.next() => break delivery?,
                () = tokio::time::sleep(LOOK_AGAIN), if self.shifts.len() > 1 => {}
            }
        };
        let mut message = match delivery {
            Delivery::Message(message) => message,
            Delivery::Checkpoint { checkpoint, bytes } => {
                let release = self.input.take_release();
                self.hold(PassedOn {
                    checkpoint: checkpoint.clone(),
                    bytes: bytes.clone(),
                    release,
                });
                return Ok(Step::Other(Delivery::Checkpoint { checkpoint, bytes }));
            }
            Delivery::Dropped { record, by_broker } => {
                self.dropped.push_back(Elsewhere {
                    record: record.clone(),
                    release: self.input.take_release(),
                });
                return Ok(Step::Other(Delivery::Dropped { record, by_broker }));
            }
            other => return Ok(Step::Other(other)),
        };
        let acknowledgement = message.take_acknowledgement();
        let is_input = message.is_new() || message.verdict() == Some(Verdict::OutOfScope);
        if let Some(property) = message.property().copied().filter(|_| is_input) {
            let shift = self.shifts.back().expect("one is always open");
            let unfinished = shift.unfinished.last().expect("it began with one");
            return Ok(Step::Input(Input {
                message,
                acknowledgement,
                property,
                _unfinished: Arc::clone(unfinished),
            }));
        }
        acknowledgement.into_iter().for_each(Acknowledgement::give);
        Ok(Step::Other(Delivery::Message(message)))
    }

    /// One output of one input.
    pub async fn emit(&self, input: Input, output: Message) -> Result<Emitted, ProcessError> {
        let properties = input.origins(None)?;
        self.send(vec![input], vec![(output, properties)]).await
    }

    /// One output of many inputs. They are all unacknowledged until it is, and the broker sends no
    /// more than [`receive_maximum`](crate::Limits::receive_maximum) before (1,024 by default):
    /// a caller that waits for one more than that waits for ever. Checkpoints count too, so gather
    /// fewer, by a quarter to be safe, or raise the limit.
    pub async fn emit_batch(
        &self,
        inputs: Vec<Input>,
        output: Message,
    ) -> Result<Emitted, ProcessError> {
        if inputs.is_empty() {
            return Err(ProcessError::NoInput);
        }
        let mut parents = Parents::of(&self.hasher, inputs.iter().flat_map(Input::lineage))?;
        for more in inputs.iter().filter_map(|input| input.message.parents()) {
            parents.merge(more)?;
        }
        let text = parents.to_text()?;
        let properties = carried([(PARENTS, text)])?;
        self.send(inputs, vec![(output, properties)]).await
    }

    /// Up to 255 outputs of one input. The input is complete at a receiver when all have come.
    pub async fn emit_parts(
        &self,
        input: Input,
        outputs: Vec<Message>,
    ) -> Result<Emitted, ProcessError> {
        let refused = ProcessError::Parts {
            parts: outputs.len(),
            lane: input.property.lane,
            number: input.property.sequence,
        };
        let Some(of) = u8::try_from(outputs.len()).ok().filter(|of| *of > 0) else {
            return Err(refused);
        };
        if input.lineage().any(|property| property.part.is_some()) {
            return Err(refused);
        }
        let mut parts = Vec::with_capacity(outputs.len());
        for (index, output) in (1..=of).zip(outputs) {
            parts.push((output, input.origins(Part::new(index, of))?));
        }
        self.send(vec![input], parts).await
    }

    /// No output of these inputs, and why: published to the next stage, which then does not miss
    /// them. One record covers many: it leaves after
    /// [`left_out_max`](crate::Limits::left_out_max) of them, with the next checkpoint that is
    /// passed on, or a second later; the inputs are acknowledged after that.
    pub async fn filter_out(
        &self,
        inputs: Vec<Input>,
        reason: DropReason,
    ) -> Result<(), ProcessError> {
        let left_out = LeftOut {
            reason,
            lineage: inputs.iter().flat_map(Input::lineage).copied().collect(),
            lanes: lanes(&inputs),
            releases: releases(inputs),
        };
        Ok(self.output.order(Order::LeaveOut(left_out)).await?)
    }

    /// The receiving end.
    pub fn input(&self) -> &AuditedSubscriber {
        &self.input
    }

    /// The sending end, whose lane the outputs are numbered in.
    pub fn output_lane(&self) -> LaneId {
        self.output.lane()
    }

    /// Ends the epoch of the outputs' lane; see [`AuditedPublisher::close`].
    pub async fn close(mut self, answering: TotalDuration) -> Result<(), AuditError> {
        self.note_dropped().await?;
        self.pass_checkpoints_on(Instant::now() + PATIENCE).await?;
        self.output.close(answering).await
    }

    /// Waits until every output is acknowledged, and leaves the epoch open for the next start; see
    /// [`AuditedPublisher::leave`].
    pub async fn leave(mut self) -> Result<(), AuditError> {
        self.note_dropped().await?;
        self.pass_checkpoints_on(Instant::now() + PATIENCE).await?;
        self.output.leave().await
    }

    fn hold(&mut self, passed_on: PassedOn) {
        if let Some(shift) = self.shifts.back_mut() {
            shift.checkpoint = Some(Held {
                passed_on,
                patience: Instant::now() + PATIENCE,
            });
        }
        self.shifts.push_back(Shift::new());
        if self.shifts.len() > SHIFTS_MAX {
            // A later checkpoint says the same and more. The inputs are waited for all the same.
            let oldest = self.shifts.pop_front();
            if let (Some(mut oldest), Some(next)) = (oldest, self.shifts.front_mut()) {
                oldest.unfinished.retain(|held| Arc::strong_count(held) > 1);
                next.unfinished.splice(..0, oldest.unfinished);
            }
        }
    }

    /// Sees to it that the spool knows what others have dropped before the broker may forget it.
    async fn note_dropped(&mut self) -> Result<(), AuditError> {
        while !self.dropped.is_empty() {
            let place = self.output.place().await?;
            if let Some(elsewhere) = self.dropped.pop_front() {
                place.send(Order::Note(elsewhere));
            }
        }
        Ok(())
    }

    /// Passes on the checkpoints of which every input before them has its output, and nothing is
    /// missing that may still come before `now`.
    async fn pass_checkpoints_on(&mut self, now: Instant) -> Result<(), AuditError> {
        self.let_more_come();
        while let Some(shift) = self.shifts.front_mut()
            && shift.is_finished()
            && let Some(held) = &shift.checkpoint
            && (held.patience <= now || self.input.is_settled(&held.passed_on.checkpoint))
        {
            let place = self.output.place().await?;
            if let Some(held) = shift.checkpoint.take() {
                place.send(Order::PassOn(held.passed_on));
            }
            self.shifts.pop_front();
        }
        Ok(())
    }

    /// Acknowledgements leave in order, so a checkpoint that only waits for what is lost would keep
    /// those behind it from leaving, and the broker from sending what is lost. After a crash a
    /// later checkpoint tells the same and more, unless it is the last one.
    fn let_more_come(&mut self) {
        let finished = self
            .shifts
            .iter_mut()
            .take_while(|shift| shift.is_finished());
        for shift in finished {
            if let Some(held) = &mut shift.checkpoint
                && held.passed_on.checkpoint.end == EpochEnd::Open
            {
                let release = held.passed_on.release.take();
                release.into_iter().for_each(Acknowledgement::give);
            }
        }
    }

    /// What was taken in is acknowledged with the last output.
    async fn send(
        &self,
        inputs: Vec<Input>,
        outputs: Vec<(Message, PropertyBuf)>,
    ) -> Result<Emitted, ProcessError> {
        let lanes = lanes(&inputs);
        let mut outputs: Vec<_> = outputs
            .into_iter()
            .map(|(message, properties)| {
                let made = Made {
                    properties,
                    ..Made::default()
                };
                (message, made)
            })
            .collect();
        if let Some((_, last)) = outputs.last_mut() {
            last.lanes = lanes;
            last.releases = releases(inputs);
        }
        Ok(Emitted(self.output.send_made(outputs).await?))
    }
}

impl Shift {
    fn new() -> Self {
        Self {
            unfinished: vec![Arc::new(())],
            checkpoint: None,
        }
    }

    /// Every input has its output.
    fn is_finished(&self) -> bool {
        let mut unfinished = self.unfinished.iter();
        unfinished.all(|held| Arc::strong_count(held) == 1)
    }
}

impl Input {
    /// The message and what is known of it.
    pub fn message(&self) -> &AuditedMessage {
        &self.message
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        self.message.topic()
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.message.payload()
    }

    /// Its own property, in the lane of its publisher.
    pub fn property(&self) -> &Property {
        &self.property
    }

    /// Everything that it stands for, oldest first, itself last.
    fn lineage(&self) -> impl Iterator<Item = &Property> {
        let origins = self.message.origins().iter().map(|(origin, _)| origin);
        origins.chain(std::iter::once(&self.property))
    }

    /// What an output of it carries.
    fn origins(&self, part: Option<Part>) -> Result<PropertyBuf, AuditError> {
        let origins = self.lineage().map(|property| {
            // How this copy came is this receiver's matter.
            let mut property = *property;
            property.flags.resent = false;
            property.part = part.or(property.part);
            (ORIGIN, property.to_text())
        });
        let mut properties = carried(origins)?;
        if let Some(parents) = self.message.received().user_property(PARENTS) {
            properties.push(Carried::UserProperty(PARENTS, parents))?;
        }
        Ok(properties)
    }
}

impl Emitted {
    /// Waits until the broker has acknowledged every output. The inputs are acknowledged then,
    /// whether anybody waits or not.
    pub async fn published(self) -> Result<(), AuditError> {
        for stamped in self.0 {
            stamped.published().await?;
        }
        Ok(())
    }
}

/// The lanes that these came in, each once.
fn lanes(inputs: &[Input]) -> Vec<LaneId> {
    let mut lanes: Vec<_> = inputs.iter().map(|input| input.property.lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

fn releases(inputs: Vec<Input>) -> Vec<Acknowledgement> {
    let inputs = inputs.into_iter();
    inputs.filter_map(|input| input.acknowledgement).collect()
}

/// Checkpoints that wait for inputs before them; about 300 bytes each.
const SHIFTS_MAX: usize = 1_024;
/// How long what a checkpoint covers and did not come may take to come again.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether a checkpoint may be passed on.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

fn carried(
    values: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<PropertyBuf, AuditError> {
    let mut properties = PropertyBuf::new();
    for (name, value) in values {
        properties.push(Carried::UserProperty(name, &value))?;
    }
    Ok(properties)
}
