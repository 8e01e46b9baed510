//! Where each property may stand, as a table of its own: the standard's, drawn by hand, against the
//! crate's.

#![allow(clippy::unwrap_used, reason = "a failed test is the point")]

use unbroken_mqtt_proto::{
    DecodeError, PacketType, Properties, Property, PropertyBuf, PropertyId, PropertySection, QoS,
};

/// Columns: will, CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK,
/// UNSUBSCRIBE, UNSUBACK, DISCONNECT, AUTH. `1`: once at most; `n`: any number; `.`: not at all.
const PLACES: &str = "
    payload format indicator           1..1..........
    message expiry interval            1..1..........
    content type                       1..1..........
    response topic                     1..1..........
    correlation data                   1..1..........
    subscription identifier            ...n....1.....
    session expiry interval            .11.........1.
    assigned client identifier         ..1...........
    server keep alive                  ..1...........
    authentication method              .11..........1
    authentication data                .11..........1
    request problem information        .1............
    will delay interval                1.............
    request response information       .1............
    response information               ..1...........
    server reference                   ..1.........1.
    reason string                      ..1.1111.1.111
    receive maximum                    .11...........
    topic alias maximum                .11...........
    topic alias                        ...1..........
    maximum qos                        ..1...........
    retain available                   ..1...........
    user property                      nnnnnnnnnnnnnn
    maximum packet size                .11...........
    wildcard subscription available    ..1...........
    subscription identifier available  ..1...........
    shared subscription available      ..1...........
";

const COLUMNS: [PropertySection; 14] = [
    PropertySection::Will,
    PropertySection::Packet(PacketType::Connect),
    PropertySection::Packet(PacketType::ConnAck),
    PropertySection::Packet(PacketType::Publish),
    PropertySection::Packet(PacketType::PubAck),
    PropertySection::Packet(PacketType::PubRec),
    PropertySection::Packet(PacketType::PubRel),
    PropertySection::Packet(PacketType::PubComp),
    PropertySection::Packet(PacketType::Subscribe),
    PropertySection::Packet(PacketType::SubAck),
    PropertySection::Packet(PacketType::Unsubscribe),
    PropertySection::Packet(PacketType::UnsubAck),
    PropertySection::Packet(PacketType::Disconnect),
    PropertySection::Packet(PacketType::Auth),
];

fn example(id: PropertyId) -> Property<'static> {
    use PropertyId as Id;
    match id {
        Id::PayloadFormatIndicator => Property::PayloadFormatIndicator(true),
        Id::MessageExpiryInterval => Property::MessageExpiryInterval(60),
        Id::ContentType => Property::ContentType("text/plain"),
        Id::ResponseTopic => Property::ResponseTopic("answers"),
        Id::CorrelationData => Property::CorrelationData(&[0, 255]),
        Id::SubscriptionIdentifier => Property::SubscriptionIdentifier(300),
        Id::SessionExpiryInterval => Property::SessionExpiryInterval(3600),
        Id::AssignedClientIdentifier => Property::AssignedClientIdentifier("id"),
        Id::ServerKeepAlive => Property::ServerKeepAlive(30),
        Id::AuthenticationMethod => Property::AuthenticationMethod("SCRAM"),
        Id::AuthenticationData => Property::AuthenticationData(b"secret"),
        Id::RequestProblemInformation => Property::RequestProblemInformation(false),
        Id::WillDelayInterval => Property::WillDelayInterval(5),
        Id::RequestResponseInformation => Property::RequestResponseInformation(true),
        Id::ResponseInformation => Property::ResponseInformation("r/"),
        Id::ServerReference => Property::ServerReference("there"),
        Id::ReasonString => Property::ReasonString("why"),
        Id::ReceiveMaximum => Property::ReceiveMaximum(20),
        Id::TopicAliasMaximum => Property::TopicAliasMaximum(10),
        Id::TopicAlias => Property::TopicAlias(3),
        Id::MaximumQoS => Property::MaximumQoS(QoS::AtLeastOnce),
        Id::RetainAvailable => Property::RetainAvailable(false),
        Id::UserProperty => Property::UserProperty("name", "value"),
        Id::MaximumPacketSize => Property::MaximumPacketSize(1024),
        Id::WildcardSubscriptionAvailable => Property::WildcardSubscriptionAvailable(false),
        Id::SubscriptionIdentifierAvailable => Property::SubscriptionIdentifierAvailable(false),
        Id::SharedSubscriptionAvailable => Property::SharedSubscriptionAvailable(false),
    }
}

