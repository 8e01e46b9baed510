@tcp
Feature: The data directory
  An operator can look into what the broker keeps, take it elsewhere, and remove sessions without a client.

  Background:
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "news/#" at QoS 1
    And phone disconnects
    And I run `unbroken pub -p PORT -t mode -m auto -r -q 1`
    And I run `unbroken pub -p PORT -t news/today -m hello -q 1`

  Scenario: A backup is taken while the broker runs, and restored elsewhere
    When I run `unbroken backup --data DATA monday.backup`
    Then it ends with code 0
    And its errors mention "in monday.backup"
    When I run `unbroken restore monday.backup --data copy`
    Then it ends with code 0
    When I run `unbroken retained get --data copy mode`
    Then its output is "auto"
    When I run `unbroken db export --data copy`
    Then its output mentions "hello"
    When I run `unbroken restore monday.backup --data copy`
    Then it ends with code 73
    And its errors mention "is not empty"

  Scenario: What sessions and retained messages there are is seen while the broker runs
    When I run `unbroken sessions ls --data DATA`
    Then it ends with code 0
    And its output mentions "phone"
    When I run `unbroken retained ls --data DATA`
    Then its output mentions "mode"
    When I run `unbroken doctor --data DATA`
    Then it ends with code 0
    And its output mentions "nothing is wrong"

  Scenario: A session without a client is removed while the broker runs
    When I run `unbroken sessions rm --data DATA --dry-run phone`
    Then it ends with code 0
    And its output mentions "would remove phone"
    When I run `unbroken sessions rm --data DATA phone`
    Then it ends with code 0
    When I run `unbroken sessions ls --data DATA --json`
    Then its output is ""
    When I run `unbroken sessions rm --data DATA phone`
    Then it ends with code 1
    And its errors mention "has no session"
    When I run `unbroken retained rm --data DATA mode`
    Then it ends with code 0
    When I run `unbroken sub -p PORT -t mode -W 1`
    Then it ends with code 27
    And its output is ""

  Scenario: A session without a client is removed when the broker has ended
    When the operator stops the broker
    Then the broker ends with code 0
    When I run `unbroken sessions rm --data DATA phone`
    Then it ends with code 0
    When I run `unbroken sessions ls --data DATA --json`
    Then its output is ""
    When I run `unbroken retained rm --data DATA mode`
    Then it ends with code 0
    When I run `unbroken retained get --data DATA mode`
    Then it ends with code 1
    And its errors mention "has no retained message"

  Scenario: What a group gave to a session that is removed when the broker has ended goes to another member
    When phone reconnects
    And phone subscribes to "$share/team/jobs" at QoS 1
    And phone disconnects
    And I run `unbroken pub -p PORT -t jobs -m dig -q 1`
    And tablet connects with a persistent session
    And tablet subscribes to "$share/team/jobs" at QoS 1
    And tablet disconnects
    And the operator stops the broker
    Then the broker ends with code 0
    When I run `unbroken sessions rm --data DATA phone`
    Then it ends with code 0
    When the broker is started again
    And tablet reconnects
    Then tablet receives "dig" on "jobs" at QoS 1
    And tablet receives nothing else

  Scenario: A directory without a store is refused and not made
    When I run `unbroken sessions ls --data elsewhere`
    Then it ends with code 66
    And its errors mention "elsewhere does not exist"
