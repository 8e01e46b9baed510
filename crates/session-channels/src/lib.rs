//! Channels whose type is the protocol.
//!
//! A protocol is written down once; each side of a session is then a value whose type says what may
//! be sent or what can come next. Nothing is received that the protocol does not name, nothing is
//! sent out of turn, and whoever stops early is noticed by the other side.
//!
//! What holds:
//! - An endpoint is used once: sending gives the next one, receiving gives the message with the
//!   next one in it. There are two endpoints to a session, each of which can be moved to another
//!   thread or task, also inside a message.
//! - Waiting takes nothing, so a wait that is given up loses no message; see [`Receive`].
//! - Closing is a value: [`Closed`] says which protocol, in which state, and whether the other side
//!   was dropped, finished or panicked. A message that is not taken is given back ([`Unsent`]).
//! - No runtime is needed: endpoints work under any executor, from blocking threads and in a plain
//!   readiness loop.
//! - Every queue has a capacity.
//!
//! Absent: sessions of more than two sides, and sessions over a network.
#![doc = include_str!("examples/simple_proto.md")]
#![doc = include_str!("examples/bank.md")]
#![doc = include_str!("examples/stream.md")]

pub mod debug;
pub mod duplex;
pub mod par;

#[allow(unsafe_code, reason = "holds a side of it")]
pub mod oneshot;
pub mod port_set;
#[allow(unsafe_code, reason = "holds a side of it")]
pub mod rendezvous;
pub mod select;
pub mod service;
pub mod shared;
#[allow(unsafe_code, reason = "holds a side of it")]
pub mod stream;
pub mod time;

mod barrier;
mod closed;
mod coalesce;
mod gate;
mod methods;
#[cfg(all(test, loom))]
#[allow(unsafe_code, reason = "plays both sides")]
mod models;
#[allow(unsafe_code, reason = "shared memory of two sides")]
mod packet;
mod park;
#[allow(unsafe_code, reason = "nodes that a set and its wakers share")]
mod ready_list;
mod receive;
#[allow(unsafe_code, reason = "shared memory of two sides")]
mod ring;
#[allow(unsafe_code, reason = "holds a side of it")]
mod session;
mod sync;
mod timer;
#[allow(unsafe_code, reason = "looks at the sessions of other threads")]
mod wait_graph;
#[allow(unsafe_code, reason = "written by one side, read by the other")]
mod waker_cell;

#[doc(inline)]
pub use duplex::{Duplex, duplex};
#[doc(inline)]
pub use oneshot::oneshot;
pub use port_set::PortSet;
#[doc(inline)]
pub use rendezvous::rendezvous;
#[doc(inline)]
pub use select::{Select, Selected};
#[doc(inline)]
pub use service::serve;
#[doc(inline)]
pub use shared::shared;
#[doc(inline)]
pub use stream::stream;
#[doc(inline)]
pub use time::{after, tick};

pub use closed::{Closed, TrySend, Unreceived, Unsent, Why};
pub use park::block_on;
pub use receive::{Endpoint, Receive};
/// Writes the types of a protocol.
#[doc = include_str!("examples/proto.md")]
pub use session_channels_macros::proto;
/// Waits, in an `async` function, until the first of several receivers has something, and
/// takes that.
#[doc = include_str!("examples/select.md")]
pub use session_channels_macros::select;
/// Like [`select!`], and the thread waits.
pub use session_channels_macros::select_blocking;

/// What the code written by [`proto!`] uses. Not for hands.
#[doc(hidden)]
pub mod rt {
    pub use crate::closed::{TrySend, Unreceived, Unsent};
    pub use crate::receive::{
        Endpoint, Ready, Receive, Recv, RecvDeadline, arm, is_ready, poll_ready, recv_blocking,
        recv_deadline_blocking, recv_timeout_blocking, try_recv,
    };
    pub use crate::select::{
        Order, Place, Selected, TakeHeld, TakeLocal, candidate, deadline, select_wait,
        select_wait_blocking,
    };
    pub use crate::session::{Client, Link, Next, Server, Shape, Side, State, TrySendLink, open};
    pub use crate::wait_graph::{Awaited, End, Wait};
}
