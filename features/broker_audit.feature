Feature: Proof that nothing was lost
  The broker keeps account of every message, without configuration, for clients of any kind, and says what it has come to.

  Scenario Outline: The verdict is a sentence
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      shards = <shards>
      """
    And display connects
    And display subscribes to "room/+" at QoS 1
    And sensor connects
    When sensor publishes 3 messages to "room/kitchen" at QoS 1
    Then display receives the 3 messages on "room/kitchen" in order
    When auditor connects
    And auditor subscribes to "$SYS/audit/lost"
    And auditor subscribes to "$SYS/audit/received"
    Then auditor sooner or later receives "3" on "$SYS/audit/received"
    When auditor subscribes to "$SYS/audit/acknowledged"
    Then auditor sooner or later receives "3" on "$SYS/audit/acknowledged"
    When auditor subscribes to "$SYS/audit/verdict"
    Then auditor sooner or later receives something like "3 received, " on "$SYS/audit/verdict"

    Examples:
      | shards |
      | 1      |
      | 2      |
      | 8      |

  Scenario: Every message that was not delivered has a named reason
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      queue_messages_max = 1
      """
    And phone connects with a persistent session
    And phone subscribes to "news" at QoS 1
    And phone disconnects
    And paper connects
    And auditor connects
    And auditor subscribes to "$SYS/audit/dropped/queue-full"
    When paper publishes 3 messages to "news" at QoS 1
    Then auditor sooner or later receives "2" on "$SYS/audit/dropped/queue-full"

  @tcp
  Scenario: What is on disk for sessions that stay is counted
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And display connects with a persistent session
    And display subscribes to "room/+" at QoS 1
    And sensor connects
    When sensor publishes 3 messages to "room/kitchen" at QoS 1
    Then display receives the 3 messages on "room/kitchen" in order
    When auditor connects
    And auditor subscribes to "$SYS/audit/stored"
    Then auditor sooner or later receives "3" on "$SYS/audit/stored"

  Scenario: How far the deliveries to one client have come
    Given a broker
    And display connects
    And auditor connects
    When auditor subscribes to "$audit/account/display"
    Then auditor receives something like "acknowledged" on "$audit/account/display"

  @tcp @tool:mosquitto
  Scenario: A publisher is given a receipt
    Given a broker
    And phone connects
    And phone subscribes to "orders" at QoS 1
    And tablet connects
    And tablet subscribes to "orders" at QoS 1
    And auditor listens by `mosquitto_sub -p PORT -t $audit/+/receipt`
    When I run `mosquitto_pub -p PORT -q 1 -t orders -m one-coffee`
    Then phone receives "one-coffee" on "orders" at QoS 1
    And tablet receives "one-coffee" on "orders" at QoS 1
    And auditor prints JSON with number=0 and topic=orders and expected=2 and acknowledged=2 and finished=true

  Scenario: A client finds its lane by its id
    Given a broker
    And auditor connects
    When auditor subscribes to "$audit/client/pump-7"
    Then auditor receives something like "lane" on "$audit/client/pump-7"

  Scenario: A client cannot speak for the audit
    Given a broker
    And auditor connects
    And auditor subscribes to "$audit/#"
    When liar connects
    And liar tries to publish "a lie" to "$audit/0123456789abcdef/receipt"
    Then auditor receives nothing

  # [MQTT-4.7.2-1]
  Scenario: Who listens to everything does not hear of the audit
    Given a broker
    And watcher connects
    And watcher subscribes to "$audit/+/receipt"
    And auditor connects
    And auditor subscribes to "#"
    When sensor connects
    And sensor publishes "21" to "room"
    Then auditor receives "21" on "room"
    And auditor receives nothing else

  @tcp @tool:mosquitto
  Scenario: A publisher's stamp that does not fit is named, and its message passes
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And phone connects
    And phone subscribes to "orders" at QoS 1
    And auditor connects
    And auditor subscribes to "$SYS/audit/publishers/altered"
    When I run `mosquitto_pub -p PORT -V 5 -q 1 -t orders -m tea -D publish user-property audit EQAAAAAAAAEAAAAAAAAABwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA`
    Then auditor sooner or later receives "1" on "$SYS/audit/publishers/altered"
    And phone receives "tea" on "orders" at QoS 1

  Scenario: A rule leaves clients alone
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [[audit.rule]]
      client = "noisy*"
      topic = "raw/#"
      action = "off"
      """
    And noisy connects
    And sensor connects
    When noisy publishes 2 messages to "raw/1" at QoS 1
    And sensor publishes 3 messages to "raw/1" at QoS 1
    And auditor connects
    And auditor subscribes to "$SYS/audit/received"
    Then auditor sooner or later receives "3" on "$SYS/audit/received"

  Scenario Outline: The verdict is counted at the moment of subscribing, and does not count itself
    Given a broker with <shards> shards
    And display connects
    And display subscribes to "room/+"
    And sensor connects
    When sensor publishes "21" to "room/kitchen"
    Then display receives "21" on "room/kitchen"
    When sensor publishes "22" to "nowhere" at QoS 1
    And auditor connects
    And auditor subscribes to "$SYS/#"
    And auditor unsubscribes from "$SYS/#"
    And witness connects
    And witness subscribes to "$SYS/audit/verdict"
    Then witness receives something like "2 received, 1 unrouted, 1 expected deliveries, 1 handed to the network (QoS 0), 0 sent (QoS 1 and 2), 0 acknowledged, 0 processed, 0 waiting, 0 dropped by name, 0 lost" on "$SYS/audit/verdict"

    Examples:
      | shards |
      | 1      |
      | 3      |

  @tcp
  Scenario Outline: A client that only verifies changes no figure, and is counted apart
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      shards = <shards>
      """
    And display connects
    And display subscribes to "room/+" at QoS 1
    And watcher runs `unbroken audit watch -p PORT -t lab/# -t room/#` and listens to "lab/bench"
    And sensor connects
    When sensor publishes 3 messages to "room/kitchen" at QoS 1
    Then display receives the 3 messages on "room/kitchen" in order
    When auditor connects
    And auditor subscribes to "$SYS/audit/acknowledged"
    Then auditor sooner or later receives "3" on "$SYS/audit/acknowledged"
    When auditor subscribes to "$SYS/audit/to-watchers"
    Then auditor sooner or later receives "4" on "$SYS/audit/to-watchers"
    When auditor subscribes to "$SYS/audit/verdict"
    Then auditor sooner or later receives something like " 3 expected deliveries, 0 handed to the network (QoS 0), 3 sent (QoS 1 and 2), 3 acknowledged, 0 processed, 0 waiting, 0 dropped by name, 0 lost" on "$SYS/audit/verdict"

    Examples:
      | shards |
      | 1      |
      | 3      |

  Scenario: The verdict tells since when it counts, over a kill too
    Given a durable broker
    And auditor connects
    When auditor subscribes to "$SYS/audit/since"
    Then auditor receives something like " UTC" on "$SYS/audit/since"
    When the broker is killed and started again
    And witness connects
    And witness subscribes to "$SYS/audit/verdict"
    Then witness receives something like " UTC (started after a crash)" on "$SYS/audit/verdict"

  @tcp @tool:mosquitto
  Scenario: A receipt says of QoS 0 that it was handed to the network
    Given a broker
    And phone connects
    And phone subscribes to "orders"
    And auditor listens by `mosquitto_sub -p PORT -t $audit/+/receipt`
    When I run `mosquitto_pub -p PORT -q 0 -t orders -m one-coffee`
    Then phone receives "one-coffee" on "orders"
    And auditor prints a line with "acknowledged by 0 of 1, handed to the network for 1"

  Scenario Outline: What another client publishes in a publisher's lane is the other's fault
    Given a broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      shards = <shards>
      """
    And auditor connects
    And auditor subscribes to "$audit/0000000000000007/fault"
    And auditor subscribes to "$SYS/audit/publishers/duplicated"
    And auditor subscribes to "$SYS/audit/publishers/intruded"
    And auditor subscribes to "$SYS/audit/publishers/verified"
    And victim connects
    And mallory connects
    When victim publishes "tea" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAAAuZA3qVFjGpk5xhvm-H67bQ"
    Then auditor sooner or later receives "1" on "$SYS/audit/publishers/verified"
    When mallory publishes "tea" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAAAuZA3qVFjGpk5xhvm-H67bQ"
    Then auditor receives something like "sent by another client, in the lane of victim" on "$audit/0000000000000007/fault"
    And auditor sooner or later receives "1" on "$SYS/audit/publishers/intruded"
    And the broker's log mentions "the client publishes in a lane that another client stamps"
    And the broker's log does not mention "a received message differs from its client's stamp"
    When victim publishes "milk" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAABv2u0vJZ-xPGsCor-wImcgQ"
    Then auditor sooner or later receives "2" on "$SYS/audit/publishers/verified"

    Examples:
      | shards |
      | 1      |
      | 3      |

  @tcp
  Scenario: A lane is its user's, and what another user publishes in it is refused
    Given a durable broker with the configuration:
      """
      [broker]
      shards = 1

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
    And victim connects with a persistent session, the user "ann" and "wonderland"
    And screen connects with the user "ann" and "wonderland"
    And screen subscribes to "orders"
    And mallory connects with a persistent session, the user "bob" and "looking-glass"
    When victim publishes "tea" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAAAuZA3qVFjGpk5xhvm-H67bQ"
    Then screen receives "tea" on "orders"
    And mallory learns that it is not authorized when it publishes "milk" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAABv2u0vJZ-xPGsCor-wImcgQ"
    When victim publishes "milk" to "orders" at QoS 1, with "audit=EQAAAAAAAAEAAAAAAAAABwAAAAAAAAABv2u0vJZ-xPGsCor-wImcgQ"
    Then screen receives "milk" on "orders"

  @tcp
  Scenario: The lane that the broker stamps for a client is that client's
    Given a broker with the configuration:
      """
      [[audit.rule]]
      client = "machine"
      forward_stamp = true
      """
    And phone connects
    And phone subscribes to "log" at QoS 1
    And machine connects
    When machine publishes "one" to "log" at QoS 1
    Then phone receives "one" on "log" as number 0 of its lane
    When I run `unbroken pipe -p PORT --to log --lane df79ca1230d81b05` with the input:
      """
      forged
      """
    Then the broker's log mentions "another client stamps client=unbroken-pipe-df79ca1230d81b05"
    And the broker's log mentions "owner=machine"
