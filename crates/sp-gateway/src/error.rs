//! Why a gateway cannot start, or has ended.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use unbroken_client::{ConnectTo, TotalDuration};

/// Why a gateway cannot start, or has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address cannot be used.
    #[error("cannot listen on tcp://{address}: {source}; choose another address or port")]
    Bind {
        /// As it was given.
        address: SocketAddr,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// The peer could not be reached for the whole time.
    #[error("gave up connecting to tcp://{to} after {} s; the last try: {why}", .total.0.as_secs())]
    GaveUp {
        /// Where to.
        to: ConnectTo,
        /// For how long it was tried.
        total: TotalDuration,
        /// Why the last try failed.
        why: String,
    },
    /// The lane cannot be opened.
    #[error("cannot number messages: {0}")]
    Lane(String),
    /// The broker does not take the filter, or it is none.
    #[error("cannot subscribe to {0}")]
    Subscription(String),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}; start the gateway again")]
    Random(String),
    /// The client of the broker has ended.
    #[error("the connection with the broker has ended: {0}")]
    Broker(String),
    /// A task has panicked, which is a defect.
    #[error("a task of the gateway has panicked: {0}; this is a defect")]
    Panicked(String),
}
