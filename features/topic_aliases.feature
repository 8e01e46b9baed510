Feature: Topic aliases
  A publisher that repeats a long topic gives it a number once and then uses the number.

  Background:
    Given a broker
    And phone connects
    And phone subscribes to "a/rather/long/topic"
    And sensor connects

  # [MQTT-3.3.2-12]
  Scenario: A number stands for the topic it was given with
    When sensor publishes "1" to "a/rather/long/topic", under alias 5
    And sensor publishes "2" to "", under alias 5
    Then phone receives "1" on "a/rather/long/topic"
    And phone receives "2" on "a/rather/long/topic"

  # [MQTT-3.3.2-8] [MQTT-3.3.2-9]
  Scenario Outline: Impossible numbers end the connection
    When sensor dares to publish "x" to "a/rather/long/topic", under alias <number>
    Then the broker tells sensor that the topic alias is not valid

    Examples:
      | number |
      | 0      |
      | 65535  |

  # [MQTT-3.3.2-7]
  Scenario: Numbers end with the connection
    Given robot connects with a persistent session
    And robot publishes "1" to "a/rather/long/topic" at QoS 1, under alias 5
    When robot loses its connection
    And robot reconnects
    And robot dares to publish "2" to "", under alias 5
    Then the broker tells robot that the protocol was broken
