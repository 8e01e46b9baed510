//! `-D PACKET PROPERTY VALUE`: 5.0 properties by their names, as Mosquitto takes them.

use unbroken_mqtt_proto::{
    EncodeError, PacketType, Property, PropertyBuf, PropertyId, PropertySection,
};

/// A packet that a client sends, or the will within CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Connect,
    Will,
    Publish,
    Subscribe,
    Unsubscribe,
    Disconnect,
}

const PLACES: [(&str, Place, PropertySection); 6] = [
    (
        "connect",
        Place::Connect,
        PropertySection::Packet(PacketType::Connect),
    ),
    ("will", Place::Will, PropertySection::Will),
    (
        "publish",
        Place::Publish,
        PropertySection::Packet(PacketType::Publish),
    ),
    (
        "subscribe",
        Place::Subscribe,
        PropertySection::Packet(PacketType::Subscribe),
    ),
    (
        "unsubscribe",
        Place::Unsubscribe,
        PropertySection::Packet(PacketType::Unsubscribe),
    ),
    (
        "disconnect",
        Place::Disconnect,
        PropertySection::Packet(PacketType::Disconnect),
    ),
];

/// All properties given, by the packet they belong to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Vec<(Place, PropertyBuf)>);

impl Given {
    /// Whether there is one at all.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// The properties of one packet, which are gone from here afterwards.
    pub(crate) fn take(&mut self, place: Place) -> PropertyBuf {
        match self.0.iter().position(|(at, _)| *at == place) {
            Some(position) => self.0.swap_remove(position).1,
            None => PropertyBuf::new(),
        }
    }

    pub(crate) fn push(&mut self, place: Place, property: Property<'_>) -> Result<(), EncodeError> {
        if let Some((_, properties)) = self.0.iter_mut().find(|(at, _)| *at == place) {
            return properties.push(property);
        }
        let mut properties = PropertyBuf::new();
        properties.push(property)?;
        self.0.push((place, properties));
        Ok(())
    }
}

/// Reads the values of all `-D` flags in a row. How many each has follows from its property.
pub(crate) fn parse(words: &[String]) -> Result<Given, String> {
    let mut given = Given::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(packet) = words.next() {
        let mut word = || {
            words
                .next()
                .ok_or("-D takes PACKET PROPERTY VALUE, or PACKET user-property NAME VALUE")
        };
        let name = word()?;
        let Some((packet, place, section)) = PLACES
            .into_iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(packet))
        else {
            // Mosquitto takes the names of packets on which these commands send no properties.
            if ["puback", "pubrec", "pubrel", "pubcomp", "auth"].contains(&packet) {
                return Err(format!(
                    "-D {packet}: this command sends no properties with that packet"
                ));
            }
            let known = PLACES.map(|(known, ..)| known).join(", ");
            return Err(format!("-D {packet}: it is one of {known}"));
        };
        let id = PropertyId::ALL
            .iter()
            .copied()
            .find(|id| hyphenated(*id) == name);
        let Some(id) = id.filter(|id| client_may_send(*id, section)) else {
            let allowed = PropertyId::ALL
                .iter()
                .filter(|id| client_may_send(**id, section));
            let allowed: Vec<_> = allowed.map(|id| hyphenated(*id)).collect();
            return Err(format!(
                "-D {packet} {name}: {packet} takes {}",
                allowed.join(", ")
            ));
        };
        let value = word()?;
        let property = match id {
            PropertyId::UserProperty => Ok(Property::UserProperty(value, word()?)),
            _ => property(id, value),
        };
        property
            .and_then(|property| {
                given
                    .push(place, property)
                    .map_err(|error| error.to_string())
            })
            .map_err(|why| format!("-D {packet} {name} {value}: {why}"))?;
    }
    Ok(given)
}

/// A broker puts its receivers' subscription identifiers into a PUBLISH; a client may not.
/// [MQTT-3.3.4-6]
fn client_may_send(id: PropertyId, section: PropertySection) -> bool {
    let publish = PropertySection::Packet(PacketType::Publish);
    id.is_allowed_in(section) && !(id == PropertyId::SubscriptionIdentifier && section == publish)
}

