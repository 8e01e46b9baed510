Feature: Retained messages
  Who subscribes later learns the last value at once.

  Background:
    Given a broker
    And sensor connects
    And phone connects

  # [MQTT-3.3.1-5] [MQTT-3.3.1-9] [MQTT311-3.3.1-6] [MQTT311-3.3.1-8]
  Scenario: A new subscriber gets the latest value
    Given sensor publishes "20" to "temperature" at QoS 1, retained
    And sensor publishes "21" to "temperature" at QoS 1, retained
    When phone subscribes to "temperature" at QoS 1
    Then phone receives "21" on "temperature" at QoS 1, as a retained message
    And phone receives nothing else

  # [MQTT-3.3.1-12] [MQTT311-3.3.1-9]
  Scenario: Who is subscribed already gets it as any other message
    Given phone subscribes to "temperature" at QoS 1
    When sensor publishes "20" to "temperature" at QoS 1, retained
    Then phone receives "20" on "temperature", as a live message

  # [MQTT-3.3.1-6] [MQTT-3.3.1-7] [MQTT311-3.3.1-10] [MQTT311-3.3.1-11]
  Scenario: An empty value clears the retained one and is passed on
    Given sensor publishes "20" to "temperature" at QoS 1, retained
    And phone subscribes to "temperature" at QoS 1
    And phone receives "20" on "temperature"
    When sensor publishes "" to "temperature" at QoS 1, retained
    Then phone receives "" on "temperature", as a live message
    When tablet connects
    And tablet subscribes to "temperature"
    Then tablet receives nothing

  # [MQTT-3.3.1-8] [MQTT311-3.3.1-12]
  Scenario: A value that is not retained leaves the retained one
    Given sensor publishes "20" to "temperature" at QoS 1, retained
    And sensor publishes "99" to "temperature" at QoS 1
    When phone subscribes to "temperature"
    Then phone receives "20" on "temperature"
    And phone receives nothing else

  # [MQTT311-3.1.2-7]
  Scenario: Retained values stay when their publisher goes
    Given sensor publishes "20" to "temperature" at QoS 1, retained
    And sensor disconnects
    When phone subscribes to "#"
    Then phone receives "20" on "temperature", as a retained message

  Scenario: A wildcard finds all retained values
    Given sensor publishes "1" to "house/a/x" at QoS 1, retained
    And sensor publishes "2" to "house/b" at QoS 1, retained
    And sensor publishes "3" to "house/c/x" at QoS 1, retained
    And sensor publishes "4" to "garden/a/x" at QoS 1, retained
    When phone subscribes to "house/+/x" at QoS 1
    Then phone receives in any order "1" and "3"
    And phone receives nothing else
