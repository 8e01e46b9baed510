//! How long anything may take that must happen.
//!
//! Invariant: only time in which this process runs counts. Where all was stopped for a while, or
//! the machine slept, the broker had no time either.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

/// So long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// It took longer.
#[derive(Debug)]
pub(crate) struct TooLong;

/// What this comes to, if it does in time.
pub(crate) async fn patiently<F: Future>(work: F) -> Result<F::Output, TooLong> {
    let mut work = pin!(work);
    for _ in 0..LOOKS {
        // However long all stands still, it is one look.
        if let Ok(done) = timeout(PATIENCE / LOOKS, &mut work).await {
            return Ok(done);
        }
    }
    Err(TooLong)
}

/// The end of it.
pub(crate) async fn out_of_patience() {
    let _ = patiently(pending::<()>()).await;
}

const LOOKS: u32 = 300;
