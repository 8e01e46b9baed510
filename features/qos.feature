Feature: Quality of service
  At most once, at least once, exactly once: each message is delivered as promised.

  Background:
    Given a broker

  # [MQTT-3.8.4-8] [MQTT-3.8.4-7]
  Scenario Outline: The weaker promise of publisher and subscriber holds
    Given clients speak MQTT <version>
    And phone connects
    And phone subscribes to "door" at QoS <asked>
    When sensor connects
    And sensor publishes "open" to "door" at QoS <published>
    Then phone receives "open" on "door" at QoS <delivered>

    Examples:
      | version | published | asked | delivered |
      | 3.1     | 2         | 1     | 1         |
      | 3.1.1   | 1         | 2     | 1         |
      | 3.1.1   | 0         | 2     | 0         |
      | 5.0     | 2         | 2     | 2         |
      | 5.0     | 2         | 0     | 0         |
      | 5.0     | 1         | 1     | 1         |

  # [MQTT-4.3.3-10] [MQTT-4.3.3-12] [MQTT311-4.3.3-1]
  Scenario Outline: A message repeated before it was released is delivered exactly once
    Given clients speak MQTT <version>
    And phone connects
    And phone subscribes to "account" at QoS 2
    And bank connects
    When bank sends half of the exact-once exchange of "+100" to "account" 3 times
    And bank completes the exchange
    Then phone receives "+100" on "account" at QoS 2
    And phone receives nothing else

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-4.3.3-10]
  Scenario: A message repeated after a broken connection is delivered exactly once
    Given phone connects
    And phone subscribes to "account" at QoS 2
    And bank connects with a persistent session
    When bank sends half of the exact-once exchange of "+100" to "account" 1 times
    And bank loses its connection
    And bank reconnects
    And bank sends half of the exact-once exchange of "+100" to "account" 1 times
    And bank completes the exchange
    Then phone receives "+100" on "account" at QoS 2
    And phone receives nothing else

  Scenario: Messages at most once do not wait for anybody
    Given phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    When sensor publishes "missed" to "door" at QoS 0
    And sensor publishes "kept" to "door" at QoS 1
    And phone reconnects
    Then phone receives "kept" on "door"
    And phone receives nothing else
