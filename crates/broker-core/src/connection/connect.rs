//! What CONNECT may say, and what is announced to its client of itself.

use unbroken_mqtt_proto::topic::TopicName;
use unbroken_mqtt_proto::{Connect, PacketType, ReasonCode, Version};

use crate::limits::Limits;
use crate::reason::Fault;

/// Whether a packet that begins with this byte is CONNECT.
pub(crate) fn is_connect(first: u8) -> bool {
    first >> 4 == PacketType::Connect as u8
}

/// [MQTT-3.1.0-1]
pub(crate) fn not_connect() -> Fault {
    Fault::new(
        ReasonCode::ProtocolError,
        "the first packet was not CONNECT",
    )
}

/// What makes a well-formed CONNECT unacceptable from any client.
pub(crate) fn check_connect(connect: &Connect<'_>, limits: &Limits) -> Result<(), Fault> {
    match connect.version {
        Version::V3_1
            if connect.client_id.is_empty()
                || connect.client_id.chars().count() > CLIENT_ID_CHARS_MAX_3_1 =>
        {
            return Err(Fault::new(
                ReasonCode::ClientIdentifierNotValid,
                "a 3.1 client id has 1 to 23 characters",
            ));
        }
        // [MQTT311-3.1.3-7] [MQTT311-3.1.3-8]
        Version::V3_1_1 if connect.client_id.is_empty() && !connect.clean_start => {
            return Err(Fault::new(
                ReasonCode::ClientIdentifierNotValid,
                "a client without an id cannot have a session that stays",
            ));
        }
        // Every other id is taken as it is. [MQTT-3.1.3-5, MQTT311-3.1.3-5]
        _ => {}
    }
    if let Some(will) = &connect.will {
        check_will_topic(will.topic, limits)?;
        if let Some(topic) = will.properties.response_topic()
            && TopicName::parse(topic).is_err()
        {
            return Err(Fault::new(
                ReasonCode::ProtocolError,
                "the will's response topic is not a topic name",
            ));
        }
    }
    Ok(())
}

/// Whether a will may have this topic.
pub(crate) fn check_will_topic(topic: &str, limits: &Limits) -> Result<(), Fault> {
    let is_valid = TopicName::parse(topic).is_ok_and(|name| {
        topic.len() <= usize::from(limits.topic_bytes_max)
            && name.levels().count() <= usize::from(limits.topic_levels_max)
    });
    if is_valid {
        return Ok(());
    }
    Err(Fault::new(
        ReasonCode::TopicNameInvalid,
        "the will's topic is not a topic name, or one too long or too deep",
    ))
}

/// A prefix for response topics that no other client is given. The client id is one level of it:
/// what means something in a filter is escaped as in a URL (`%2F`), and so is `%`.
pub(crate) fn response_prefix(client_id: &str) -> String {
    let mut prefix = String::from("response/");
    for c in client_id.chars() {
        prefix.push_str(match c {
            '+' => "%2B",
            '#' => "%23",
            '/' => "%2F",
            '$' => "%24",
            '%' => "%25",
            _ => {
                prefix.push(c);
                continue;
            }
        });
    }
    prefix
}

/// The limit of MQTT 3.1, section 3.1.
const CLIENT_ID_CHARS_MAX_3_1: usize = 23;
