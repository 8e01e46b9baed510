Feature: Flow control
  A client takes as many messages at once, and as large ones, as it said it could.

  Background:
    Given a broker
    And sensor connects

  # [MQTT-3.3.4-9] [MQTT-4.9.0-2]
  Scenario: A slow client is not given more than it can hold
    Given phone connects with room for 1 messages at once
    And phone subscribes to "door" at QoS 1
    When sensor publishes "open" to "door" at QoS 1
    And sensor publishes "shut" to "door" at QoS 1
    And phone sees "open" on "door" and does not acknowledge it
    Then phone receives nothing else
    When phone acknowledges it
    Then phone receives "shut" on "door"

  # [MQTT-3.3.4-10] [MQTT-4.9.0-3]
  Scenario: A full client can still do everything else
    Given phone connects with room for 1 messages at once
    And phone subscribes to "door" at QoS 1
    When sensor publishes "open" to "door" at QoS 1
    And phone sees "open" on "door" and does not acknowledge it
    And sensor publishes "shut" to "door" at QoS 1
    Then phone is still connected
    When phone subscribes to "bell"
    And sensor publishes "ring" to "bell"
    Then phone receives "ring" on "bell"

  # [MQTT-3.1.2-24] [MQTT-3.1.2-25]
  Scenario: A message too large for a client is left out for that client only
    Given phone connects with room for packets of 100 bytes
    And phone subscribes to "photo" at QoS 1
    And tablet connects
    And tablet subscribes to "photo" at QoS 1
    When sensor publishes 200 bytes to "photo" at QoS 1
    And sensor publishes "thumbnail" to "photo" at QoS 1
    Then phone receives "thumbnail" on "photo"
    And tablet receives 200 bytes on "photo"
    And tablet receives "thumbnail" on "photo"
