Feature: Takeover
  One client id is one client: the newer connection wins, and the broker tells the older one.

  Background:
    Given a broker

  # [MQTT-3.1.4-3] [MQTT311-3.1.4-2]
  Scenario Outline: A second connection under the same name ends the first
    Given clients speak MQTT <version>
    And phone connects
    When copy connects as phone
    Then phone is cut off because its session was taken over
    And copy is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.4-3]
  Scenario: The new connection goes on where the first was
    Given phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    When copy connects as phone with a persistent session
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    Then copy still has its session
    And copy receives "open" on "door"
