Feature: Shared subscriptions
  Several workers share one stream of messages: each message goes to one of them.

  Background:
    Given a broker
    And boss connects

  # [MQTT-4.8.2-3]
  Scenario Outline: Workers share the work
    Given clients speak MQTT <version>
    And anna connects
    And anna subscribes to "$share/team/jobs" at QoS 1
    And bert connects
    And bert subscribes to "$share/team/jobs" at QoS 1
    And cleo connects
    And cleo subscribes to "$share/team/jobs" at QoS 1
    When boss publishes 30 messages to "jobs" at QoS 1
    Then anna, bert and cleo share the 30 messages

    Examples:
      | version |
      | 3.1.1   |
      | 5.0     |

  Scenario: Two teams each get everything
    Given anna connects
    And anna subscribes to "$share/red/jobs" at QoS 1
    And bert connects
    And bert subscribes to "$share/blue/jobs" at QoS 1
    When boss publishes 10 messages to "jobs" at QoS 1
    Then anna receives the 10 messages on "jobs" in order
    And bert receives the 10 messages on "jobs" in order

  Scenario: Who leaves the team hands the work over
    Given anna connects
    And anna subscribes to "$share/team/jobs" at QoS 1
    And boss publishes "mow the lawn" to "jobs" at QoS 1
    And anna sees "mow the lawn" on "jobs" and does not acknowledge it
    And bert connects
    And bert subscribes to "$share/team/jobs" at QoS 1
    When anna loses its connection
    Then bert receives "mow the lawn" on "jobs"

  Scenario: A worker that is away gets nothing while another is there
    Given anna connects with a persistent session
    And anna subscribes to "$share/team/jobs" at QoS 1
    And anna disconnects
    And bert connects
    And bert subscribes to "$share/team/jobs" at QoS 1
    And a second passes
    When boss publishes 10 messages to "jobs" at QoS 1
    Then bert receives the 10 messages on "jobs" in order

  Scenario: Joining a team brings no retained messages
    Given boss publishes "old job" to "jobs" at QoS 1, retained
    When anna connects
    And anna subscribes to "$share/team/jobs" at QoS 1
    Then anna receives nothing

  # [MQTT-4.8.2-1] [MQTT-4.8.2-2]
  Scenario Outline: A team needs a name and something to do
    Given clients speak MQTT <version>
    And anna connects
    When anna dares to subscribe to "<filter>"
    Then anna is cut off because the protocol was broken

    Examples:
      | version | filter       |
      | 5.0     | $share/team  |
      | 5.0     | $share/team/ |
      | 5.0     | $share//jobs |
      | 5.0     | $share/+/x   |
      | 5.0     | $share/#/x   |
      | 3.1.1   | $share/+/x   |
      | 3.1     | $share/team  |

  # [MQTT-3.8.3-4]
  Scenario: No member of a group can ask for No Local
    Given bert connects
    When bert dares to subscribe to "$share/team/jobs" without its own messages
    Then the broker tells bert that the protocol was broken
