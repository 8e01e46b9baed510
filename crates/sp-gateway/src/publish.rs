//! PUB: each message goes to every peer. One that is slow misses messages, as SUB sockets may; the
//! others do not wait for it. One that takes nothing for long is disconnected.

use std::sync::Arc;

use unbroken_client::Subscription;

use crate::connection::{Connection, PeerError};
use crate::endpoint::Role;
use crate::error::GatewayError;
use crate::limits::PEER_STALL;
use crate::outlets::Outlets;
use crate::shared::Shared;
use crate::source::{fits, frame};
use crate::topics::Mapping;

pub(crate) struct Publish {
    pub(crate) peers: Arc<Outlets>,
}

impl Role for Publish {
    async fn serve(&self, mut connection: Connection) -> PeerError {
        let mut outlet = self.peers.open();
        let Connection { reader, writer, .. } = &mut connection;
        let writing = async {
            // It ends with this function.
            while let Some(outgoing) = outlet.queue.recv().await {
                let writing = writer.write_while_taken(outgoing.frame(), PEER_STALL);
                if let Err(error) = writing.await {
                    return error;
                }
                outgoing.sent();
            }
            PeerError::Closed
        };
        tokio::select! {
            error = writing => error,
            error = reader.end() => error,
        }
    }
}

/// Puts each message into the queue of each peer, then acknowledges it.
pub(crate) async fn distribute(
    mut subscription: Subscription,
    mapping: Mapping,
    peers: Arc<Outlets>,
    shared: Arc<Shared>,
) -> GatewayError {
    loop {
        let message = match subscription.recv().await {
            Ok(message) => message,
            Err(why) => return GatewayError::Broker(why.to_string()),
        };
        if fits(&shared, &mapping, &message) {
            peers.send_all(&frame(&mapping, &[], &message).into());
        }
        message.acknowledge();
    }
}
