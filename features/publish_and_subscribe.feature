Feature: Publishing and subscribing
  A message reaches each subscriber of its topic once, and no other client.

  Background:
    Given a broker

  # [MQTT-4.5.0-1] [MQTT-3.3.2-3] [MQTT311-4.5.0-1]
  Scenario Outline: Everybody who subscribed receives the message
    Given clients speak MQTT <version>
    And phone connects
    And phone subscribes to "news"
    And radio connects
    And radio subscribes to "news"
    And deaf connects
    And deaf subscribes to "weather"
    When editor connects
    And editor publishes "it is morning" to "news"
    Then phone receives "it is morning" on "news"
    And radio receives "it is morning" on "news"
    And deaf receives nothing

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.10.4-2] [MQTT311-3.10.4-2]
  Scenario: A client that unsubscribed hears no more
    Given phone connects
    And phone subscribes to "news"
    And phone unsubscribes from "news"
    When editor connects
    And editor publishes "late" to "news"
    Then phone receives nothing

  # [MQTT-3.3.4-2] [MQTT311-3.3.5-1]
  Scenario: Overlapping subscriptions give one copy at the highest quality
    Given phone connects
    And phone subscribes to "house/#" at QoS 0
    And phone subscribes to "house/+/light" at QoS 2
    When switch connects
    And switch publishes "on" to "house/hall/light" at QoS 2
    Then phone receives "on" on "house/hall/light" at QoS 2
    And phone receives nothing else

  Scenario: A client hears itself
    Given parrot connects
    And parrot subscribes to "echo"
    When parrot publishes "hello" to "echo"
    Then parrot receives "hello" on "echo"

  Scenario Outline: Small and large messages arrive whole
    Given archive connects
    And archive subscribes to "files" at QoS 1
    And camera connects
    When camera publishes <length> bytes to "files" at QoS 1
    Then archive receives <length> bytes on "files"

    Examples:
      | length  |
      | 0       |
      | 127     |
      | 16384   |
      | 1000000 |

  # [MQTT-3.4.2-1]
  Scenario: A publisher learns that its topic has no subscriber
    Given editor connects
    Then editor learns that no client subscribes to the topic when it publishes "hello?" to "void" at QoS 1
    When phone connects
    And phone subscribes to "void"
    Then editor learns that all is well when it publishes "hello?" to "void" at QoS 1

  # [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT311-4.6.0-5] [MQTT311-4.6.0-6]
  Scenario Outline: Messages arrive in the order they were published
    Given log connects
    And log subscribes to "events" at QoS <qos>
    And machine connects
    When machine publishes 200 messages to "events" at QoS <qos>
    Then log receives the 200 messages on "events" in order
    And log receives nothing else

    Examples:
      | qos |
      | 0   |
      | 1   |
      | 2   |
