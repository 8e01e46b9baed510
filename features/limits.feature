Feature: Limits
  What a client may take is limited; at a limit the broker tells the client, and its log names client and limit.

  Scenario: The broker holds a packet larger than it allows against the sender only
    Given a broker with the configuration:
      """
      [limits]
      packet_bytes_max = "1KiB"
      """
    And phone connects
    And phone subscribes to "photo"
    And camera connects
    When camera dares to publish 2000 bytes to "photo"
    Then the broker tells camera that a packet was too large
    And phone is still connected

  # [MQTT311-4.8.0-2] [MQTT-3.1.4-2]
  Scenario Outline: A broker with as many connections as it may have refuses the next client
    Given a broker with the configuration:
      """
      [limits]
      connections_max = 1
      """
    And clients speak MQTT <version>
    And phone connects
    When tablet tries to connect
    Then tablet is refused because a quota is exceeded
    And phone is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.4-3] [MQTT311-3.1.4-2]
  Scenario Outline: In a full house a client takes the place of its own connection
    Given a broker with the configuration:
      """
      [limits]
      connections_max = 1
      """
    And clients speak MQTT <version>
    And phone connects
    When copy connects as phone
    Then phone is cut off because its session was taken over
    And copy is still connected
    When tablet tries to connect
    Then tablet is refused because a quota is exceeded

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario Outline: A full listener says so, and lets a client take the place of its own connection
    Given a broker with listeners of its own:
      """
      [[listeners]]
      port = 0
      max_connections = 1
      """
    And clients speak MQTT <version>
    And phone connects
    When tablet tries to connect
    Then tablet is refused because a quota is exceeded
    When copy connects as phone
    Then phone is cut off because its session was taken over
    And copy is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A client may subscribe only so often
    Given a broker with the configuration:
      """
      [limits]
      subscriptions_per_session_max = 2
      """
    And phone connects
    And phone subscribes to "a"
    And phone subscribes to "b"
    Then phone may not subscribe to "c" because a quota is exceeded
    When phone unsubscribes from "a"
    And phone subscribes to "c"
    And phone publishes "x" to "c"
    Then phone receives "x" on "c"

  Scenario: The filters of a client may have only so many levels
    Given a broker with the configuration:
      """
      [limits]
      filter_levels_per_session_max = 4
      """
    And phone connects
    And phone subscribes to "a/b/c"
    Then phone may not subscribe to "d/e" because a quota is exceeded
    When phone subscribes to "d"
    And phone publishes "x" to "d"
    Then phone receives "x" on "d"

  Scenario: Deep filters with wildcards are limited over all clients
    Given a broker with the configuration:
      """
      [limits]
      deep_levels_max = 1
      """
    And phone connects
    And tablet connects
    And phone subscribes to "+/2/3/4/5/6/7/8/9/10/11"
    Then tablet may not subscribe to "+/2/3/4/5/6/7/8/9/10/11" because a quota is exceeded
    When tablet subscribes to "1/2/3/4/5/6/7/8/9/10/11"
    And phone publishes "x" to "1/2/3/4/5/6/7/8/9/10/11"
    Then tablet receives "x" on "1/2/3/4/5/6/7/8/9/10/11"
    And phone receives "x" on "1/2/3/4/5/6/7/8/9/10/11"

  Scenario: A full queue drops the newest message and says so
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      [limits]
      queue_messages_max = 2
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    When machine publishes 4 messages to "log" at QoS 1
    Then the broker's log mentions "queue"
    When phone reconnects
    Then phone receives the 2 messages on "log" in order
    And phone receives nothing else
    When auditor connects
    And auditor subscribes to "$SYS/broker/publish/messages/dropped"
    Then auditor sooner or later receives "2" on "$SYS/broker/publish/messages/dropped"

  Scenario: A long topic is refused
    Given a broker with the configuration:
      """
      [limits]
      topic_bytes_max = 20
      """
    And phone connects
    Then phone may not subscribe to "a/topic/of/more/than/twenty/bytes" because the topic filter is not valid
    When phone dares to publish "x" to "a/topic/of/more/than/twenty/bytes"
    Then the broker tells phone that the topic name is not valid

  Scenario: A deep topic is refused
    Given a broker with the configuration:
      """
      [limits]
      topic_levels_max = 3
      """
    And phone connects
    And phone subscribes to "a/b/c"
    Then phone may not subscribe to "a/b/c/d" because the topic filter is not valid
    When phone dares to publish "x" to "a/b/c/d"
    Then the broker tells phone that the topic name is not valid

  # [MQTT-3.3.4-7]
  Scenario: A publisher that does not wait for acknowledgements is stopped
    Given a broker with the configuration:
      """
      [limits]
      receive_maximum = 2
      """
    And machine connects
    When machine sends `34 06 00 01 61 00 01 00 34 06 00 01 61 00 02 00 34 06 00 01 61 00 03 00`
    Then the broker tells machine that it sent too many messages at once after 2 acknowledgements

  Scenario: A retained message beyond the limit is refused, and not delivered either
    Given a broker with the configuration:
      """
      [limits]
      retained_messages_max = 1
      [broker]
      sys_interval = "off"
      """
    And machine connects
    And phone connects
    And phone subscribes to "b"
    When machine publishes "first" to "a" at QoS 1, retained
    And machine tries to publish "second" to "b", retained
    Then phone receives nothing else
    When tablet connects
    And tablet subscribes to "#" at QoS 1
    Then tablet receives "first" on "a", as a retained message
    And tablet receives nothing else

  Scenario: A connection that says nothing is closed after a while
    Given a broker with the configuration:
      """
      [limits]
      connect_timeout = "1s"
      """
    When stranger opens a connection and sends `10`
    Then stranger is cut off

  Scenario: A topic alias above the broker's maximum ends the connection
    Given a broker with the configuration:
      """
      [limits]
      topic_aliases_in_max = 3
      """
    And phone connects
    And machine connects
    And phone subscribes to "a"
    When machine publishes "x" to "a", under alias 3
    Then phone receives "x" on "a"
    When machine dares to publish "x" to "a", under alias 4
    Then the broker tells machine that the topic alias is not valid
