Feature: Many cores
  However many cores serve the clients, they behave as one broker.

  Scenario Outline: Clients meet wherever they are served
    Given a broker with <shards> shards
    And anna connects
    And bert connects
    And cleo connects
    And dora connects
    And anna subscribes to "room/#" at QoS 1
    And bert subscribes to "room/+" at QoS 2
    And cleo subscribes to "room/one"
    When dora publishes "hello" to "room/one" at QoS 2
    Then anna receives "hello" on "room/one" at QoS 1
    And bert receives "hello" on "room/one" at QoS 2
    And cleo receives "hello" on "room/one" at QoS 0

    Examples:
      | shards |
      | 1      |
      | 2      |
      | 8      |

  # [MQTT-3.8.4-1]
  Scenario Outline: A confirmed subscription misses nothing
    Given a broker with <shards> shards
    And writer connects
    And reader connects
    When reader subscribes to "a" at QoS 1
    And writer publishes "1" to "a" at QoS 1
    And reader subscribes to "b" at QoS 1
    And writer publishes "2" to "b" at QoS 1
    Then reader receives "1" on "a"
    And reader receives "2" on "b"

    Examples:
      | shards |
      | 2      |
      | 8      |

  Scenario Outline: Order holds across cores
    Given a broker with <shards> shards
    And writer connects
    And reader connects
    And reader subscribes to "log" at QoS 1
    When writer publishes 300 messages to "log" at QoS 1
    Then reader receives the 300 messages on "log" in order
    And reader receives nothing else

    Examples:
      | shards |
      | 2      |
      | 8      |

  Scenario Outline: A team shares its work across cores
    Given a broker with <shards> shards
    And boss connects
    And anna connects
    And anna subscribes to "$share/team/jobs" at QoS 1
    And bert connects
    And bert subscribes to "$share/team/jobs" at QoS 1
    And cleo connects
    And cleo subscribes to "$share/team/jobs" at QoS 1
    And dora connects
    And dora subscribes to "$share/team/jobs" at QoS 1
    When boss publishes 80 messages to "jobs" at QoS 1
    Then anna, bert, cleo and dora share the 80 messages

    Examples:
      | shards |
      | 2      |
      | 8      |

  Scenario Outline: Retained messages are found from everywhere
    Given a broker with <shards> shards
    And writer connects
    And writer publishes "1" to "kept/a" at QoS 1, retained
    And writer publishes "2" to "kept/b" at QoS 1, retained
    And writer publishes "" to "kept/c" at QoS 1, retained
    When reader connects
    And reader subscribes to "kept/+" at QoS 1
    Then reader receives in any order "1" and "2"
    And reader receives nothing else
    When other connects
    And other subscribes to "kept/b"
    Then other receives "2" on "kept/b", as a retained message

    Examples:
      | shards |
      | 2      |
      | 8      |

  Scenario Outline: A takeover finds the session wherever it is
    Given a broker with <shards> shards
    And anna connects with a persistent session
    And anna subscribes to "door" at QoS 1
    And bert connects
    When copy connects as anna with a persistent session
    And bert publishes "open" to "door" at QoS 1
    Then the broker tells anna that its session was taken over
    And copy still has its session
    And copy receives "open" on "door"

    Examples:
      | shards |
      | 2      |
      | 8      |

  Scenario: Cores that flood each other do not stand still
    Given a broker with 2 shards
    And 8 clients each subscribe to "flood"
    When each of them publishes 500 messages to "flood" at QoS 1 at the same time
    Then each of them receives all 4000 messages
