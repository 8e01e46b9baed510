Feature: Keep alive
  A client that promised to be heard and is not heard is taken for dead.

  Background:
    Given a broker

  # [MQTT-3.1.2-22] [MQTT311-3.1.2-24]
  Scenario Outline: A silent client is cut off
    Given clients speak MQTT <version>
    And phone connects with a keep alive of 1 second
    When phone says nothing any more
    Then phone is cut off because its keep alive ran out

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A client that promised nothing may be silent
    Given phone connects
    When a second passes
    Then phone is still connected
