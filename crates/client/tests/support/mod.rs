//! What the client's tests share: brokers as other processes, a relay that the test can cut and
//! that can change what passes, and a deadline.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod broker;
pub(crate) mod line;
pub(crate) mod relay;

use std::future::Future;
use std::time::Duration;

use unbroken_client::{ConnectTo, Options, RetryDuration};

/// How long anything that must happen may take before a test gives up on it. A passing test never
/// waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// What comes, within the deadline.
#[track_caller]
pub(crate) fn within<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let what = what.to_owned();
    async move {
        let in_time = tokio::time::timeout(DEADLINE, future).await;
        in_time.unwrap_or_else(|_| panic!("waited too long for {what}"))
    }
}

/// A client that returns quickly after a lost connection.
pub(crate) fn options(to: impl Into<ConnectTo>, client_id: &str) -> Options {
    Options::new(to.into()).client_id(client_id).pauses(
        RetryDuration(Duration::from_millis(20)),
        RetryDuration(Duration::from_millis(200)),
    )
}
