@tcp
Feature: Configuration
  A mistake in a configuration is found before it does harm, and a running broker takes up changes.

  Scenario: A good file is confirmed with the origin of every value
    Given a file "good.toml":
      """
      [limits]
      connections_max = 500
      packet_bytes_max = "1 MiB"
      """
    When I run `unbroken check -c good.toml`
    Then it ends with code 0
    And its output mentions "connections_max"
    And its output mentions "good.toml:2"

  Scenario: A misspelt key is found, with its place and the word that was meant
    Given a file "bad.toml":
      """
      [limits]
      conections_max = 500
      """
    When I run `unbroken check -c bad.toml`
    Then it ends with code 1
    And its errors mention "bad.toml:2"
    And its errors mention "connections_max"

  # A limit of nothing that was meant as no limit, and took every message.
  Scenario: A queue with room for nothing is refused
    Given a file "bad.toml":
      """
      [limits]
      queue_messages_max = 0
      """
    When I run `unbroken check -c bad.toml`
    Then it ends with code 1
    And its errors mention "queue_messages_max"

  Scenario: An answer to a full queue that there is not is refused, and the possible ones are named
    Given a file "bad.toml":
      """
      [limits]
      queue_full = "refuse_all"
      """
    When I run `unbroken check -c bad.toml`
    Then it ends with code 1
    And its errors mention "bad.toml:2"
    And its errors mention "drop_oldest"

  Scenario: A broker does not start with a file it does not understand
    Given a file "bad.toml":
      """
      [limits]
      packet_bytes_max = "1 MeB"
      """
    When I run `unbroken serve -p 0 -c bad.toml`
    Then it ends with code 78
    And its errors mention "bad.toml:2"

  Scenario: A file that is not there is named
    When I run `unbroken serve -p 0 -c nowhere.toml`
    Then it ends with code 78
    And its errors mention "nowhere.toml"

  Scenario: A configuration of Mosquitto is read, with what it names
    Given a file "acl":
      """
      user ann
      topic read plant/#
      """
    And a file "mosquitto.conf":
      """
      port 1883
      allow_anonymous false
      acl_file acl
      """
    When I run `unbroken check --mosquitto mosquitto.conf`
    Then it ends with code 0
    And its output mentions "allow_anonymous = false"
    And its output mentions "mosquitto.conf:2:1"
    And its output mentions "user ann  read plant/#"
    And its output mentions "`listener` replaces it"

  Scenario: A mistake in a configuration of Mosquitto is found with line, column and what was expected
    Given a file "mosquitto.conf":
      """
      listener 1883
      persistence yes
      """
    When I run `unbroken check --mosquitto mosquitto.conf`
    Then it ends with code 1
    And its errors mention "mosquitto.conf:2:13: expected `true` or `false`, found `yes`"

  Scenario: A mistake in an access control list of Mosquitto is found
    Given a file "acl":
      """
      topic rw plant/#
      """
    When I run `unbroken check --acl acl`
    Then it ends with code 1
    And its errors mention "acl:1:7: expected `read`, `write`, `readwrite`, `deny` or `subscribe`"

  Scenario: The example file is a valid file
    Given I run `unbroken check --example`
    And its output is kept as "example.toml"
    When I run `unbroken check -c example.toml`
    Then it ends with code 0

  Scenario: The environment is stronger than the file
    Given a file "one.toml":
      """
      [limits]
      connections_max = 500
      """
    When I run `env UNBROKEN__LIMITS__CONNECTIONS_MAX=7 unbroken check -c one.toml`
    Then it ends with code 0
    And its output mentions "UNBROKEN__LIMITS__CONNECTIONS_MAX"

  Scenario: Effective values are there for machines too
    When I run `unbroken check --json`
    Then it ends with code 0
    And its output mentions "connections_max"

  Scenario: A running broker takes up a change
    Given a broker with the configuration:
      """
      [limits]
      connections_max = 1
      """
    And phone connects
    When the configuration is changed to:
      """
      [limits]
      connections_max = 2
      """
    And the operator reloads the configuration
    Then the broker's log mentions "connections_max"
    When tablet connects
    Then tablet is still connected
    And phone is still connected

  Scenario: A running broker stays as it is when the change is wrong
    Given a broker with the configuration:
      """
      [limits]
      connections_max = 1
      """
    And phone connects
    When the configuration is changed to:
      """
      [limits]
      connections_max = 2
      conections_max = 3
      """
    And the operator reloads the configuration
    Then the broker's log mentions "conections_max"
    When tablet tries to connect
    Then tablet is refused because a quota is exceeded
    And phone is still connected

  Scenario: A broker that the operator stops closes all connections and ends well
    Given a broker
    And phone connects
    And old connects by MQTT 3.1.1
    When the operator stops the broker
    Then phone is cut off
    And old is cut off
    And the broker ends with code 0

  Scenario: Two brokers cannot have one port
    Given a broker
    When I run `unbroken serve -p PORT`
    Then it ends with code 69
    And its errors mention "PORT"

  Scenario: A payload is never in the log
    Given a broker
    And phone connects
    And phone subscribes to "letters"
    When phone publishes "a great secret" to "letters"
    Then phone receives "a great secret" on "letters"
    And the broker's log mentions "phone"
    And the broker's log does not mention "a great secret"

  Scenario: A mistake in a mount point is found with its place
    Given a file "broker.toml":
      """
      [[listeners]]
      mount_point = "plant-a"
      """
    When I run `unbroken check -c broker.toml`
    Then it ends with code 1
    And its errors mention "broker.toml:2"
    And its errors mention "write `plant-a/`"
    When in the file "broker.toml" `"plant-a"` becomes `"plant/{user}/"`
    And I run `unbroken check -c broker.toml`
    Then it ends with code 0
    And its output mentions "listeners.0.mount_point"
    And its output mentions "plant/{user}/"
    When I run `unbroken access explain -c broker.toml --user ann publish plant/ann/t`
    Then its output mentions "the client knows topics without `plant/ann/`"
