//! What connections and subscriptions hold in the broker's memory.

use std::io;

use unbroken_load::process::{Process, raise_descriptor_limit};

use crate::{
    client::Client,
    error::BenchError,
    figure::Figure,
    peer::{Peer, Running},
};

/// Bytes for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    /// A connection with its session, silent.
    pub(super) connection: f64,
    /// A subscription of a session that has one, to a filter that nobody else has.
    pub(super) own_filter: f64,
    /// The same, to a filter that all have.
    pub(super) shared_filter: f64,
}

/// Subscriptions of a session that has many; there are ten such sessions for each thousand
/// connections.
const MANY: u32 = 1_000;

/// The figures of one broker: those of [`Bytes`], in their order, and what a subscription takes
/// where a session has many.
pub(super) fn figures(peer: &Peer) -> [Figure; 4] {
    let figure =
        |name, of: &str| Figure::new(name, "", "B", None).titled(format!("{}: {of}", peer.name));
    [
        figure("connection", "a connection with its session, silent"),
        figure("own-filter", "its subscription to a filter of its own"),
        figure(
            "shared-filter",
            "its subscription to a filter that all have",
        ),
        figure("many", "one of a session's thousand subscriptions"),
    ]
}

/// Adds one round to [`figures`].
pub(super) fn round(
    peer: &Peer,
    connections: u32,
    figures: &mut [Figure],
) -> Result<(), BenchError> {
    raise_descriptor_limit();
    let own = |n: u32| vec![format!("fleet/{n}/command")];
    let (connection, own_filter) = grown(peer, connections, &own)?;
    let shared = |_| vec!["fleet/all/command".to_owned()];
    let (_, shared_filter) = grown(peer, connections, &shared)?;
    let many = |n: u32| {
        (0..MANY)
            .map(|m| format!("fleet/{n}/{m}/command"))
            .collect()
    };
    let (_, one_of_many) = grown(peer, connections.div_ceil(MANY) * 10, &many)?;
    let values = [
        connection,
        own_filter,
        shared_filter,
        one_of_many / f64::from(MANY),
    ];
    for (figure, value) in figures.iter_mut().zip(values) {
        figure.add(value);
    }
    Ok(())
}

pub(super) fn medians(figures: &[Figure]) -> Bytes {
    let median = |at: usize| figures.get(at).map_or(f64::NAN, Figure::median);
    Bytes {
        connection: median(0),
        own_filter: median(1),
        shared_filter: median(2),
    }
}

/// Bytes that each client takes by connecting, and then by subscribing.
fn grown(
    peer: &Peer,
    connections: u32,
    filters: &dyn Fn(u32) -> Vec<String>,
) -> Result<(f64, f64), BenchError> {
    let running = peer.start()?;
    let before = resident(&running)?;
    let clients = (0..connections).map(|n| Client::passing(running.target, &format!("device-{n}")));
    let mut clients = clients.collect::<io::Result<Vec<_>>>()?;
    let connected = resident(&running)?;
    for (n, client) in (0..).zip(&mut clients) {
        client.subscribe(filters(n).into_iter())?;
    }
    let subscribed = resident(&running)?;
    let each = f64::from(connections);
    Ok(((connected - before) / each, (subscribed - connected) / each))
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
fn resident(running: &Running) -> io::Result<f64> {
    Ok(Process::new(running.pid()).usage()?.resident as f64)
}
