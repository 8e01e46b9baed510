//! REP: requests of peers are published with a response topic; responses go back to their peer.
//!
//! The correlation data of a request are the number of its connection (64 bits, big endian) and the
//! words that its reply begins with. So nothing is remembered here, and a response is matched
//! wherever it comes from, as often as it comes: a requester takes the first.

use std::sync::Arc;

use tokio::time::timeout;
use unbroken_client::Subscription;

use crate::connection::{Connection, PeerError};
use crate::counts::Drop;
use crate::endpoint::Role;
use crate::error::GatewayError;
use crate::ingress::Ingress;
use crate::limits::PEER_STALL;
use crate::outlets::Outlets;
use crate::shared::Shared;
use crate::topics::Mapping;
use crate::wire;

pub(crate) struct Reply {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mapping: Mapping,
    pub(crate) ingress: Arc<Ingress>,
    pub(crate) topic: String,
    pub(crate) peers: Arc<Outlets>,
}

impl Role for Reply {
    async fn serve(&self, mut connection: Connection) -> PeerError {
        let mut outlet = self.peers.open();
        let serial = outlet.serial;
        let Connection { reader, writer, .. } = &mut connection;
        let asking = async {
            loop {
                let body = match reader.next().await {
                    Ok(body) => body,
                    Err(error) => return error,
                };
                self.shared.counts.add_received();
                if let Err(error) = self.ask(serial, body).await {
                    return error.into();
                }
            }
        };
        let answering = async {
            // It ends with this function.
            while let Some(outgoing) = outlet.queue.recv().await {
                // Acknowledgements leave in order, so one that takes no whole reply would hold back
                // those of the others.
                match timeout(PEER_STALL, writer.write(outgoing.frame())).await {
                    Ok(Ok(())) => outgoing.sent(),
                    Ok(Err(error)) => return error,
                    Err(_) => return PeerError::Stalled(PEER_STALL),
                }
            }
            PeerError::Closed
        };
        tokio::select! {
            error = asking => error,
            error = answering => error,
        }
    }
}

impl Reply {
    async fn ask(&self, serial: u64, body: &[u8]) -> Result<(), GatewayError> {
        let (way, content) = match wire::split_request(body) {
            Ok(split) => split,
            Err(why) => {
                self.shared.drop_message(Drop::BadRequest, &why);
                return Ok(());
            }
        };
        let message = match self.mapping.message(content) {
            Ok(message) => message,
            Err(why) => {
                self.shared.drop_message(Drop::BadTopic, &why);
                return Ok(());
            }
        };
        let message = message
            .response_topic(&self.topic)
            .and_then(|message| message.correlation_data(&correlation(serial, way)));
        let message = message.expect("topic and correlation data are short");
        self.ingress.publish(message, None).await
    }
}

fn correlation(serial: u64, way: &[u8]) -> Vec<u8> {
    [&serial.to_be_bytes(), way].concat()
}

/// The connection, and the words of the way.
fn parse_correlation(data: &[u8]) -> Option<(u64, &[u8])> {
    let (serial, way) = data.split_first_chunk()?;
    let (way, rest) = wire::split_request(way).ok()?;
    rest.is_empty()
        .then_some((u64::from_be_bytes(*serial), way))
}

/// Puts each response into the queue of its peer.
pub(crate) async fn distribute(
    mut responses: Subscription,
    peers: Arc<Outlets>,
    shared: Arc<Shared>,
) -> GatewayError {
    loop {
        let response = match responses.recv().await {
            Ok(response) => response,
            Err(why) => return GatewayError::Broker(why.to_string()),
        };
        let frame = |way| wire::frame(&[way, response.payload()]);
        let data = response.properties().correlation_data();
        let made = data
            .and_then(parse_correlation)
            .map(|(serial, way)| (serial, frame(way)));
        let Some((serial, frame)) = made else {
            let detail = "a response without the correlation data of a request";
            shared.drop_message(Drop::LateReply, &detail);
            response.acknowledge();
            continue;
        };
        if frame.len() - wire::LENGTH_BYTES > shared.message_bytes_max {
            let detail = format_args!("a reply of {} bytes", frame.len() - wire::LENGTH_BYTES);
            shared.drop_message(Drop::TooLarge, &detail);
            response.acknowledge();
            continue;
        }
        peers.send(serial, frame, response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_data_name_the_peer_and_the_way() {
        let way = [[0, 0, 0, 9], wire::request_id(7)].concat();
        let data = correlation(3, &way);
        assert_eq!(parse_correlation(&data), Some((3, &*way)));
        for cut in 0..data.len() {
            assert_eq!(parse_correlation(&data[..cut]), None, "{cut}");
        }
        assert_eq!(parse_correlation(&[&*data, b"x"].concat()), None);
    }
}
