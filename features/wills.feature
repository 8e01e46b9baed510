Feature: Last wills
  When a client dies, the broker speaks for it; when it leaves in peace, the broker does not.

  Background:
    Given a broker
    And nurse connects
    And nurse subscribes to "status/#" at QoS 1

  # [MQTT-3.1.2-8] [MQTT311-3.1.2-8]
  Scenario Outline: The will is published when the connection breaks
    Given patient connects by MQTT <version> with the will "gone" on "status/patient"
    When patient loses its connection
    Then nurse receives "gone" on "status/patient" at QoS 1, as a live message

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.14.4-3] [MQTT311-3.14.4-3]
  Scenario Outline: The will is forgotten when the client leaves in peace
    Given patient connects by MQTT <version> with the will "gone" on "status/patient"
    When patient disconnects
    Then nurse receives nothing

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.2-22] [MQTT311-3.1.2-24]
  Scenario: The will is published when a client falls silent
    Given patient connects with a keep alive of 1 second, the will "gone" on "status/patient"
    When patient says nothing any more
    Then nurse receives "gone" on "status/patient"

  # [MQTT-3.1.2-8]
  Scenario: A client can leave and ask for its will
    Given patient connects with the will "gone" on "status/patient"
    When patient disconnects and asks for its will
    Then nurse receives "gone" on "status/patient"

  # [MQTT-3.1.3-9]
  Scenario: A delayed will is not published when the client comes back in time
    Given patient connects with a persistent session, the will "gone" on "status/patient" delayed by 1 second
    When patient loses its connection
    And patient reconnects with a persistent session
    And a second passes
    Then nurse receives nothing

  # [MQTT-3.1.2-8]
  Scenario: A delayed will is published after its delay
    Given patient connects with a persistent session, the will "gone" on "status/patient" delayed by 1 second
    When patient loses its connection
    Then nurse receives "gone" on "status/patient"

  # [MQTT-3.1.2-15] [MQTT311-3.1.2-17]
  Scenario: A retained will is still known later
    Given patient connects with the retained will "gone" on "status/patient"
    When patient loses its connection
    Then nurse receives "gone" on "status/patient"
    When doctor connects
    And doctor subscribes to "status/patient"
    Then doctor receives "gone" on "status/patient", as a retained message

  # [MQTT-3.1.4-3]
  Scenario: The will is published when another client takes the place
    Given patient connects with the will "gone" on "status/patient"
    When twin connects as patient
    Then nurse receives "gone" on "status/patient"
