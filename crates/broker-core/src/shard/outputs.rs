//! What comes out of a shard after an input.

use super::Shard;
use crate::output::Output;
use crate::telemetry::Work;

/// What the shard wants done after an input. Must be drained before the next one.
///
/// Requests to the store come first: a message is asked to be stored before another shard has it.
/// Then come messages to other shards; events come last.
#[must_use = "the driver has to do what the shard asks for"]
#[derive(Debug)]
pub struct Outputs<'a> {
    shard: &'a mut Shard,
    work: Work,
}

impl<'a> Outputs<'a> {
    pub(super) fn new(shard: &'a mut Shard, work: Work) -> Self {
        Self { shard, work }
    }

    /// What the input has come to.
    pub fn work(&self) -> Work {
        self.work
    }
}

impl Iterator for Outputs<'_> {
    type Item = Output;

    fn next(&mut self) -> Option<Output> {
        let shard = &mut *self.shard;
        if let Some(request) = shard.gate.next_request() {
            return Some(request.into());
        }
        if let Some((to, message)) = shard.mesh.take_outgoing() {
            return Some(Output::ShardMessage { to, message });
        }
        let output = shard.outputs.pop_front();
        output.or_else(|| shard.telemetry.take_event().map(Output::Event))
    }
}
