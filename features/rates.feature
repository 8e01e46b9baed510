Feature: Rates
  A client that sends more than it may is slowed, and loses nothing. One that does not stop is disconnected with
  the reason, and one connection too many is refused.

  Scenario Outline: A publisher over its rate is slowed, and nothing of it is lost
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [[rates]]
      messages_per_second = 25
      """
    And clients speak MQTT <version>
    And monitor connects
    And monitor subscribes to "plant" at QoS 1
    And auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/rates/pauses"
    And sensor connects
    When sensor publishes messages 1 to 60 to "plant" at QoS <qos>
    Then monitor receives messages 1 to 60 on "plant" in order
    And auditor sooner or later receives a number above 0 on "$SYS/broker/unbroken/rates/pauses"
    And sensor is still connected

    Examples:
      | version | qos |
      | 3.1     | 1   |
      | 3.1.1   | 2   |
      | 5.0     | 1   |
      | 5.0     | 2   |

  Scenario: A publisher of more bytes than it may send is slowed, and nothing of it is lost
    Given a broker with the configuration:
      """
      [[rates]]
      bytes_per_second = "10KiB"
      """
    And monitor connects
    And monitor subscribes to "photos" at QoS 1
    And camera connects
    When camera publishes 12000 bytes to "photos" at QoS 1
    And camera publishes 3000 bytes to "photos" at QoS 1
    Then monitor receives 12000 bytes on "photos"
    And monitor receives 3000 bytes on "photos"
    And camera is still connected

  # [MQTT-4.13.2-1]
  Scenario Outline: A publisher that stays over its rate is disconnected with the reason
    Given a broker with the configuration:
      """
      [limits]
      rate_patience = "1s"

      [[rates]]
      name = "sensors"
      messages_per_second = 1
      """
    And clients speak MQTT <version>
    And monitor connects
    And monitor subscribes to "plant"
    And sensor connects
    When sensor publishes 9 messages to "plant"
    Then sensor is cut off because its message rate was too high
    And monitor receives messages 1 to 2 on "plant" in order
    And the broker's log mentions "messages_per_second of rate sensors"
    And monitor is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A client that stays over its rate of bytes has used up its quota
    Given a broker with the configuration:
      """
      [limits]
      rate_patience = "1s"

      [[rates]]
      bytes_per_second = "1KiB"
      """
    And camera connects
    When camera publishes 9000 bytes to "photos"
    Then the broker tells camera that a quota is exceeded
    And the broker's log mentions "bytes_per_second of rates.0"

  Scenario Outline: A user has so many connections, wherever its clients come in
    Given I run `unbroken passwd users alice -b secret`
    And I run `unbroken passwd users bob -b secret`
    And a broker beside these files, with listeners of its own:
      """
      [[listeners]]
      address = "127.0.0.1:0"
      password_file = "./users"

      [[rates]]
      name = "people"
      per = "user"
      max_connections = 2
      """
    And clients speak MQTT <version>
    And phone connects with the user "alice" and "secret"
    And tablet connects with the user "alice" and "secret"
    When watch tries to connect with the user "alice" and "secret"
    Then watch is refused because a quota is exceeded
    And the broker's log mentions "max_connections of rate people (user alice) is reached"
    When laptop connects with the user "bob" and "secret"
    And copy connects as phone with the user "alice" and "secret"
    Then phone is cut off because its session was taken over
    And tablet is still connected
    And copy is still connected
    And laptop is still connected
    When tablet disconnects
    And desktop connects with the user "alice" and "secret"
    Then desktop is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario: A client that is one too many takes over no session
    Given a broker with the configuration:
      """
      [[rates]]
      per = "all"
      max_connections = 1
      """
    And phone connects with a persistent session
    And phone subscribes to "mail" at QoS 1
    And phone disconnects
    And sender connects
    When phone tries to connect with a clean start
    Then phone is refused because a quota is exceeded
    When sender publishes "kept" to "mail" at QoS 1
    And sender disconnects
    And phone reconnects with a persistent session
    Then phone still has its session
    And phone receives "kept" on "mail"

  Scenario: Clients of a role have its rate, and others do not
    Given a broker with the configuration:
      """
      [limits]
      rate_patience = "1s"

      [[roles]]
      name = "sensor"
      clients = ["sensor*"]
      allow = ["all #"]

      [[roles]]
      name = "other"
      allow = ["all #"]

      [[rates]]
      roles = ["sensor"]
      messages_per_second = 1
      """
    And camera connects
    And sensor7 connects
    When camera publishes 9 messages to "plant"
    And sensor7 publishes 9 messages to "plant"
    Then the broker tells sensor7 that its message rate was too high
    And camera is still connected

  Scenario: A role that a command grants brings its rate to connected clients
    Given a durable broker with the configuration:
      """
      [limits]
      rate_patience = "1s"

      [[rates]]
      roles = ["slow"]
      messages_per_second = 1
      """
    When I run `unbroken role add --data DATA all`
    And I run `unbroken rule add --data DATA all allow all '#'`
    And I run `unbroken role grant --data DATA --everyone all`
    And I run `unbroken role add --data DATA slow`
    And sensor connects
    And sensor publishes 9 messages to "plant"
    Then sensor is still connected
    When I run `unbroken role grant --data DATA --everyone slow`
    Then it ends with code 0
    When sensor publishes 9 messages to "plant"
    Then the broker tells sensor that its message rate was too high

  @tcp
  Scenario: A listener has a rate of its own
    Given a broker with listeners of its own:
      """
      [[listeners]]
      name = "public"
      port = 0

      [[rates]]
      listeners = ["public"]
      per = "all"
      max_connections = 1
      """
    And phone connects
    When tablet tries to connect
    Then tablet is refused because a quota is exceeded

  Scenario: A reload gives connected clients their new rates
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [[rates]]
      messages_per_second = 1
      """
    And monitor connects
    And monitor subscribes to "plant"
    And sensor connects
    When sensor publishes 500 messages to "plant"
    And monitor receives messages 1 to 1 on "plant" in order
    And the configuration is changed to:
      """
      [broker]
      sys_interval = "1s"
      """
    And the operator reloads the configuration
    Then monitor receives messages 2 to 500 on "plant" in order
    When the configuration is changed to:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      rate_patience = "1s"

      [[rates]]
      messages_per_second = 1
      """
    And the operator reloads the configuration
    Then the broker's log mentions "rates.0: a rate added"
    When sensor publishes 9 messages to "plant"
    Then the broker tells sensor that its message rate was too high

  @tcp
  Scenario: A rate that cannot be meant is an error with a remedy
    Given a file "broker.toml":
      """
      [[rates]]
      max_connections = 3
      """
    When I run `unbroken check -c broker.toml`
    Then it ends with code 1
    And its errors mention "broker.toml:2"
    And its errors mention "`rates.0.max_connections`: one client has one connection"
    And its errors mention "for all clients of each user together"
