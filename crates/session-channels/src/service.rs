//! Services: a task or thread of its own plays the server, and the client's end is given back.
//!
//! Which executor runs the task is the caller's choice, by [`Spawn`]; this crate brings
//! [`Threads`], and any other takes three lines:
//!
//! ```
//! use session_channels::service::Spawn;
//! use std::{convert::Infallible, future::Future};
//!
//! struct Tokio;
//!
//! impl Spawn for Tokio {
//!     type Error = Infallible;
//!     fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Infallible> {
//!         tokio::spawn(task);
//!         Ok(())
//!     }
//! }
//! ```

use std::future::Future;
use std::{io, thread};

use crate::park::block_on;
use crate::receive::{Endpoint, Receive};

/// Something that runs tasks.
pub trait Spawn {
    /// Why it could not begin one.
    type Error;
    /// Begins a task. One that is not begun is dropped, and with it the endpoint it holds, so that
    /// the other side hears of it.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), Self::Error>;
}

/// Runs each task on a thread of its own, which bears this name.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub &'static str);

impl Spawn for Threads {
    type Error = io::Error;

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        start(self.0, move || block_on(task))
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.into());
    builder.spawn(work).map(drop)
}

/// Starts a thread that serves the server's end of a session, and gives the client's end back.
/// `open` is the protocol's `init`.
///
/// ```
/// session_channels::proto! {
///     pub doubling {
///         ask: send { Number(u32) -> answer }
///         answer: recv { Double(u32) -> ! }
///     }
/// }
/// use doubling::{Answer, Ask};
///
/// let client = session_channels::serve("doubling", doubling::init, |server| {
///     if let Ok(Ask::Number(n, server)) = server.recv_blocking() {
///         server.double(2 * n);
///     }
/// })?;
/// let Answer::Double(n) = client.number(21).recv_blocking()?;
/// assert_eq!(n, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve<C, S>(
    name: &str,
    open: impl FnOnce() -> (C, S),
    work: impl FnOnce(S) + Send + 'static,
) -> io::Result<C>
where
    C: Endpoint<Dual = S>,
    S: Endpoint<Dual = C> + Send + 'static,
{
    let (client, server) = open();
    start(name, move || work(server))?;
    Ok(client)
}

/// Starts a task that serves the server's end of a protocol in which the client speaks first, and
/// gives the client's end back.
///
/// ```
/// # session_channels::proto! {
/// #     pub doubling {
/// #         ask: send { Number(u32) -> answer }
/// #         answer: recv { Double(u32) -> ! }
/// #     }
/// # }
/// use doubling::{Answer, Ask};
/// use session_channels::service::{Threads, spawn_service};
///
/// let client = spawn_service(&Threads("doubling"), doubling::init, async |server| {
///     if let Ok(Ask::Number(n, server)) = server.recv().await {
///         server.double(2 * n);
///     }
/// })?;
/// let Answer::Double(n) = client.number(21).recv_blocking()?;
/// assert_eq!(n, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn_service<X, C, S, F>(
    spawn: &X,
    open: impl FnOnce() -> (C, S),
    work: impl FnOnce(S) -> F,
) -> Result<C, X::Error>
where
    X: Spawn,
    C: Endpoint<Dual = S>,
    S: Receive + Endpoint<Dual = C>,
    F: Future<Output = ()> + Send + 'static,
{
    let (client, server) = open();
    spawn.spawn(work(server))?;
    Ok(client)
}

/// [`spawn_service`] for a protocol in which the server speaks first.
pub fn spawn_service_recv<X, C, S, F>(
    spawn: &X,
    open: impl FnOnce() -> (C, S),
    work: impl FnOnce(S) -> F,
) -> Result<C, X::Error>
where
    X: Spawn,
    C: Receive + Endpoint<Dual = S>,
    S: Endpoint<Dual = C>,
    F: Future<Output = ()> + Send + 'static,
{
    let (client, server) = open();
    spawn.spawn(work(server))?;
    Ok(client)
}