fn buffer(properties: &[Property<'_>]) -> PropertyBuf {
    let mut buffer = PropertyBuf::new();
    for property in properties {
        buffer.push(*property).unwrap();
    }
    buffer
}

#[test]
fn each_property_stands_where_the_standard_lets_it_and_as_often() {
    let mut rows = 0;
    for row in PLACES.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (name, places) = row.rsplit_once(' ').unwrap();
        let &property = PropertyId::ALL
            .iter()
            .find(|id| id.name().eq_ignore_ascii_case(name.trim()))
            .unwrap_or_else(|| panic!("no property is called {name}"));
        let (one, two) = (
            buffer(&[example(property)]),
            buffer(&[example(property); 2]),
        );
        let (one, two) = (
            one.as_properties().as_bytes(),
            two.as_properties().as_bytes(),
        );
        assert_eq!(places.len(), COLUMNS.len(), "{name}");
        for (place, section) in places.chars().zip(COLUMNS) {
            let misplaced = DecodeError::MisplacedProperty { section, property };
            let duplicate = DecodeError::DuplicateProperty { section, property };
            let (expect_one, expect_two) = match place {
                '.' => (Some(misplaced), Some(misplaced)),
                '1' => (None, Some(duplicate)),
                _ => (None, None),
            };
            assert_eq!(
                Properties::parse(one, section).err(),
                expect_one,
                "{name} in {section}"
            );
            assert_eq!(
                Properties::parse(two, section).err(),
                expect_two,
                "{name} in {section}"
            );
        }
        rows += 1;
    }
    assert_eq!(rows, PropertyId::ALL.len());
}

#[test]
fn properties_come_back_as_they_were_pushed_and_in_their_order() {
    let pushed: Vec<Property<'_>> = PropertyId::ALL
        .iter()
        .rev()
        .map(|&id| example(id))
        .collect();
    let buffer = buffer(&pushed);
    let read: Vec<Property<'_>> = buffer.as_properties().iter().collect();
    assert_eq!(read, pushed);
}

#[test]
fn getters_find_what_is_there() {
    let all: Vec<Property<'_>> = PropertyId::ALL.iter().map(|&id| example(id)).collect();
    let buffer = buffer(&all);
    let properties = buffer.as_properties();
    assert_eq!(properties.payload_format_indicator(), Some(true));
    assert_eq!(properties.message_expiry_interval(), Some(60));
    assert_eq!(properties.content_type(), Some("text/plain"));
    assert_eq!(properties.response_topic(), Some("answers"));
    assert_eq!(properties.correlation_data(), Some(&[0, 255][..]));
    assert_eq!(
        properties.subscription_identifiers().collect::<Vec<_>>(),
        [300]
    );
    assert_eq!(properties.session_expiry_interval(), Some(3600));
    assert_eq!(properties.assigned_client_identifier(), Some("id"));
    assert_eq!(properties.server_keep_alive(), Some(30));
    assert_eq!(properties.authentication_method(), Some("SCRAM"));
    assert_eq!(properties.authentication_data(), Some(&b"secret"[..]));
    assert!(!properties.request_problem_information());
    assert_eq!(properties.will_delay_interval(), Some(5));
    assert!(properties.request_response_information());
    assert_eq!(properties.response_information(), Some("r/"));
    assert_eq!(properties.server_reference(), Some("there"));
    assert_eq!(properties.reason_string(), Some("why"));
    assert_eq!(properties.receive_maximum(), Some(20));
    assert_eq!(properties.topic_alias_maximum(), Some(10));
    assert_eq!(properties.topic_alias(), Some(3));
    assert_eq!(properties.maximum_qos(), QoS::AtLeastOnce);
    assert!(!properties.retain_available());
    assert_eq!(
        properties.user_properties().collect::<Vec<_>>(),
        [("name", "value")]
    );
    assert_eq!(properties.maximum_packet_size(), Some(1024));
    assert!(!properties.wildcard_subscription_available());
    assert!(!properties.subscription_identifier_available());
    assert!(!properties.shared_subscription_available());
}

#[test]
fn absent_properties_have_the_standards_defaults() {
    let none = Properties::EMPTY;
    assert!(none.request_problem_information());
    assert!(!none.request_response_information());
    assert_eq!(none.maximum_qos(), QoS::ExactlyOnce);
    assert!(none.retain_available());
    assert!(none.wildcard_subscription_available());
    assert!(none.subscription_identifier_available());
    assert!(none.shared_subscription_available());
    assert_eq!(none.receive_maximum(), None);
    assert_eq!(none.user_properties().count(), 0);
}

#[test]
fn a_value_that_cannot_be_sent_is_refused_and_leaves_the_rest() {
    let long = "x".repeat(65_536);
    let mut buffer = buffer(&[example(PropertyId::TopicAlias)]);
    let before = buffer.clone();
    for refused in [
        Property::ReceiveMaximum(0),
        Property::MaximumPacketSize(0),
        Property::SubscriptionIdentifier(0),
        Property::SubscriptionIdentifier(268_435_456),
        Property::MaximumQoS(QoS::ExactlyOnce),
        Property::ReasonString(&long),
        Property::UserProperty("name", &long),
        Property::UserProperty("na\0me", "value"),
        Property::CorrelationData(long.as_bytes()),
    ] {
        assert!(buffer.push(refused).is_err(), "{:?}", refused.id());
        assert_eq!(buffer, before);
    }
}

#[test]
fn authentication_data_stays_out_of_debug_output() {
    let shown = format!(
        "{:?}",
        buffer(&[example(PropertyId::AuthenticationData)]).as_properties()
    );
    assert_eq!(shown, "[AuthenticationData(6 bytes)]");
}
