//! The middle of a line: what comes out is made of what came in, and says so.
//!
//! An [`Input`] is a right to one output, and to no more: every way to emit consumes it, and no
//! output can be made without one. Its message is acknowledged after its output, or the record that
//! it was dropped, was; so what a crash interrupts comes again. What is not new, or not as its
//! producer made it, never becomes an input: a processor passes no fault on.

use std::collections::VecDeque;
use std::sync::Arc;

use unbroken_merkle_log::{DropReason, DropRecord, Hasher, LaneId, Parents, Part, Property};
use unbroken_mqtt_proto::{Property as Carried, PropertyBuf};

use super::error::{AuditError, ProcessError};
use super::publisher::{AuditedPublisher, Made, Stamped};
use super::subscriber::{AuditedMessage, AuditedSubscriber, Delivery};
use super::{Names, ORIGIN, PARENTS, THROUGH};
use crate::inbox::Acknowledgement;
use crate::{Message, TotalDuration};

/// A stage between two lines. `Claim` is that of its publisher.
#[derive(Debug)]
pub struct Processor<Claim> {
    input: AuditedSubscriber,
    output: AuditedPublisher<Claim>,
    names: Names,
    hasher: Hasher,
    /// Inputs, and the checkpoints behind them, oldest first; the last has none yet.
    shifts: VecDeque<Shift>,
}

/// Inputs that came between two checkpoints.
#[derive(Debug)]
struct Shift {
    /// Each is held by the inputs without output.
    unfinished: Vec<Arc<()>>,
    /// What covers them.
    checkpoint: Option<(LaneId, Vec<u8>)>,
}

/// A message to be worked on. Dropped without an output, it comes again on the next connection.
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
    /// hand](super::SubscriberOptions::acknowledged_by_hand), `prefix` and `hasher` those of both.
    pub fn new(
        input: AuditedSubscriber,
        output: AuditedPublisher<Claim>,
        prefix: &str,
        hasher: Hasher,
    ) -> Self {
        Self {
            input,
            output,
            names: Names::new(prefix),
            hasher,
            shifts: VecDeque::from([Shift::new()]),
        }
    }

    /// The next message to be worked on, or something to know. To be called again and again, also
    /// when nothing is expected: it passes checkpoints on and sees to what is lost.
    pub async fn next(&mut self) -> Result<Step, ProcessError> {
        self.pass_checkpoints_on().await?;
        let delivery = self.input.next().await?;
        let mut message = match delivery {
            Delivery::Message(message) => message,
            Delivery::Checkpoint { checkpoint, bytes } => {
                let lane = checkpoint.lane;
                self.hold(lane, bytes.clone());
                self.pass_checkpoints_on().await?;
                return Ok(Step::Other(Delivery::Checkpoint { checkpoint, bytes }));
            }
            other => return Ok(Step::Other(other)),
        };
        let acknowledgement = message.take_acknowledgement();
        if let Some(property) = message.property().copied().filter(|_| message.is_new()) {
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

    /// One output of many inputs.
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

    /// No output of these inputs, and why: said to whoever follows, so that they are not missed.
    pub async fn filter_out(
        &self,
        inputs: Vec<Input>,
        reason: DropReason,
    ) -> Result<(), ProcessError> {
        let mut dropped: Vec<Property> = Vec::new();
        for input in &inputs {
            dropped.extend(input.lineage().copied());
        }
        dropped.sort_unstable_by_key(|property| (property.lane, property.epoch));
        let mut releases: Vec<_> = inputs
            .into_iter()
            .filter_map(|input| input.acknowledgement)
            .collect();
        let epochs = dropped.chunk_by(|a, b| (a.lane, a.epoch) == (b.lane, b.epoch));
        let records: Vec<_> = epochs
            .filter_map(|epoch| DropRecord::of(reason, epoch))
            .collect();
        let last = records.len().saturating_sub(1);
        for (at, record) in records.into_iter().enumerate() {
            let mut payload = Vec::new();
            record
                .encode(&self.hasher, &mut payload)
                .expect("a record of properties is in order");
            // With the last one all are said.
            let releases = if at == last {
                std::mem::take(&mut releases)
            } else {
                Vec::new()
            };
            let message = Message::new(self.names.drop(record.lane), payload);
            let message = message.expect("an audit topic is a topic");
            self.output.tell(message, releases).await?;
        }
        Ok(())
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
    pub async fn close(self, answering: TotalDuration) -> Result<(), AuditError> {
        self.output.close(answering).await
    }

    /// Waits until every output is acknowledged, and leaves the epoch open for the next start; see
    /// [`AuditedPublisher::leave`].
    pub async fn leave(self) -> Result<(), AuditError> {
        self.output.leave().await
    }

    fn hold(&mut self, lane: LaneId, bytes: Vec<u8>) {
        if let Some(shift) = self.shifts.back_mut() {
            shift.checkpoint = Some((lane, bytes));
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

    /// Passes on the checkpoints of which every input before them has its output.
    async fn pass_checkpoints_on(&mut self) -> Result<(), AuditError> {
        let through = self.output.lane().to_string();
        while let Some(shift) = self.shifts.front_mut()
            && shift
                .unfinished
                .iter()
                .all(|held| Arc::strong_count(held) == 1)
            && let Some((lane, bytes)) = shift.checkpoint.take()
        {
            self.shifts.pop_front();
            let message = Message::new(self.names.checkpoint(lane), bytes);
            let message = message.expect("an audit topic is a topic");
            let message = message.user_property(THROUGH, &through)?;
            self.output.tell(message, Vec::new()).await?;
        }
        Ok(())
    }

    /// What was taken in is acknowledged with the last output.
    async fn send(
        &self,
        inputs: Vec<Input>,
        outputs: Vec<(Message, PropertyBuf)>,
    ) -> Result<Emitted, ProcessError> {
        let mut releases: Vec<_> = inputs
            .into_iter()
            .filter_map(|input| input.acknowledgement)
            .collect();
        let last = outputs.len().saturating_sub(1);
        let mut emitted = Vec::with_capacity(outputs.len());
        for (at, (message, properties)) in outputs.into_iter().enumerate() {
            let made = Made {
                properties,
                releases: if at == last {
                    std::mem::take(&mut releases)
                } else {
                    Vec::new()
                },
            };
            emitted.push(self.output.send_made(message, made).await?);
        }
        Ok(Emitted(emitted))
    }
}

impl Shift {
    fn new() -> Self {
        Self {
            unfinished: vec![Arc::new(())],
            checkpoint: None,
        }
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

    /// Its own property, in the lane of whoever published it.
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

/// Checkpoints that wait for inputs before them; about 200 bytes each.
const SHIFTS_MAX: usize = 1_024;

fn carried(
    values: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<PropertyBuf, AuditError> {
    let mut properties = PropertyBuf::new();
    for (name, value) in values {
        properties.push(Carried::UserProperty(name, &value))?;
    }
    Ok(properties)
}
