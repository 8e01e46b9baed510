Feature: Users and roles in the store
  An operator adds users, roles and rules by commands: while the broker runs they are in force at once, and they are
  still there after a restart and in a backup.

  # [MQTT-3.1.4-2]
  Scenario: A user is added, changed and removed while the broker runs
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      """
    When ann tries to connect with the user "ann" and "wonderland"
    Then ann is refused because the user name or password is wrong
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    Then it ends with code 0
    And its output is "added user ann"
    When ann connects with the user "ann" and "wonderland"
    Then ann is still connected
    When I run `unbroken user add --data DATA ann` with the input:
      """
      again
      """
    Then it ends with code 1
    And its errors mention "there is a user `ann` already"
    When I run `unbroken user passwd --data DATA ann` with the input:
      """
      looking-glass
      """
    Then it ends with code 0
    When bob tries to connect with the user "ann" and "wonderland"
    Then bob is refused because the user name or password is wrong
    When bob connects with the user "ann" and "looking-glass"
    Then bob is still connected
    When I run `unbroken user remove --data DATA ann`
    Then it ends with code 0
    When carol tries to connect with the user "ann" and "looking-glass"
    Then carol is refused because the user name or password is wrong
    And the broker's log mentions "user remove ann"

  Scenario: Users are there before the first start, after a restart, and in a backup
    Given a file "secret":
      """
      wonderland
      """
    When I run `unbroken user add --data made ann --password-file secret`
    Then it ends with code 0
    When I run `unbroken role add --data made crew`
    And I run `unbroken rule add --data made crew allow all 'plant/{user}/#'`
    And I run `unbroken role grant --data made ann crew`
    And I run `unbroken backup --data made users.backup`
    And I run `unbroken restore users.backup --data copy`
    Then it ends with code 0
    When I run `unbroken user list --data copy --json`
    Then its output mentions "ann"
    And its output mentions "crew"
    When I run `unbroken role list --data copy`
    Then its output mentions "allow all plant/{user}/#"
    When I run `unbroken user passwd --data copy bob --password-file secret`
    Then it ends with code 1
    And its errors mention "there is no user bob"

  Scenario: Users, roles and bans of a broker that stores nothing end with it
    When I run `unbroken user add --control . ann` with the input:
      """
      wonderland
      """
    Then it ends with code 69
    And its errors mention "no broker answers in"
    Given a broker beside these files, with listeners of its own:
      """
      [storage]
      in_memory = true
      control = "./"

      [[listeners]]
      bind = "127.0.0.1"
      port = 0
      stored_users = true
      """
    When I run `unbroken user add --control . ann` with the input:
      """
      wonderland
      """
    Then it ends with code 0
    And its output is "added user ann"
    And its errors mention "the broker stores nothing: this change ends with it"
    When ann connects with the user "ann" and "wonderland"
    Then ann is still connected
    When I run `unbroken user list --control .`
    Then its output mentions "ann"
    When I run `unbroken role add --control . readers`
    And I run `unbroken rule add --control . readers allow subscribe,receive '#'`
    And I run `unbroken role grant --control . --everyone readers`
    Then it ends with code 0
    And ann learns that it is not authorized when it publishes "1" to "plant/t" at QoS 1
    When I run `unbroken ban add --control . --user ann`
    Then it ends with code 0
    And the broker tells ann that an operator ended its connection

  Scenario: A role of the store holds for clients that are connected
    Given a durable broker
    And screen connects
    And screen subscribes to "plant/t"
    And I run `unbroken role add --data DATA screens`
    And I run `unbroken rule add --data DATA screens allow subscribe,receive 'plant/#'`
    And probe connects
    When probe publishes "1" to "plant/t"
    Then screen receives "1" on "plant/t"
    When I run `unbroken rule add --data DATA screens allow write plant/t`
    Then it ends with code 2
    And its errors mention "`write` is not publish, subscribe, receive or all"
    When I run `unbroken role grant --data DATA --everyone screens`
    Then it ends with code 0
    And probe learns that it is not authorized when it publishes "2" to "plant/t" at QoS 1
    And screen is still connected
    When I run `unbroken rule add --data DATA screens allow publish plant/t`
    And probe publishes "3" to "plant/t"
    Then screen receives "3" on "plant/t"
    When I run `unbroken role revoke --data DATA --everyone screens`
    And I run `unbroken role grant --data DATA ann screens`
    Then screen is cut off because it is not authorized

  Scenario: A command names the rule of the store that decides
    Given a durable broker
    And I run `unbroken role add --data DATA crew`
    And I run `unbroken rule add --data DATA crew allow publish 'plant/{user}/#'`
    And I run `unbroken rule add --data DATA crew deny publish plant/+/alarm`
    And I run `unbroken role grant --data DATA ann crew`
    When I run `unbroken access explain --data DATA --user ann --client c publish plant/ann/t`
    Then it ends with code 0
    And its output mentions "the store (allow"
    And its output mentions "role crew"
    When I run `unbroken access explain --data DATA --user ann --client c publish plant/ann/alarm`
    Then it ends with code 1
    And its output mentions "the store (deny"

  Scenario: A name in two sources is named, and the password file decides
    Given a file "broker.toml":
      """
      [[listeners]]
      password_file = "users"
      stored_users = true

      [storage]
      directory = "made"
      """
    When I run `unbroken passwd users ann -b wonderland`
    And I run `unbroken user add -c broker.toml ann` with the input:
      """
      looking-glass
      """
    Then it ends with code 0
    When I run `unbroken check -c broker.toml`
    Then it ends with code 0
    And its output mentions "user ann is in its password_file and in the store; the file decides"

  Scenario: A banned client is cut off and cannot connect again
    Given a durable broker
    And phone connects
    And desk connects
    When I run `unbroken ban add --data DATA --client phone --for 1h --reason loud`
    Then it ends with code 0
    And phone is cut off because an operator ended its connection
    And desk is still connected
    When phone tries to connect
    Then phone is refused because it is banned
    When I run `unbroken ban list --data DATA --json`
    Then its output mentions "loud"
    When the broker is killed and started again
    And phone tries to connect
    Then phone is refused because it is banned
    When I run `unbroken ban remove --data DATA --client phone`
    And phone connects
    Then phone is still connected
    When I run `unbroken ban remove --data DATA --client phone`
    Then it ends with code 1
    And its errors mention "there is no ban of"

  Scenario: A banned user is refused whatever its password
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      """
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And phone connects with the user "ann" and "wonderland"
    And I run `unbroken ban add --data DATA --user ann`
    Then phone is cut off because an operator ended its connection
    When phone tries to connect with the user "ann" and "wonderland"
    Then phone is refused because it is banned

  @tcp
  Scenario: An address whose logins fail too often is banned for a while
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true

      [bans]
      failed_logins = 3
      """
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And 3 clients somewhere else guess the password of "ann"
    Then the broker's log mentions "the address is banned: too many logins from it have failed"
    When I run `unbroken ban list --data DATA`
    Then its output mentions "too many logins have failed"
    When phone connects with the user "ann" and "wonderland"
    Then phone is still connected

  # [MQTT-3.1.3-8]
  Scenario Outline: A listener binds client ids to its users
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      client_id = "{user}-*"
      """
    And clients speak MQTT <version>
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And phone connects with the client id "ann-phone", the user "ann" and "wonderland"
    Then phone is still connected
    When desk tries to connect with the client id "bob-desk", the user "ann" and "wonderland"
    Then desk is refused because the client id is not valid

    Examples:
      | version |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.4-3]
  Scenario: A session is its user's, also after a restart
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      """
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And I run `unbroken user add --data DATA bob` with the input:
      """
      looking-glass
      """
    And phone connects with a persistent session, the user "ann" and "wonderland"
    And thief tries to connect with the client id "phone", the user "bob" and "looking-glass"
    Then thief is refused because it is not authorized
    And the broker's log mentions "its client id has a session of another user"
    And phone is still connected
    When phone disconnects
    And the broker is killed and started again
    And thief tries to connect with the client id "phone", the user "bob" and "looking-glass"
    Then thief is refused because it is not authorized
    When phone connects with a persistent session, the user "ann" and "wonderland"
    Then phone still has its session

  Scenario: A session may be taken over by anyone where the listener says so
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      takeover = "anyone"
      """
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And I run `unbroken user add --data DATA bob` with the input:
      """
      looking-glass
      """
    And phone connects with a persistent session, the user "ann" and "wonderland"
    And heir connects with the client id "phone", a persistent session, the user "bob" and "looking-glass"
    Then heir still has its session
    And phone is cut off because its session was taken over

  # [MQTT-3.1.3-8]
  Scenario: A listener takes the client id from the user
    Given a durable broker with the configuration:
      """
      [[listeners]]
      stored_users = true
      client_id_from = "user"
      """
    When I run `unbroken user add --data DATA ann` with the input:
      """
      wonderland
      """
    And phone connects with the user "ann" and "wonderland"
    Then phone is still connected
    And the broker's log mentions "client=ann"

  Scenario: Rules and roles of the store are listed and removed
    Given a durable broker
    And I run `unbroken role add --data DATA crew`
    And I run `unbroken rule add --data DATA crew allow all '#'`
    And I run `unbroken rule add --data DATA crew deny publish plant/alarm`
    And I run `unbroken role grant --data DATA --everyone crew`
    And probe connects
    Then probe learns that it is not authorized when it publishes "1" to "plant/alarm" at QoS 1
    When I run `unbroken rule list --data DATA crew`
    Then it ends with code 0
    And its output mentions "deny publish plant/alarm"
    When I run `unbroken rule remove --data DATA crew deny publish plant/alarm`
    Then it ends with code 0
    And probe learns that no client subscribes to the topic when it publishes "2" to "plant/alarm" at QoS 1
    When I run `unbroken rule remove --data DATA crew deny publish plant/alarm`
    Then it ends with code 1
    When I run `unbroken role remove --data DATA crew`
    Then it ends with code 0
    And probe is still connected
    When I run `unbroken role remove --data DATA crew`
    Then it ends with code 1

  @tcp
  Scenario: An address is banned until a time
    Given a durable broker
    And phone connects
    When I run `unbroken ban add --data DATA --address 127.0.0.0/8 --until 2020-01-01T00:00:00Z`
    Then it ends with code 2
    And its errors mention "the ban would be over already"
    When I run `unbroken ban add --data DATA --address 127.0.0.0/8 --until 2100-01-01T00:00:00Z`
    Then it ends with code 0
    And phone is cut off because an operator ended its connection
    When I run `unbroken ban list --data DATA`
    Then its output mentions "127.0.0.0/8"
    And its output mentions "2100-01-01"
