Feature: Limits of what is kept
  One device that does not come back costs others nothing, and what goes is named.

  # A forgotten client whose messages fill memory and disk.
  Scenario: What has waited for too long goes, by name
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      queue_age_max = "1s"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 10 to "log" at QoS 1
    When auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/dropped/too-old"
    Then auditor sooner or later receives "10" on "$SYS/broker/unbroken/dropped/too-old"
    And the broker's log mentions "too-old"
    When phone reconnects
    Then phone receives nothing

  Scenario: A full store lets go of the oldest, by name
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      store_bytes_max = "100 B"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 16 to "log" at QoS 1
    When auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/dropped/store-full"
    Then auditor sooner or later receives "2" on "$SYS/broker/unbroken/dropped/store-full"
    And the broker's log mentions "store-full"

  Scenario: A full store refuses publishers if its owner wants that, and no other client
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      store_bytes_max = "1 KiB"
      store_full = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And lamp connects
    And lamp subscribes to "hall" at QoS 1
    And machine connects
    Then machine sooner or later learns that a quota is exceeded when it publishes "x" to "log" at QoS 1
    And machine learns that all is well when it publishes "on" to "hall" at QoS 1
    And lamp receives "on" on "hall" at QoS 1
    When older connects by MQTT 3.1.1
    And older dares to publish "y" to "log" at QoS 1
    Then older is cut off without an acknowledgement
    When auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/dropped/store-full"
    Then auditor sooner or later receives "2" on "$SYS/broker/unbroken/dropped/store-full"

  # A limit that is less than what the store sets aside for its journals.
  @tcp
  Scenario: A full store takes messages again when no session waits for any
    Given a durable broker with the configuration:
      """
      [limits]
      store_bytes_max = "100 B"
      store_full = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 16 to "log" at QoS 1
    Then machine sooner or later learns that a quota is exceeded when it publishes "16" to "log" at QoS 1
    When I run `unbroken sessions rm --data DATA phone`
    Then its output mentions "removed phone"
    And machine sooner or later learns that no client subscribes to the topic when it publishes "17" to "log" at QoS 1
    When tablet connects with a persistent session
    And tablet subscribes to "log" at QoS 1
    Then machine sooner or later learns that all is well when it publishes "18" to "log" at QoS 1

  # The last reading of a meter, gone because the evaluation was down for too long.
  Scenario: A full session refuses publishers if its owner wants that, and loses nothing
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"

      [limits]
      queue_messages_max = 3
      queue_full = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And lamp connects
    And lamp subscribes to "#" at QoS 1
    And machine connects
    And machine publishes messages 1 to 3 to "log" at QoS 1
    Then lamp receives the 3 messages on "log" in order
    And machine sooner or later learns that a quota is exceeded when it publishes "3" to "log" at QoS 1
    And machine learns that a quota is exceeded when it publishes "x" to "log" at QoS 2
    And machine learns that all is well when it publishes "on" to "hall" at QoS 1
    When older connects by MQTT 3.1.1
    And older dares to publish "y" to "log" at QoS 1
    Then older is cut off without an acknowledgement
    When auditor connects
    And auditor subscribes to "$SYS/broker/unbroken/dropped/queue-full"
    Then auditor sooner or later receives "3" on "$SYS/broker/unbroken/dropped/queue-full"
    And the broker's log mentions "full=phone"
    When phone reconnects
    Then phone receives the 3 messages on "log" in order
    And machine sooner or later learns that all is well when it publishes "4" to "log" at QoS 1

  Scenario: A shared group is refused only when none of its members has room
    Given a durable broker with the configuration:
      """
      [limits]
      queue_messages_max = 2
      queue_full = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "$share/team/job" at QoS 1
    And phone disconnects
    And machine connects
    Then machine sooner or later learns that a quota is exceeded when it publishes "x" to "job" at QoS 1
    When tablet connects
    And tablet subscribes to "$share/team/job" at QoS 1
    Then machine sooner or later learns that all is well when it publishes "for tablet" to "job" at QoS 1
    And tablet receives "for tablet" on "job" at QoS 1

  Scenario: A session that was full when the broker was killed is full when it runs again
    Given a durable broker with the configuration:
      """
      [limits]
      queue_messages_max = 3
      queue_full = "refuse"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 3 to "log" at QoS 1
    When the broker is killed and started again
    And machine reconnects
    Then machine sooner or later learns that a quota is exceeded when it publishes "4" to "log" at QoS 1
    When phone reconnects
    Then phone receives the 3 messages on "log" in order

  # Zombies: sessions without a client, and what they hold.
  @tcp
  Scenario: Sessions whose clients are away are counted, with what they hold
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 7 to "log" at QoS 1
    When auditor connects
    And auditor subscribes to "$SYS/broker/sessions/sleeping/messages"
    Then auditor sooner or later receives "7" on "$SYS/broker/sessions/sleeping/messages"
    When I run `unbroken sessions ls --data DATA --json`
    Then its output mentions "phone"

  # A dead device that the operator does not see any more after a restart.
  Scenario: What a session holds is known after a restart, though its client does not come back
    Given a durable broker with the configuration:
      """
      [broker]
      sys_interval = "1s"
      """
    And phone connects with a persistent session
    And phone subscribes to "log" at QoS 1
    And phone disconnects
    And machine connects
    And machine publishes messages 1 to 7 to "log" at QoS 1
    When the broker is killed and started again
    And auditor connects
    And auditor subscribes to "$SYS/broker/sessions/sleeping/messages"
    Then auditor sooner or later receives "7" on "$SYS/broker/sessions/sleeping/messages"
    When phone reconnects
    Then phone receives the 7 messages on "log" in order
    And phone receives nothing else

  # One dead device fills the disk of a small machine before any limit is reached.
  @tcp
  Scenario: The broker says at the start that the disk has no room for a limit
    Given a durable broker with the configuration:
      """
      [limits]
      store_bytes_max = "1000000 GiB"
      """
    Then the broker's log mentions "the disk has less space than limits.store_bytes_max"
