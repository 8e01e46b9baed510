//! How long messages, turns and commits take, and how long queues are.

use std::collections::HashMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use unbroken_broker::handle::{Histogram, Stats};

/// Name, meaning, and values in microseconds.
type Times = (&'static str, &'static str, fn(&Stats) -> &Histogram);

const TIMES: [Times; 4] = [
    (
        "unbroken_publish_to_ack_seconds",
        "From a PUBLISH to its PUBACK or PUBREC, in whole turns of the event loop; of \
         acknowledgements that wait for the store or another shard, some stand for all",
        |stats| &stats.latencies.acknowledged,
    ),
    (
        "unbroken_publish_to_send_seconds",
        "From a PUBLISH to the output of a receiver with room for it, in whole turns of the event \
         loop; what had to wait in a queue is not in it",
        |stats| &stats.latencies.sent,
    ),
    (
        "unbroken_turn_duration_seconds",
        "Turns of the event loop, without waiting",
        |stats| &stats.latencies.turns,
    ),
    (
        "unbroken_commit_duration_seconds",
        "Group commits until they were as safe as the store was opened to make them, fsync \
         included; some seconds behind",
        |stats| &stats.commits.all,
    ),
];

pub(super) fn encode(stats: &Stats, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, histogram) in TIMES {
        let seconds = |bucket: usize| float(1 << bucket) / 1e6;
        let sum = float(histogram(stats).sum()) / 1e6;
        one(to, (name, help), histogram(stats), (sum, seconds))?;
    }
    let queues = &stats.latencies.queues;
    let name = "unbroken_queue_depth_messages";
    let help = "Messages in the queue of a session, when another was put behind them";
    // Buckets have what is below a power of two, and `le` what is not above.
    let messages = |bucket: usize| float((1 << bucket) - 1);
    one(to, (name, help), queues, (float(queues.sum()), messages))
}

/// `end_of`: the upper bound of a bucket.
fn one(
    to: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    histogram: &Histogram,
    (sum, end_of): (f64, impl Fn(usize) -> f64),
) -> fmt::Result {
    let counts = histogram.counts().iter().copied().enumerate();
    let buckets = counts.map(|(bucket, count)| {
        let is_last = bucket == Histogram::BUCKETS - 1;
        (
            if is_last {
                f64::INFINITY
            } else {
                end_of(bucket)
            },
            count,
        )
    });
    let buckets: Vec<_> = buckets.collect();
    let exemplars = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
    to.encode_descriptor(name, help, None, MetricType::Histogram)?
        .encode_histogram(sum, histogram.total(), &buckets, exemplars)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has only f64")]
fn float(value: u64) -> f64 {
    value as f64
}
