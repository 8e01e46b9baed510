//! What the broker itself says of the proof, over all its lives: that it has lost nothing, and that
//! publishers that stamp themselves have not, though it was killed while it judged them.
//!
//! Each run of the broker counts anew and says so every second, so what is found shortly before its
//! end may go unheard: a fault that comes of a crash is found when the next checkpoint comes.

use std::net::SocketAddr;

use tokio::sync::watch;
use unbroken_client::{Acknowledging, Filter, QoS};

use crate::line::{LineError, connect};

/// What is not 0, each once.
pub(crate) type Faults = watch::Sender<Vec<String>>;

/// Subscribes, and gives what listens for ever.
pub(crate) async fn listen(
    to: SocketAddr,
    faults: Faults,
) -> Result<impl Future<Output = Result<(), LineError>>, LineError> {
    let client = connect(to, "auditor").await?;
    let filters = COUNTS.map(|name| {
        let filter = Filter::new(format!("{PREFIX}{name}"));
        filter.expect("a topic is a filter").qos(QoS::AtMostOnce)
    });
    let subscription = client.subscribe_all(filters.into(), Acknowledging::Automatic);
    let mut subscription = subscription.await?;
    Ok(async move {
        loop {
            let received = subscription.recv().await?;
            if received.payload() != b"0" {
                let count = String::from_utf8_lossy(received.payload());
                let fault = format!("the broker says {count} on {}", received.topic());
                faults.send_if_modified(|faults| {
                    let is_new = !faults.contains(&fault);
                    if is_new {
                        faults.push(fault);
                    }
                    is_new
                });
            }
        }
    })
}

const PREFIX: &str = "$SYS/audit/";

/// Counts that are 0 in a broker that keeps its word, and whose publishers lose nothing.
const COUNTS: [&str; 14] = [
    "lost",
    "duplicated",
    "reordered",
    "altered",
    "unbalanced",
    "publishers/lost",
    "publishers/duplicated",
    "publishers/reordered",
    "publishers/altered",
    "publishers/injected",
    "publishers/forged",
    "publishers/roots-differing",
    "publishers/contradicted",
    "publishers/windows/faulty",
];
