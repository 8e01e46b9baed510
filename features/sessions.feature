Feature: Sessions
  A client that comes back finds what it left: its subscriptions and the messages it missed.

  Background:
    Given a broker

  # [MQTT-3.1.2-5] [MQTT-4.5.0-1] [MQTT311-3.1.2-4] [MQTT311-3.1.2-5]
  Scenario Outline: A subscriber with a persistent session gets what it missed
    Given clients speak MQTT <version>
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    And sensor publishes "shut" to "door" at QoS 2
    When phone reconnects
    Then phone receives "open" on "door" at QoS 1, for the first time
    And phone receives "shut" on "door" at QoS 1, for the first time
    And phone receives nothing else

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.2-6] [MQTT-3.2.2-3] [MQTT311-3.2.2-2] [MQTT311-3.2.2-3]
  Scenario Outline: CONNACK says whether the session was there
    Given clients speak MQTT <version>
    When phone connects with a persistent session
    Then phone starts without a session
    When phone disconnects
    And phone reconnects
    Then phone still has its session

    Examples:
      | version |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.2-4] [MQTT311-3.1.2-6]
  Scenario Outline: A clean start forgets the session
    Given clients speak MQTT <version>
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    When phone reconnects with a clean start
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    Then phone starts without a session
    And phone receives nothing

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-4.1.0-2]
  Scenario: A session kept for a second is gone after it
    Given phone connects with a session kept for 1 second
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And a second passes
    When phone reconnects
    Then phone starts without a session

  # [MQTT-3.1.2-23]
  Scenario: A session outlives a connection that breaks
    Given phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone loses its connection
    When phone reconnects
    Then phone still has its session

  # [MQTT-3.3.1-1] [MQTT-4.4.0-1] [MQTT311-3.3.1-1] [MQTT311-4.4.0-1]
  Scenario Outline: A message that was not acknowledged is sent again
    Given clients speak MQTT <version>
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    When phone sees "open" on "door" and does not acknowledge it
    And phone loses its connection
    And sensor publishes "shut" to "door" at QoS 1
    And phone reconnects
    Then phone receives "open" on "door", sent again
    And phone receives "shut" on "door", for the first time

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A hundred messages wait in order
    Given phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And sensor connects
    When sensor publishes 100 messages to "log" at QoS 1
    And phone reconnects
    Then phone receives the 100 messages on "log" in order
    And phone receives nothing else
