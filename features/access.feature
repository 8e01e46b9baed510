Feature: Access rules
  What each client may do, by Mosquitto's access control lists or by roles; and which rule says so.

  # [MQTT-4.12.0-1]
  Scenario: A role says what its clients publish and receive
    Given a broker with the configuration:
      """
      [[roles]]
      name = "sensors"
      clients = ["sensor*"]
      allow = ["publish plant/{client}/#"]

      [[roles]]
      name = "screens"
      clients = ["screen"]
      allow = ["subscribe #", "receive plant/#"]
      deny = ["receive plant/+/secret"]
      """
    When stranger tries to connect
    Then stranger is refused because it is not authorized
    Given screen connects
    And screen subscribes to "#" at QoS 1
    And sensor1 connects
    Then sensor1 learns that it is not authorized when it publishes "x" to "plant/sensor2/t" at QoS 1
    And sensor1 may not subscribe to "plant/#" because it is not authorized
    When sensor1 publishes "key" to "plant/sensor1/secret" at QoS 1
    And sensor1 publishes "21.5" to "plant/sensor1/t" at QoS 1
    Then screen receives "21.5" on "plant/sensor1/t" at QoS 1

  Scenario: Other rules hold as soon as they are read
    Given a broker with the configuration:
      """
      [[roles]]
      allow = ["all #"]
      """
    And screen connects
    And screen subscribes to "plant/t"
    And probe connects
    When probe publishes "1" to "plant/t"
    Then screen receives "1" on "plant/t"
    When the configuration is changed to:
      """
      [[roles]]
      allow = ["all #"]

      [[roles]]
      name = "read only"
      clients = ["probe"]
      deny = ["publish #"]
      """
    And the operator reloads the configuration
    Then the broker's log mentions "configuration changed"
    And probe learns that it is not authorized when it publishes "2" to "plant/t" at QoS 1
    And screen is still connected

  Scenario Outline: Two clients of different rights alternate on one topic, over <shards> shards
    Given a broker with the configuration:
      """
      [broker]
      shards = <shards>

      [[roles]]
      allow = ["subscribe,receive #"]

      [[roles]]
      clients = ["pump"]
      allow = ["publish plant/t"]
      """
    And screen connects
    And screen subscribes to "plant/t" at QoS 1
    And pump connects
    And guest connects
    When pump publishes "1" to "plant/t" at QoS 1
    Then screen receives "1" on "plant/t"
    And guest learns that it is not authorized when it publishes "2" to "plant/t" at QoS 1
    When pump publishes "3" to "plant/t" at QoS 1
    Then screen receives "3" on "plant/t"
    And guest learns that it is not authorized when it publishes "4" to "plant/t" at QoS 1
    When the configuration is changed to:
      """
      [broker]
      shards = <shards>

      [[roles]]
      allow = ["subscribe,receive #"]

      [[roles]]
      clients = ["guest"]
      allow = ["publish plant/t"]
      """
    And the operator reloads the configuration
    Then the broker's log mentions "configuration changed"
    And pump learns that it is not authorized when it publishes "5" to "plant/t" at QoS 1
    When guest publishes "6" to "plant/t" at QoS 1
    Then screen receives "6" on "plant/t"
    And pump learns that it is not authorized when it publishes "7" to "plant/t" at QoS 1
    When guest publishes "8" to "plant/t" at QoS 1
    Then screen receives "8" on "plant/t"

    Examples:
      | shards |
      | 1      |
      | 3      |

  Scenario: A rule limits QoS and retained messages on its topics
    Given a broker with the configuration:
      """
      [[roles]]
      allow = ["all #", "publish,subscribe,max_qos=1,retain=false plant/#"]
      """
    And screen connects
    And screen is granted QoS 1 when it subscribes to "plant/#" at QoS 2
    And probe connects
    Then probe learns that it is not authorized when it publishes "1" to "plant/t" at QoS 2
    And probe learns that it is not authorized when it publishes "2" to "plant/t" at QoS 1, retained
    When probe publishes "3" to "plant/t" at QoS 1
    Then screen receives "3" on "plant/t" at QoS 1
    When probe publishes "4" to "hall/t" at QoS 2, retained
    Then probe is still connected

  # [MQTT-3.2.2-9] [MQTT-3.2.2-10] [MQTT-3.2.2-12] [MQTT-3.2.2-13]
  Scenario: The limits of its roles are told to a client when it connects
    Given a broker with the configuration:
      """
      [[roles]]
      allow = ["all #"]

      [[roles]]
      clients = ["sensor*"]
      max_qos = 1
      retain = false
      """
    And sensor1 connects
    Then sensor1 learns that it may publish up to QoS 1, and nothing retained
    And sensor1 is granted QoS 1 when it subscribes to "t" at QoS 2
    When sensor1 publishes "1" to "t" at QoS 1
    Then sensor1 receives "1" on "t" at QoS 1
    When sensor1 dares to publish "2" to "t" at QoS 2
    Then the broker tells sensor1 that its QoS is not supported
    When sensor2 connects
    And sensor2 dares to publish "3" to "t" at QoS 1, retained
    Then the broker tells sensor2 that retained messages are not supported
    When sensor3 tries to connect with the retained will "gone" on "t"
    Then sensor3 is refused because retained messages are not supported

  Scenario: A role binds the client ids of its users, beside their listener
    When I run `unbroken passwd users ann -b wonderland`
    Given a broker beside these files, with listeners of its own:
      """
      [[listeners]]
      bind = "127.0.0.1"
      port = 0
      password_file = "./users"
      client_id = "*-phone"

      [[roles]]
      users = ["ann"]
      client_id = "{user}-*"
      allow = ["all #"]
      """
    When one tries to connect with the client id "bob-phone", the user "ann" and "wonderland"
    Then one is refused because the client id is not valid
    When two tries to connect with the client id "ann-tablet", the user "ann" and "wonderland"
    Then two is refused because the client id is not valid
    When three tries to connect with the client id "ann-phone", the user "ann" and "wonderland"
    Then three is accepted

  Scenario: New limits hold for clients that are connected
    Given a broker with the configuration:
      """
      [[roles]]
      allow = ["all #"]
      """
    And screen connects
    And screen subscribes to "t" at QoS 2
    And probe connects
    When the configuration is changed to:
      """
      [[roles]]
      allow = ["all #"]
      max_qos = 1
      """
    And the operator reloads the configuration
    Then the broker's log mentions "configuration changed"
    And probe learns that it is not authorized when it publishes "1" to "t" at QoS 2
    When probe publishes "2" to "t" at QoS 1
    Then screen receives "2" on "t" at QoS 1

  # [MQTT311-3.3.5-2]
  Scenario Outline: A denied publish ends the connection where that is configured
    Given a broker with the configuration:
      """
      [mqtt]
      on_denied_publish = "disconnect"

      [[roles]]
      allow = ["all open/#"]
      """
    And clients speak MQTT <version>
    And screen connects
    And screen subscribes to "open/#" at QoS 1
    And probe connects
    When probe publishes "1" to "open/t" at QoS 1
    Then screen receives "1" on "open/t"
    When probe dares to publish "2" to "closed/t" at QoS 1
    Then probe is answered, and cut off because it is not authorized
    When the configuration is changed to:
      """
      [[roles]]
      allow = ["all open/#"]
      """
    And the operator reloads the configuration
    Then the broker's log mentions "mqtt.on_denied_publish"
    When probe reconnects
    And probe publishes "3" to "open/t" at QoS 1
    Then screen receives "3" on "open/t"

    Examples:
      | version |
      | 5.0     |
      | 3.1.1   |

  Scenario: A command names the rule that decides
    Given a file "acl":
      """
      user ann
      topic read plant/#
      pattern write plant/%c/#
      """
    And a file "broker.toml":
      """
      [[listeners]]
      acl_file = "acl"

      [[roles]]
      name = "all but alarms"
      allow = ["all #"]
      deny = ["publish plant/+/alarm"]
      """
    When I run `unbroken access explain -c broker.toml --user ann --client c1 publish plant/c1/t`
    Then it ends with code 0
    And its output mentions "allowed"
    When I run `unbroken access explain -c broker.toml --user ann --client c1 publish plant/c2/t`
    Then it ends with code 1
    And its output mentions "denied: no access rule allows it"
    When I run `unbroken access explain -c broker.toml --user ann --client c1 publish plant/c1/alarm`
    Then it ends with code 1
    And its output mentions "broker.toml:7 (deny"
    Given a file "list.toml":
      """
      [[listeners]]
      acl_file = "acl"
      """
    When I run `unbroken access explain -c list.toml --user ann --client c1 receive plant/c2/t`
    Then it ends with code 0
    And its output mentions "acl:2"
    Given a file "limits.toml":
      """
      [[roles]]
      name = "sensors"
      max_qos = 1
      allow = ["publish,retain=false plant/#", "subscribe #"]
      """
    When I run `unbroken access explain -c limits.toml --client c1 publish plant/t --qos 2`
    Then it ends with code 1
    And its output mentions "denied: an access rule limits it to a lower QoS: role sensors"
    When I run `unbroken access explain -c limits.toml --client c1 publish plant/t --qos 1 --retain`
    Then it ends with code 1
    And its output mentions "denied: an access rule allows it only without retain: limits.toml:4 (allow"
    When I run `unbroken access explain -c limits.toml --client c1 publish plant/t`
    Then it ends with code 0
    And its output mentions "role sensors; up to QoS 1; nothing retained"
    Given a file "expected":
      """
      # Of the plant
      allow ann c1 publish plant/c1/t
      deny - c2 receive plant/c1/t
      allow bob c2 receive plant/c1/t
      allow ann c1 publish,qos=2,retain plant/c1/t
      """
    When I run `unbroken access test -c broker.toml expected`
    Then it ends with code 1
    And its output mentions "expected:4: expected `allow bob c2 receive plant/c1/t`, but it is denied"
    And its output mentions "3 as expected, 1 not"
    Given a file "expected of limits":
      """
      allow - c1 publish,qos=1 plant/t
      deny - c1 publish,qos=2 plant/t
      deny - c1 publish,retain plant/t
      deny - c1 subscribe,qos=2 plant/t
      """
    When I run `unbroken access test -c limits.toml 'expected of limits'`
    Then it ends with code 0

  Scenario: What a configuration leaves open is listed
    Given a file "broker.toml":
      """
      [[listeners]]
      bind = "0.0.0.0"
      insecure = true
      allow_anonymous = true
      """
    When I run `unbroken check -c broker.toml`
    Then it ends with code 0
    And its output mentions "# weak: 0.0.0.0:1883: passwords and messages cross the network in the clear"
    And its output mentions "every client that reaches it may read and write every topic"

  Scenario: A mistake in a role is found with its place
    Given a file "broker.toml":
      """
      [[roles]]
      allow = ["write plant/#"]
      """
    When I run `unbroken check -c broker.toml`
    Then it ends with code 1
    And its errors mention "broker.toml:2"
    And its errors mention "`write` is not publish, subscribe, receive or all"
