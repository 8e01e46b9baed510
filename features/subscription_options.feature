Feature: Subscription options
  A subscriber says what it wants: not its own messages, not the old ones, and under which number.

  Background:
    Given a broker
    And phone connects
    And sensor connects

  # [MQTT-3.8.3-3]
  Scenario: Not my own messages
    Given phone subscribes to "chat" without its own messages
    When phone publishes "from me" to "chat"
    And sensor publishes "from you" to "chat"
    Then phone receives "from you" on "chat"

  # [MQTT-3.3.1-13]
  Scenario: The retain flag as it was published
    Given phone subscribes to "value" at QoS 1 keeping the retain flag
    When sensor publishes "kept" to "value" at QoS 1, retained
    And sensor publishes "passing" to "value" at QoS 1
    Then phone receives "kept" on "value", as a retained message
    And phone receives "passing" on "value", as a live message

  # [MQTT-3.3.1-10]
  Scenario: Retained messages only the first time
    Given sensor publishes "kept" to "value" at QoS 1, retained
    When phone subscribes to "value" with retained messages only if new
    Then phone receives "kept" on "value"
    When phone subscribes to "value" with retained messages only if new
    Then phone receives nothing else

  # [MQTT-3.3.1-11]
  Scenario: No retained messages
    Given sensor publishes "kept" to "value" at QoS 1, retained
    When phone subscribes to "value" without retained messages
    Then phone receives nothing

  # [MQTT-3.3.1-9] [MQTT-3.8.4-4]
  Scenario: Subscribing again brings the retained messages again
    Given sensor publishes "kept" to "value" at QoS 1, retained
    When phone subscribes to "value"
    And phone subscribes to "value"
    Then phone receives "kept" on "value", as a retained message
    And phone receives "kept" on "value", as a retained message
    And phone receives nothing else

  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
  Scenario: A message says which subscriptions it is for
    Given phone subscribes to "house/#" under number 7
    And phone subscribes to "house/+/light" under number 300
    When sensor publishes "on" to "house/hall/light"
    Then phone receives "on" on "house/hall/light", under numbers 7 300
