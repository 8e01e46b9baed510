//! SUB and PULL: each message of each peer is published.

use std::sync::Arc;

use crate::connection::{Connection, PeerError};
use crate::counts::Drop;
use crate::endpoint::Role;
use crate::ingress::Ingress;
use crate::shared::Shared;
use crate::topics::Mapping;

pub(crate) struct Inbound {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mapping: Mapping,
    pub(crate) ingress: Arc<Ingress>,
}

impl Role for Inbound {
    async fn serve(&self, mut connection: Connection) -> PeerError {
        loop {
            // While the broker takes no more, the peer is not read: TCP slows it down.
            let body = match connection.reader.next().await {
                Ok(body) => body,
                Err(error) => return error,
            };
            self.shared.counts.add_received();
            match self.mapping.message(body) {
                Ok(message) => {
                    if let Err(error) = self.ingress.publish(message, None).await {
                        return error.into();
                    }
                }
                Err(why) => self.shared.drop_message(Drop::BadTopic, &why),
            }
        }
    }
}