/// `Payload Format Indicator` as `payload-format-indicator`.
pub(crate) fn hyphenated(id: PropertyId) -> String {
    id.name().to_lowercase().replace(' ', "-")
}

/// Those that a client can send; the others were sorted out by the packet they stand in.
fn property(id: PropertyId, value: &str) -> Result<Property<'_>, String> {
    let flag = || match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("it is 0 or 1".to_owned()),
    };
    Ok(match id {
        PropertyId::PayloadFormatIndicator => Property::PayloadFormatIndicator(flag()?),
        PropertyId::MessageExpiryInterval => Property::MessageExpiryInterval(number(value)?),
        PropertyId::ContentType => Property::ContentType(value),
        PropertyId::ResponseTopic => Property::ResponseTopic(value),
        PropertyId::CorrelationData => Property::CorrelationData(value.as_bytes()),
        PropertyId::SubscriptionIdentifier => Property::SubscriptionIdentifier(number(value)?),
        PropertyId::SessionExpiryInterval => Property::SessionExpiryInterval(number(value)?),
        PropertyId::AuthenticationMethod => Property::AuthenticationMethod(value),
        PropertyId::AuthenticationData => Property::AuthenticationData(value.as_bytes()),
        PropertyId::RequestProblemInformation => Property::RequestProblemInformation(flag()?),
        PropertyId::WillDelayInterval => Property::WillDelayInterval(number(value)?),
        PropertyId::RequestResponseInformation => Property::RequestResponseInformation(flag()?),
        PropertyId::ReasonString => Property::ReasonString(value),
        PropertyId::ReceiveMaximum => Property::ReceiveMaximum(number(value)?),
        PropertyId::TopicAliasMaximum => Property::TopicAliasMaximum(number(value)?),
        PropertyId::TopicAlias => Property::TopicAlias(number(value)?),
        PropertyId::MaximumPacketSize => Property::MaximumPacketSize(number(value)?),
        _ => return Err("a client does not send it".to_owned()),
    })
}

fn number<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let number = text
        .parse::<u64>()
        .ok()
        .and_then(|number| number.try_into().ok());
    number.ok_or_else(|| "it is a whole number, and not as large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &str) -> Result<Given, String> {
        parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn properties_are_sorted_by_their_packet() {
        let mut given = check(
            "publish content-type text PUBLISH user-property a b connect receive-maximum 5 \
             will will-delay-interval 9",
        )
        .unwrap();
        let publish = given.take(Place::Publish);
        assert_eq!(publish.as_properties().content_type(), Some("text"));
        assert_eq!(
            publish
                .as_properties()
                .user_properties()
                .collect::<Vec<_>>(),
            [("a", "b")]
        );
        assert_eq!(
            given.take(Place::Connect).as_properties().receive_maximum(),
            Some(5)
        );
        assert_eq!(
            given
                .take(Place::Will)
                .as_properties()
                .will_delay_interval(),
            Some(9)
        );
        assert!(!given.any());
    }

    #[test]
    fn what_is_wrong_with_a_property_is_said() {
        for (words, why) in [
            ("publish", "-D takes PACKET PROPERTY VALUE"),
            ("publish user-property a", "-D takes PACKET PROPERTY VALUE"),
            (
                "publisher content-type x",
                "it is one of connect, will, publish",
            ),
            (
                "publish will-delay-interval 3",
                "publish takes payload-format-indicator",
            ),
            (
                "publish nonsense 3",
                "publish takes payload-format-indicator",
            ),
            (
                "publish message-expiry-interval abc",
                "it is a whole number",
            ),
            (
                "connect receive-maximum 70000",
                "it is a whole number, and not as large",
            ),
            ("connect receive-maximum 0", "has a value outside its range"),
            ("publish payload-format-indicator 2", "it is 0 or 1"),
            (
                "puback reason-string x",
                "sends no properties with that packet",
            ),
        ] {
            let error = check(words).map(|_| ()).unwrap_err();
            assert!(error.contains(why), "{words}: {error}");
        }
    }
}
