Feature: Durability
  What the broker has acknowledged it still has after it was killed, and after the disk has failed.

  # Queues that are lost with the one node that has them. This broker is one node, and says so: see
  # "One machine" in docs/durability.md.
  Scenario: What a client has not taken outlives the broker that has it, in order
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And machine connects
    And machine publishes messages 1 to 5 to "log" at QoS 1
    When phone receives messages 1 to 3 on "log" in order
    And phone sees "4" on "log" and does not acknowledge it
    And phone sees "5" on "log" and does not acknowledge it
    And phone loses its connection
    And a second passes
    And machine publishes messages 6 to 500 to "log" at QoS 1
    And the broker is killed and started again
    And phone reconnects
    Then phone still has its session
    And phone receives messages 4 to 5 on "log" in order, sent again
    And phone receives messages 6 to 500 on "log" in order, for the first time
    And phone receives nothing else

  # Data that is gone after a restart, as no setting said where it should be.
  @tcp
  Scenario Outline: Without a setting the broker keeps its data with its user's, over restarts
    Given a broker of a user with <variable> set, and no data directory named
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    And sensor publishes "21" to "kitchen" at QoS 1, retained
    When the broker is killed and started again
    Then its store is in "<place>" of the user's home
    When phone reconnects
    Then phone still has its session
    And phone receives "open" on "door" at QoS 1
    And phone receives nothing else
    When phone disconnects
    And the operator stops the broker
    Then the broker ends with code 0
    When the broker is started again
    And visitor connects
    And visitor subscribes to "kitchen"
    Then visitor receives "21" on "kitchen", as a retained message

    Examples:
      | variable       | place                 |
      | HOME           | .local/state/unbroken |
      | XDG_STATE_HOME | unbroken              |

  @tcp
  Scenario: A broker in memory makes no file, and keeps nothing
    Given a broker of a user that keeps everything in memory
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1, retained
    Then the user's home is empty
    When sensor disconnects
    And the operator stops the broker
    Then the broker ends with code 0
    And the user's home is empty
    When the broker is started again
    And phone reconnects with a persistent session
    Then phone starts without a session
    And the user's home is empty

  # Messages of quality 2 that are silently missing.
  Scenario: A row of messages goes on where a killed broker left it
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 2
    And phone disconnects
    And machine connects with a persistent session
    When machine publishes messages 1 to 49 to "log" at QoS 2
    And the broker is killed and started again
    And machine reconnects
    And machine publishes messages 50 to 99 to "log" at QoS 2
    And phone reconnects
    Then phone receives the 99 messages on "log" in order
    And phone receives nothing else

  # Messages that are missing after the subscriber comes back.
  Scenario: Thousands of messages wait through a crash
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 2
    And phone loses its connection
    And machine connects
    When machine publishes messages 1 to 3500 to "log" at QoS 2
    And the broker is killed and started again
    And phone reconnects
    Then phone receives the 3500 messages on "log" in order
    And phone receives nothing else

  # Other topics starve after one acknowledgement is missing.
  Scenario: A message that is never acknowledged holds up no other
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone subscribes to "log" at QoS 1
    And machine connects
    And machine publishes "open" to "door" at QoS 1
    When phone sees "open" on "door" and does not acknowledge it
    And machine publishes messages 1 to 500 to "log" at QoS 1
    Then phone receives the 500 messages on "log" in order
    When a second passes
    And the broker is killed and started again
    And phone reconnects
    Then phone receives "open" on "door", sent again
    And phone receives nothing else

  # Retained messages and waiting messages that a limit of queues takes away.
  Scenario: As many retained messages as there are come to a new subscriber
    Given a durable broker with the configuration:
      """
      [limits]
      queue_messages_max = 10
      """
    And machine connects
    And machine publishes a retained message to each of 300 topics under "house"
    When the broker is killed and started again
    And phone connects with a persistent session
    And phone subscribes to "house/+" at QoS 1
    Then phone receives 300 retained messages

  # Messages that are lost when a session is taken over from a connection that is half dead.
  Scenario: Who takes over from a half-open connection gets what that one did not acknowledge
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    When phone says nothing any more
    And sensor publishes "shut" to "door" at QoS 1
    And copy connects as phone with a persistent session
    Then copy receives "open" on "door" at QoS 1, sent again
    And copy receives "shut" on "door" at QoS 1, sent again
    And copy receives nothing else

  # Messages that are skipped after number 65,535.
  Scenario: More messages wait than there are packet identifiers
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    When machine publishes messages 1 to 66000 to "log" at QoS 1
    And the broker is killed and started again
    And phone reconnects
    Then phone receives the 66000 messages on "log" in order
    And phone receives nothing else

  # What expired and was taken for lost.
  Scenario: A message that expires while it waits is named as expired
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And phone connects with a persistent session
    And phone subscribes to "offer" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "today only" to "offer" at QoS 1, expiring after 1 second
    And sensor publishes "this month" to "offer" at QoS 1, expiring after 1000 seconds
    When the broker is killed and started again
    And a second passes
    And phone reconnects
    Then phone receives "this month" on "offer", expiring within 999 seconds
    And phone receives nothing else
    When auditor connects
    And auditor subscribes to "$SYS/audit/dropped/expired"
    Then auditor sooner or later receives "1" on "$SYS/audit/dropped/expired"

  # A database that a power cut has corrupted.
  @tcp
  Scenario: What was acknowledged is there after power cuts, and nothing is damaged
    Given a durable broker on a disk that may fail, with the configuration:
      """
      [storage]
      on_corruption = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 2
    And phone disconnects
    And machine connects with a persistent session
    And machine publishes "21" to "kitchen" at QoS 1, retained
    When machine publishes messages 1 to 50 to "log" at QoS 2
    And the power is cut and comes back
    And machine reconnects
    Then machine still has its session
    When machine publishes messages 51 to 100 to "log" at QoS 2
    And the power is cut and comes back
    And the power is cut and comes back
    And phone reconnects
    Then phone still has its session
    And phone receives the 100 messages on "log" in order
    And phone receives nothing else
    When visitor connects
    And visitor subscribes to "kitchen"
    Then visitor receives "21" on "kitchen", as a retained message

  # A database of null bytes.
  @tcp
  Scenario: A journal of null bytes is set aside, and the broker goes on
    Given a durable broker
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1, retained
    When the broker is killed
    And its journal is overwritten with null bytes
    And the broker is started again
    Then the broker's log mentions "the store was damaged: it is set aside"
    And its damaged data lies beside the new
    And the report there mentions "Copied: 0 messages, 0 values"
    And the report there mentions "Not copied: all of 0.jnl"
    When sensor reconnects
    And sensor publishes "shut" to "door" at QoS 1, retained
    And the broker is killed and started again
    And phone connects
    And phone subscribes to "door"
    Then phone receives "shut" on "door", as a retained message

  # Sessions and retained messages that vanish with a word in no log.
  @tcp
  Scenario: A sector of null bytes in an old journal costs what lay in it
    Given a durable broker with the configuration:
      """
      [limits]
      queue_bytes_max = "1 GiB"
      """
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1, retained
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes 90 messages of 1000000 bytes to "log" at QoS 1
    When the broker is killed
    And a sector in the middle of its oldest journal is overwritten with null bytes
    And I run `unbroken doctor --data DATA`
    Then it ends with code 1
    And its output mentions "0.jnl is damaged"
    When the broker is started again
    Then the broker's log mentions "the store was damaged: it is set aside"
    And its damaged data lies beside the new
    And the report there mentions "in 0.jnl from byte"
    When visitor connects
    And visitor subscribes to "door"
    Then visitor receives "open" on "door", as a retained message

  # A broker that refuses to start, or does not, against the wish of its owner.
  @tcp
  Scenario: A damaged store is refused where its owner wants that
    Given a durable broker with the configuration:
      """
      [storage]
      on_corruption = "refuse"
      """
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1, retained
    When the broker is killed
    And its journal is overwritten with null bytes
    Then it does not start again and says "is damaged"

  # Damage that shows only when what waits is read.
  @tcp
  Scenario: Damage to what was written long ago ends the broker once, and is set aside
    Given a durable broker with the configuration:
      """
      [limits]
      queue_bytes_max = "1 GiB"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes 90 messages of 1000000 bytes to "log" at QoS 1
    When the broker is killed
    And what was written first is damaged on its disk
    And the broker is started again
    Then the broker ends with code 74
    And the broker's log mentions "the store is damaged: the broker ends"
    When I run `unbroken doctor --data DATA`
    Then it ends with code 1
    And its output mentions "found while in use"
    And its output mentions "is damaged: it is a table of log."
    When the broker is started again
    Then the broker's log mentions "the store was damaged: it is set aside"
    And its damaged data lies beside the new

  # Retained messages that were never on disk.
  Scenario Outline: Retained messages outlive the broker
    Given a durable broker
    And clients speak MQTT <version>
    And sensor connects
    And sensor publishes "21" to "kitchen" at QoS <qos>, retained
    And sensor publishes "18" to "cellar" at QoS 1, retained
    And sensor publishes "" to "cellar" at QoS 1, retained
    And sensor publishes "ready" to "sensor" at QoS 1
    When the broker is killed and started again
    And phone connects
    And phone subscribes to "#" at QoS 2
    Then phone receives "21" on "kitchen" at QoS <qos>, as a retained message
    And phone receives nothing else

    Examples:
      | version | qos |
      | 3.1.1   | 0   |
      | 3.1.1   | 1   |
      | 5.0     | 2   |

  # A client that is said to be well for good, since the broker died before it could say otherwise.
  # [MQTT-3.1.2-8]
  Scenario: A will that was waiting when the broker was killed is published once, in its time
    Given a durable broker
    And nurse connects with a persistent session
    And nurse subscribes to "status/patient" at QoS 1
    And patient connects with a persistent session, the will "gone" on "status/patient" delayed by 10 seconds
    When patient loses its connection
    And a second passes
    And the broker is killed and started again
    And nurse reconnects
    And a second passes
    Then nurse receives nothing
    When the ten seconds pass that a broker gives clients to come back
    Then nurse receives "gone" on "status/patient" at QoS 1, as a live message
    When a second passes
    And the broker is killed and started again
    And the ten seconds pass that a broker gives clients to come back
    And nurse reconnects
    Then nurse receives nothing

  # [MQTT-3.1.3-9]
  Scenario: A will that was waiting when the broker was killed is not published when the client comes back in time
    Given a durable broker
    And nurse connects with a persistent session
    And nurse subscribes to "status/patient" at QoS 1
    And patient connects with a persistent session, the will "gone" on "status/patient" delayed by 10 seconds
    When patient loses its connection
    And a second passes
    And the broker is killed and started again
    And nurse reconnects
    And patient reconnects with a persistent session
    Then patient still has its session
    When the ten seconds pass that a broker gives clients to come back
    Then nurse receives nothing
    When the broker is killed and started again
    And the ten seconds pass that a broker gives clients to come back
    And nurse reconnects
    Then nurse receives nothing

  # A session whose client does not come back.
  Scenario: A forgotten session ends in its time, although the broker was killed meanwhile
    Given a durable broker
    And phone connects with a session kept for 1 second
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And tablet connects with a session kept for 1000 seconds
    And tablet disconnects
    When the broker is killed and started again
    And the ten seconds pass that a broker gives clients to come back
    And phone reconnects
    And tablet reconnects
    Then phone starts without a session
    And tablet still has its session

  # [MQTT-3.1.2-23] [MQTT-4.1.0-1]
  Scenario Outline: A session outlives the broker
    Given a durable broker
    And clients speak MQTT <version>
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 2
    And phone subscribes to "log" at QoS 1
    And phone unsubscribes from "log"
    When the broker is killed and started again
    And phone reconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 2
    And sensor publishes "1" to "log" at QoS 1
    Then phone still has its session
    And phone receives "open" on "door" at QoS 2, for the first time
    And phone receives nothing else

    Examples:
      | version |
      | 3.1.1   |
      | 5.0     |

  @tcp @tool:paho-python
  Scenario: A session of somebody else's client outlives the broker
    Given a durable broker
    And phone connects with a persistent session, paho-python
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    When the broker is killed and started again
    And phone connects with a persistent session, paho-python
    Then phone still has its session
    And phone receives "open" on "door" at QoS 1

  Scenario: Subscriptions keep their options
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "chat" at QoS 1 without its own messages, under number 7
    And phone subscribes to "news" at QoS 1 keeping the retain flag
    When the broker is killed and started again
    And phone reconnects
    And phone publishes "me" to "chat" at QoS 1
    And sensor connects
    And sensor publishes "you" to "chat" at QoS 1
    And sensor publishes "today" to "news" at QoS 1, retained
    Then phone receives "you" on "chat", under number 7
    And phone receives "today" on "news", as a retained message
    And phone receives nothing else

  # [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.6.0-1]
  Scenario Outline: What was under way is sent again, in order
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS <qos>
    And sensor connects
    And sensor publishes "open" to "door" at QoS <qos>
    And sensor publishes "shut" to "door" at QoS <qos>
    When phone sees "open" on "door" and does not acknowledge it
    And phone sees "shut" on "door" and does not acknowledge it
    And a second passes
    And the broker is killed and started again
    And phone reconnects
    Then phone receives "open" on "door", sent again
    And phone receives "shut" on "door", sent again
    And phone receives nothing else

    Examples:
      | qos |
      | 1   |
      | 2   |

  # [MQTT-4.3.3-8]
  Scenario: A message that was half handed over is taken once
    Given a durable broker
    And phone connects
    And phone subscribes to "account" at QoS 2
    And bank connects with a persistent session
    When bank sends half of the exact-once exchange of "pay" to "account" 2 times
    And the broker is killed and started again
    And phone reconnects
    And phone subscribes to "account" at QoS 2
    And bank reconnects
    And bank sends half of the exact-once exchange of "pay" to "account" 2 times
    And bank completes the exchange
    Then bank still has its session
    And phone receives nothing

  Scenario: Waiting messages keep what they carry
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "orders" at QoS 2
    And phone disconnects
    And shop connects
    And shop publishes "tea" to "orders" at QoS 2, as text, with content type "text/plain", asking for a reply on "answers", with correlation "42", with "table=7", expiring after 1000 seconds
    When the broker is killed and started again
    And phone reconnects
    Then phone receives "tea" on "orders" at QoS 2, as text, with content type "text/plain", asking for a reply on "answers", with correlation "42", with "table=7", expiring within 1000 seconds

  Scenario: A broker that the operator stops keeps the same
    Given a durable broker
    And phone connects with a persistent session
    And phone subscribes to "door" at QoS 1
    And phone disconnects
    And sensor connects
    And sensor publishes "open" to "door" at QoS 1
    When the operator stops the broker
    Then the broker ends with code 0
    When the broker is started again
    And phone reconnects
    Then phone receives "open" on "door", for the first time

  # A number that is given twice.
  Scenario: The broker's numbers go on after a stop, and begin again behind a crash
    Given a durable broker with the configuration:
      """
      [[audit.rule]]
      client = "machine"
      forward_stamp = true
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And machine connects with a persistent session
    When machine publishes "one" to "log" at QoS 1
    Then phone receives "one" on "log" as number 0 of its lane
    When the operator stops the broker
    Then the broker ends with code 0
    When the broker is started again
    And phone reconnects
    And machine reconnects
    And machine publishes "two" to "log" at QoS 1
    Then phone receives "two" on "log" as number 1 of the same epoch
    When a second passes
    And the broker is killed and started again
    And phone reconnects
    And machine reconnects
    And machine publishes "three" to "log" at QoS 1
    Then phone receives "three" on "log" as number 0 of a later epoch

  @tcp
  Scenario: A second broker on the same data says who has it
    Given a durable broker
    Then another broker on its data does not start and says "in use by process"

  # Whether an acknowledgement is worth something when the disk is full.
  @tcp
  Scenario Outline: On a disk that fails nothing more is acknowledged
    Given a durable broker on a disk that may fail
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 100 to "log" at QoS 1
    When the disk <fails>
    And machine dares to publish "101" to "log" at QoS 1
    Then machine is cut off without an acknowledgement
    And the broker ends with code 74
    And the broker's log mentions "<words>"
    When the broker loses what is not safe on its disk
    And the broker is started again
    And phone reconnects
    Then phone receives the 100 messages on "log" in order
    And phone receives nothing else

    Examples:
      | fails                   | words                   |
      | is full                 | No space left on device |
      | does not write any more | Input/output error      |
      | does not sync once      | Input/output error      |

  # A broker that stops for everybody because of what a few need.
  @tcp
  Scenario Outline: On a disk that fails a broker may go on for those who need nothing kept
    Given a durable broker on a disk that may fail, with the configuration:
      """
      [storage]
      on_error = "read_only"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 100 to "log" at QoS 1
    And machine publishes "21" to "kitchen" at QoS 1, retained
    And tablet connects with a persistent session
    And lamp connects
    And lamp subscribes to "hall" at QoS 2
    And watcher connects
    And watcher subscribes to "$SYS/broker/unbroken/store"
    When the disk <fails>
    And machine dares to publish "101" to "log" at QoS 1
    Then watcher sooner or later receives something like "<words>" on "$SYS/broker/unbroken/store"
    And machine never learns that it was stored
    And the broker's log mentions "<words>"
    And the broker tells tablet that the store has failed
    When sensor connects
    And sensor publishes "on" to "hall" at QoS 2
    Then lamp receives "on" on "hall" at QoS 2
    And sensor learns that the store has failed when it publishes "102" to "log" at QoS 1
    When lamp subscribes to "kitchen"
    Then lamp receives "21" on "kitchen", as a retained message
    When phone tries to connect with a persistent session
    Then phone is refused because the broker is unavailable
    When auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/store"
    Then auditor receives something like "<words>" on "$SYS/broker/unbroken/store"
    When I run `unbroken doctor --data DATA`
    Then it ends with code 1
    And its output mentions "the store has failed: "
    When I run `unbroken sessions ls --data DATA`
    Then its errors mention "the store has failed"
    When I run `unbroken sessions rm --data DATA phone`
    Then it ends with code 74
    And its errors mention "cannot remove it: the store has failed"
    When the operator stops the broker
    Then the broker ends with code 74
    When the broker loses what is not safe on its disk
    And the broker is started again
    And phone reconnects
    Then phone receives the 100 messages on "log" in order
    And phone receives nothing else

    Examples:
      | fails                   | words                   |
      | is full                 | No space left on device |
      | does not write any more | Input/output error      |
      | does not sync once      | Input/output error      |

  @tcp
  Scenario: The operator learns why the store failed
    Given a durable broker on a disk that may fail
    And machine connects
    When the disk does not sync once
    And machine dares to publish "21" to "kitchen" at QoS 1, retained
    Then the broker ends with code 74
    When I run `unbroken doctor --data DATA`
    Then it ends with code 1
    And its output mentions "the store failed in the last run: "
