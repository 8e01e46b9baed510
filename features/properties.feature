Feature: Message properties
  What a 5.0 publisher says about its message reaches every 5.0 subscriber as it was said.

  Background:
    Given a broker
    And phone connects
    And sensor connects

  # [MQTT-3.3.2-4] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
  Scenario: Content type, format and the publisher's own properties arrive in order
    Given phone subscribes to "report"
    When sensor publishes "fine" to "report", as text, with content type "text/plain", with "b=1", with "a=2", with "b=1"
    Then phone receives "fine" on "report", as text, with content type "text/plain", with "b=1" "a=2" "b=1"

  # [MQTT-3.3.2-15] [MQTT-3.3.2-16]
  Scenario: A request is answered
    Given phone subscribes to "phone/answers"
    And sensor subscribes to "sensor/questions"
    When phone publishes "how warm?" to "sensor/questions", asking for a reply on "phone/answers", with correlation "42"
    Then sensor receives "how warm?" on "sensor/questions", asking for a reply on "phone/answers", with correlation "42"
    And phone is answered on the topic it asked for when sensor replies

  Scenario: Properties wait with their message
    Given tablet connects with a persistent session
    And tablet subscribes to "report" at QoS 1
    And tablet disconnects
    And sensor publishes "fine" to "report" at QoS 1, with content type "text/plain", with "a=1"
    And sensor publishes "kept" to "kept" at QoS 1, retained, with content type "text/plain", with "a=1"
    When tablet reconnects
    Then tablet receives "fine" on "report", with content type "text/plain", with "a=1"
    When tablet subscribes to "kept"
    Then tablet receives "kept" on "kept", with content type "text/plain", with "a=1"

  Scenario: An older subscriber gets the message without them
    Given old connects by MQTT 3.1.1
    And old subscribes to "report"
    When sensor publishes "fine" to "report", with content type "text/plain", with "a=1"
    Then old receives "fine" on "report", without properties
