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
    Given a file "expected":
      """
      # Of the plant
      allow ann c1 publish plant/c1/t
      deny - c2 receive plant/c1/t
      allow bob c2 receive plant/c1/t
      """
    When I run `unbroken access test -c broker.toml expected`
    Then it ends with code 1
    And its output mentions "expected:4: expected `allow bob c2 receive plant/c1/t`, but it is denied"
    And its output mentions "2 as expected, 1 not"

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
