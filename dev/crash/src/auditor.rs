//! The broker's own verdict, over all its runs: it has lost nothing, and neither have publishers
//! with stamps of their own, although it was killed while it verified them.
//!
//! Each run of the broker counts from 0 and publishes every second, and most end sooner. So the
//! last run, and some that are stopped cleanly, do not end before the broker has published.

use std::net::SocketAddr;

use tokio::sync::watch;
use unbroken_client::{Acknowledging, Filter, QoS};

use crate::publisher::{ClientError, connect};

/// What it has said.
#[derive(Debug, Default)]
pub(crate) struct BrokerVerdict {
    /// So often that it judges messages of these publishers.
    times: u64,
    /// What is not 0, each once.
    faults: Vec<String>,
}

impl BrokerVerdict {
    pub(crate) fn times(&self) -> u64 {
        self.times
    }

    /// What must not be, a sentence each.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Subscribes, and gives what listens for ever.
pub(crate) async fn listen(
    to: SocketAddr,
    said: watch::Sender<BrokerVerdict>,
) -> Result<impl Future<Output = Result<(), ClientError>>, ClientError> {
    let client = connect(to, "auditor").await?;
    let names: Vec<&str> = COUNTS.into_iter().chain([JUDGED]).collect();
    let filters = names.into_iter().map(|name| {
        let filter = Filter::new(format!("{PREFIX}{name}"));
        filter.expect("a topic is a filter").qos(QoS::AtMostOnce)
    });
    let subscription = client.subscribe_all(filters.collect(), Acknowledging::Automatic);
    let mut subscription = subscription.await?;
    Ok(async move {
        loop {
            let received = subscription.recv().await?;
            if received.payload() == b"0" {
                continue;
            }
            if received.topic().ends_with(JUDGED) {
                said.send_modify(|said| said.times += 1);
            } else {
                let count = String::from_utf8_lossy(received.payload());
                let fault = format!("the broker says {count} on {}", received.topic());
                said.send_modify(|said| {
                    if !said.faults.contains(&fault) {
                        said.faults.push(fault);
                    }
                });
            }
        }
    })
}

/// Messages that it has judged.
const JUDGED: &str = "publishers/verified";

const PREFIX: &str = "$SYS/audit/";

/// Counts that are 0 in a broker that keeps its word, and whose publishers lose nothing.
const COUNTS: [&str; 16] = [
    "lost",
    "duplicated",
    "reordered",
    "altered",
    "unbalanced",
    "publishers/lost",
    "publishers/duplicated",
    "publishers/repeated",
    "publishers/reordered",
    "publishers/altered",
    "publishers/injected",
    "publishers/forged",
    "publishers/roots-differing",
    "publishers/contradicted",
    "publishers/intruded",
    "publishers/windows/faulty",
];
