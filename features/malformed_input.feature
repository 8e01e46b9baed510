Feature: Malformed input
  Whatever arrives on a socket, the broker ends that connection, says why if it can, and carries on.

  Background:
    Given a broker
    And bystander connects

  # [MQTT-4.13.1-1] [MQTT-4.13.2-1]
  Scenario Outline: Nonsense ends the connection and no other client notices
    Given fuzzer connects
    When fuzzer sends `<bytes>`
    Then the broker tells fuzzer that <why>
    And bystander is still connected

    Examples: what is wrong
      | bytes                         | why                    |
      | 00 00                         | a packet was malformed |
      | 36 07 00 01 61 00 01 00 78    | a packet was malformed |
      | 30 ff ff ff ff 7f             | a packet was malformed |
      | 82 06 00 01 00 00 05 61       | a packet was malformed |
      | 20 03 00 00 00                | the protocol was broken |
      | d0 00                         | the protocol was broken |

  # [MQTT-3.1.0-1] [MQTT311-3.1.0-1]
  Scenario Outline: Somebody who speaks no MQTT is shown the door
    When stranger opens a connection and sends `<bytes>`
    Then stranger is cut off
    And bystander is still connected

    Examples: a web browser, a TLS client, a client that skips the greeting
      | bytes                                                 |
      | 47 45 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d 0a 0d 0a |
      | 16 03 01 00 05 01 00 00 01 00                         |
      | c0 00                                                 |

  # [MQTT-3.1.0-2] [MQTT311-3.1.0-2]
  Scenario Outline: Greeting twice ends the connection
    Given clients speak MQTT <version>
    And eager connects
    When eager sends `<bytes>`
    Then eager is cut off because the protocol was broken

    Examples:
      | version | bytes                                            |
      | 3.1     | 10 0f 00 06 4d 51 49 73 64 70 03 02 00 00 00 01 63 |
      | 3.1.1   | 10 0d 00 04 4d 51 54 54 04 02 00 00 00 01 63     |
      | 5.0     | 10 0e 00 04 4d 51 54 54 05 02 00 00 00 00 01 63  |
