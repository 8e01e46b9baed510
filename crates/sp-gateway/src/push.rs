//! PUSH: each message goes to one peer, and is acknowledged once its socket has taken it.

use std::sync::Arc;

use crate::connection::{Connection, PeerError};
use crate::endpoint::Role;
use crate::shared::Shared;
use crate::source::Source;

pub(crate) struct Push {
    pub(crate) shared: Arc<Shared>,
    pub(crate) source: Source,
}

impl Role for Push {
    async fn serve(&self, mut connection: Connection) -> PeerError {
        let Connection { reader, writer, .. } = &mut connection;
        let pushing = async {
            loop {
                let held = match self.source.take().await {
                    Ok(held) => held,
                    Err(error) => return error.into(),
                };
                let frame = self.source.frame(&[], held.message());
                // A peer that is gone has not had a whole frame: it goes to another.
                if let Err(error) = writer.write(&frame).await {
                    return error;
                }
                self.shared.counts.add_sent();
                held.into_message().acknowledge();
            }
        };
        tokio::select! {
            error = pushing => error,
            error = reader.end() => error,
        }
    }
}
