Feature: The broker's own topics
  Dashboards made for Mosquitto find the same names under $SYS.

  Background:
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And auditor connects

  Scenario Outline: A number is there
    Given auditor subscribes to "$SYS/#"
    Then auditor receives a number on "$SYS/broker/<name>"

    Examples:
      | name                       |
      | clients/total              |
      | clients/connected          |
      | clients/disconnected       |
      | clients/maximum            |
      | messages/received          |
      | messages/sent              |
      | publish/messages/received  |
      | publish/messages/sent      |
      | publish/messages/dropped   |
      | bytes/received             |
      | bytes/sent                 |
      | subscriptions/count        |
      | retained messages/count    |
      | load/messages/received/1min |

  Scenario: It says which version it is and how long it runs
    Given auditor subscribes to "$SYS/broker/version"
    Then auditor receives something like "nbroken" on "$SYS/broker/version"
    When auditor subscribes to "$SYS/broker/uptime"
    Then auditor receives something like "seconds" on "$SYS/broker/uptime"

  Scenario: The number of clients is kept current
    Given phone connects
    And tablet connects
    When auditor subscribes to "$SYS/broker/clients/connected"
    Then auditor sooner or later receives "3" on "$SYS/broker/clients/connected"
    When tablet disconnects
    Then auditor sooner or later receives "2" on "$SYS/broker/clients/connected"

  # [MQTT-4.7.2-1]
  Scenario: Who listens to everything does not hear them
    Given auditor subscribes to "#"
    When a second passes
    Then auditor receives nothing

  Scenario: A client cannot speak for the broker
    Given auditor subscribes to "$SYS/broker/version"
    And auditor receives something like "nbroken" on "$SYS/broker/version"
    When liar connects
    And liar tries to publish "a lie" to "$SYS/broker/version"
    Then auditor receives nothing else
