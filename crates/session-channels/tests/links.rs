//! Links of protocols written by hand, where a test needs a shape that is hard to come by.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use session_channels::Why;
use session_channels::rt::{Client, Next, Server, Shape, State, TrySendLink, open};

/// Counts itself when it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// `open: send(2) { Item(Counted) -> open, End -> ! }`
struct Open;

impl State for Open {
    type Wire = Counted;
    type Sender = Client;
    const PROTOCOL: &'static str = "feed";
    const NAME: &'static str = "open";
    const SHAPE: Shape = Shape::Rings {
        to_server: 2,
        to_client: 0,
    };
    const CAPACITY: Option<u32> = Some(2);
    fn next(_: &Counted) -> Next {
        Next::new::<Self>()
    }
}

#[test]
fn a_full_ring_whose_receiver_left_gives_every_further_message_back() {
    let dropped = Arc::new(AtomicU32::new(0));
    let message = || Counted(Arc::clone(&dropped));
    let (client, server) = open::<Open, Counted>();
    let client = client.send_blocking::<Open>(message()).ok().unwrap();
    let client = client.send_blocking::<Open>(message()).ok().unwrap();
    drop(server);
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "what was on its way");
    let Err(TrySendLink::Closed(back, closed)) = client.try_send::<Open>(message()) else {
        panic!("nobody is there to take it");
    };
    assert_eq!(closed.why, Why::Dropped);
    assert_eq!(
        dropped.load(Ordering::Relaxed),
        2,
        "given back, not dropped"
    );
    drop(back);
    assert_eq!(dropped.load(Ordering::Relaxed), 3);
}

/// Panics when it is dropped, as no message should.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "it was dropped");
    }
}

/// `order: recv(2) { More(Grenade) -> order, Enough -> reply }`
struct Order;
/// `reply: send { Thanks -> ! }`
struct Reply;

const ORDER: Shape = Shape::Rings {
    to_server: 1,
    to_client: 2,
};

impl State for Order {
    type Wire = Option<Grenade>;
    type Sender = Server;
    const PROTOCOL: &'static str = "orders";
    const NAME: &'static str = "order";
    const SHAPE: Shape = ORDER;
    const CAPACITY: Option<u32> = Some(2);
    fn next(wire: &Self::Wire) -> Next {
        match wire {
            Some(_) => Next::new::<Self>(),
            None => Next::TURN,
        }
    }
}

impl State for Reply {
    type Wire = ();
    type Sender = Client;
    const PROTOCOL: &'static str = "orders";
    const NAME: &'static str = "reply";
    const SHAPE: Shape = ORDER;
    const CAPACITY: Option<u32> = None;
    fn next((): &()) -> Next {
        Next::TURN
    }
}

#[test]
fn a_side_is_closed_in_both_directions_even_if_a_message_panics_while_dropped() {
    let (client, server) = open::<Order, Option<Grenade>>();
    let server = server.send_blocking::<Order>(Some(Grenade)).ok().unwrap();
    let server = server.send_blocking::<Reply>(None).ok().unwrap();
    catch_unwind(AssertUnwindSafe(|| drop(client))).unwrap_err();
    assert_eq!(server.look(), Some(Err(Why::Dropped)));
}

#[test]
fn threads_may_look_at_one_end_at_once() {
    let (mut sender, receiver) = session_channels::stream(64);
    std::thread::scope(|scope| {
        let look = || while receiver.len() < 64 {};
        scope.spawn(look);
        scope.spawn(look);
        for n in 0..64 {
            sender.try_send(n).unwrap();
        }
    });
}
