Feature: Topics
  Topics form levels; subscriptions match them with wildcards and nothing else.

  Background:
    Given a broker
    And reader connects
    And writer connects

  # [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-4]
  Scenario Outline: A filter matches
    Given reader subscribes to "<filter>"
    When writer publishes "x" to "<topic>"
    Then reader receives "x" on "<topic>"

    Examples:
      | filter          | topic              |
      | sport/#         | sport              |
      | sport/#         | sport/tennis/final |
      | sport/+/score   | sport/tennis/score |
      | +/+             | /finance           |
      | /+              | /finance           |
      | #               | anything/at all    |
      | sport/+         | sport/             |
      | a//b            | a//b               |
      | Straße/Ä        | Straße/Ä           |
      | $other/#        | $other/thing       |

  # [MQTT-4.7.2-1] [MQTT311-4.7.2-1]
  Scenario Outline: A filter does not match
    Given reader subscribes to "<filter>"
    When writer publishes "x" to "<topic>"
    Then reader receives nothing

    Examples:
      | filter        | topic        |
      | sport/+       | sport        |
      | +             | /finance     |
      | sport/tennis  | sport/Tennis |
      | a/b           | a//b         |
      | #             | $other/thing |
      | +/thing       | $other/thing |
      | sport         | sport/       |

  # [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.13.1-1]
  Scenario Outline: A filter that makes no sense ends the connection
    When reader dares to subscribe to "<filter>"
    Then the broker tells reader that the protocol was broken

    Examples:
      | filter   |
      |          |
      | sport+   |
      | tennis#  |
      | a/#/b    |
      | a/b+/c   |

  # [MQTT-3.3.2-2]
  Scenario: No client may publish to a wildcard
    When writer dares to publish "x" to "a/#"
    Then the broker tells writer that the topic name is not valid
