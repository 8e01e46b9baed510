//! The connection of a client to the broker, which can be interrupted like a network.
//!
//! Invariant: bytes keep their order. Bytes in transit at an interruption are lost, so a packet may
//! arrive in part.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
}

impl Link {
    /// One that is open.
    pub(crate) async fn to(broker: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let is_open = watch::Sender::new(true);
        let mut way = is_open.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    // One that cannot be accepted comes again.
                    accepted = listener.accept() => if let Ok((client, _)) = accepted {
                        tokio::spawn(pass(client, broker, way.clone()));
                    },
                    changed = way.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
        });
        Ok(Self { address, is_open })
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the connections there are, and every new one at once.
    pub(crate) fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.is_open.send_replace(true);
    }
}

/// One connection, until it ends or the way is closed.
async fn pass(mut client: TcpStream, broker: SocketAddr, mut way: watch::Receiver<bool>) {
    let passing = async {
        let mut broker = TcpStream::connect(broker).await?;
        broker.set_nodelay(true)?;
        client.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut broker).await
    };
    tokio::select! {
        biased;
        _ = way.wait_for(|is_open| !is_open) => {}
        // However it ends, both sides see that.
        _ = passing => {}
    }
}
