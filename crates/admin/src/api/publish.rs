//! Publishing a message.

use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use unbroken_broker::handle::{OwnMessage, QoS};
use utoipa::ToSchema;

use super::extract::Json;
use super::topics::valid_topic;
use crate::broker::Broker;
use crate::limits::CHANGE_TIMEOUT;
use crate::problem::Problem;

/// A message to publish
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Publish {
    topic: String,
    /// As text; no more than one of this and `payload_base64`
    payload: Option<String>,
    /// As base64, for bytes that are not text
    payload_base64: Option<String>,
    /// 0, 1 or 2
    #[serde(default)]
    #[schema(maximum = 2)]
    qos: u8,
    /// Whether it is the value of its topic from now on; without payload it removes that
    #[serde(default)]
    retain: bool,
}

impl Publish {
    fn message(self) -> Result<OwnMessage, Problem> {
        valid_topic(&self.topic)?;
        let qos = QoS::try_from(self.qos);
        let wrong_qos = || Problem::bad(format!("`qos` is {}; it is 0, 1 or 2", self.qos));
        let payload = match (self.payload, self.payload_base64) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad(
                    "`payload` and `payload_base64` are both given; leave one out",
                ));
            }
            (text, None) => text.unwrap_or_default().into_bytes(),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| Problem::bad(format!("`payload_base64` is no base64: {error}")))?,
        };
        Ok(OwnMessage {
            topic: self.topic.into(),
            payload: payload.into(),
            qos: qos.map_err(|_| wrong_qos())?,
            retain: self.retain,
        })
    }
}

/// Publishes a message as the broker itself
///
/// It is answered when the message is routed and, where necessary, stored. No access rule is asked.
#[utoipa::path(
    post, path = "/publish", tag = "topics", request_body = Publish,
    responses((status = 204, description = "It is published"))
)]
pub(crate) async fn publish(
    State(broker): State<Broker>,
    Json(publish): Json<Publish>,
) -> Result<StatusCode, Problem> {
    let message = publish.message()?;
    let published = broker.change(move |handle| handle.publish(message, CHANGE_TIMEOUT));
    published.await?;
    Ok(StatusCode::NO_CONTENT)
}
