//! The load generator behind `unbroken bench`.
//!
//! It opens many connections from one or a few threads, publishes at full speed within a window or
//! at a fixed rate, and keeps an exact ledger: what was lost, duplicated, reordered, corrupted, for
//! each receiver and publisher. Given the broker's process it reads what each delivery cost there.
//! See [`run`] for the library, [`cli`] for the command.
//!
//! Invariants: a run ends by itself; a figure belongs to the measured phase alone; what the
//! generator spends itself is shown. Deliberately absent: reconnecting, and any tuning for one
//! broker.

pub mod cli;
mod engine;
mod error;
mod greeting;
mod ledger;
mod plan;
pub mod process;
mod report;
mod run;
mod settings;
mod stamp;
mod tally;
mod timer;
mod transport;
mod view;
mod wire;

pub use self::{
    error::LoadError,
    greeting::{GreetingError, Identity},
    plan::Scenario,
    report::{Broker, Connecting, Figures, Idle, Latency, Report, Told, grouped, micros},
    run::{Observer, Phase, Progress, Unobserved, run},
    settings::{Extent, Settings},
    tally::Tally,
    transport::{Target, Transport},
};
pub use unbroken_mqtt_proto::Version;
