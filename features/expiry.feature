Feature: Expiry of messages
  A message that is no longer true is not delivered.

  Background:
    Given a broker
    And sensor connects

  # [MQTT-3.3.2-5]
  Scenario: A message that waited too long is not delivered
    Given phone connects with a persistent session
    And phone subscribes to "offer" at QoS 1
    And phone disconnects
    And sensor publishes "today only" to "offer" at QoS 1, expiring after 1 second
    And sensor publishes "this month" to "offer" at QoS 1, expiring after 1000 seconds
    When a second passes
    And phone reconnects
    Then phone receives "this month" on "offer"
    And phone receives nothing else

  # [MQTT-3.3.2-5]
  Scenario: A retained message that is too old is not given to new subscribers
    Given sensor publishes "today only" to "offer" at QoS 1, retained, expiring after 1 second
    When a second passes
    And phone connects
    And phone subscribes to "offer"
    Then phone receives nothing

  # [MQTT-3.3.2-6]
  Scenario: The time waited is taken off
    Given phone connects with a persistent session
    And phone subscribes to "offer" at QoS 1
    And phone disconnects
    And sensor publishes "this month" to "offer" at QoS 1, expiring after 1000 seconds
    When a second passes
    And phone reconnects
    Then phone receives "this month" on "offer", expiring within 999 seconds
