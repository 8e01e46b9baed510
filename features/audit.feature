@tcp
Feature: Stages and audits from the shell
  `pipe` stamps, checks and transforms from the shell; `audit` says what can be said of the lanes that pass.

  Background:
    Given a broker

  Scenario: Lines go from one stage to another
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/raw`
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      21.5
      21.7
      """
    Then it ends with code 0
    And reader prints "21.5"
    And reader prints "21.7"

  Scenario: A command transforms each message
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/loud`
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud -- stdbuf -oL tr a-z A-Z` and listens to "plant/raw"
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      hot
      cold
      """
    Then reader prints "HOT"
    And reader prints "COLD"

  Scenario: A command that fails is named, and what it was given are stored for another try
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/loud`
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s -- false` and listens to "plant/raw"
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      hot
      cold
      """
    Then mill ends with code 74
    And its errors mention "the command `false` has ended: exit status: 1"
    And its errors mention "are stored for another try"
    When mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s -- stdbuf -oL tr a-z A-Z` and listens to "plant/raw"
    Then reader prints "HOT"
    And reader prints "COLD"

  Scenario: A stage that is stopped and started again gets what was published while it was away
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/loud`
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s` and listens to "plant/raw"
    When mill is stopped
    Then mill ends with code 0
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      hot
      cold
      """
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s` and listens to "plant/raw"
    Then reader prints "hot"
    And reader prints "cold"

  Scenario: A stage whose command failed gets what was published while it was away
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/loud`
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s -- head -n 1` and listens to "plant/raw"
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      first
      second
      """
    Then mill ends with code 74
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      third
      """
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --spool s` and listens to "plant/raw"
    Then reader prints "first"
    And reader prints "second"
    And reader prints "third"

  Scenario Outline: A stage that is killed and started again at once is no intruder in its own lane
    Given reader listens by `unbroken sub -p PORT -V 5 -t plant/loud`
    And mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --lane 0000000000000007 <memory>` and listens to "plant/raw"
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      hot
      """
    Then reader prints "hot"
    When mill is killed
    And again runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --lane 0000000000000007 <memory>` and listens to "plant/raw"
    Then the broker's log mentions "<is back>"
    And a message to "plant/raw" has a receiver
    When I run `unbroken pipe -p PORT --to plant/raw` with the input:
      """
      cold
      """
    Then reader prints a line with "cold"
    And the broker's log does not mention "another client stamps"

    Examples:
      | memory    | is back                                             |
      | --keep 60 | session ended client=unbroken-pipe-0000000000000007 |
      | --spool s | connected client=unbroken-pipe-0000000000000007     |

  Scenario Outline: Of two stages with one lane the one that is thrown out says why
    Given mill runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --lane 0000000000000007 <memory>` and listens to "plant/raw"
    When other runs `unbroken pipe -p PORT --from plant/raw --to plant/loud --lane 0000000000000007 <other memory>` and listens to "plant/raw"
    Then mill ends with code 69
    And its errors mention "another client has connected as unbroken-pipe-0000000000000007, the client id of lane 0000000000000007: two producers use it"

    Examples:
      | memory    | other memory |
      | --keep 60 | --keep 60    |
      | --spool s | --spool copy |

  Scenario: A command that does not exist is named
    When I run `unbroken pipe -p PORT --from plant/raw --to plant/loud -- no-such-command`
    Then it ends with code 74
    And its errors mention "cannot start the command `no-such-command`"

  Scenario: Each fault is shown while somebody watches
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      20.3
      20.4
      20.5
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    When the recording is played with number 1 twice, without number 3, with number 4 altered
    Then watcher prints a line with "number 1 duplicated: it had come before, identical in every byte"
    And watcher prints a line with "number 4 altered: topic or payload does not fit its stamp"
    And watcher prints a line with "number 3 may be missing"
    And watcher prints a line with "number 3 lost: it was issued and did not come, and no drop record names it"
    And watcher prints a line with "all possibly missing messages have come or are named"
    And watcher prints a line with "numbers 0 to 5 faulty"

  Scenario: Each fault is explained with its neighbours
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      20.3
      """
    And explainer runs `unbroken audit explain -p PORT -t plant/raw -W 5` and listens to "plant/raw"
    When the recording is played without number 2
    Then explainer ends with code 1
    And its output mentions "first window that is not proven: numbers 0 to 3, faulty"
    And its output mentions "number 2 lost: it was issued and did not come"
    And its output mentions "before it: number 1, after"
    And its output mentions "on plant/raw: 20.1"
    And its output mentions "after  it: number 3, after"
    And its output mentions "on plant/raw: 20.3"

  Scenario: What may be missing and who is silent is shown, with its end
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 5` and listens to "here/status"
    When the recording is played without number 1, without its checkpoints
    Then watcher prints a line with "number 1 may be missing"
    And watcher prints a line with "no checkpoint for 2."
    And status ends with code 3
    And its output mentions "number 1 may be missing; no checkpoint for"
    When the checkpoints of the recording are played
    Then watcher prints a line with "a checkpoint again, after"
    And watcher prints a line with "number 1 lost"

  Scenario: A producer that begins again loses its first message, and that is named
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 6` and listens to "here/status"
    When the recording is played
    Then watcher prints a line with "numbers 0 to 1 proven"
    Given a recording of these lines on "plant/raw", by the same producer after a restart:
      """
      30.0
      30.1
      30.2
      """
    When the recording is played without number 0
    Then watcher prints a line with "number 0 lost"
    And status ends with code 1
    And its output mentions "OUT OF SCOPE"

  Scenario: What is out of scope is shown, and the lane is not plainly proven
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 4` and listens to "here/status"
    When the recording is played without number 0
    Then watcher prints a line with "numbers below 1024 are out of scope"
    And status ends with code 3
    And its output mentions "1024       0  not proven yet"

  Scenario Outline: A message whose stamp is <wrong> is injected
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw -W 5` and listens to "plant/raw"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 5` and listens to "here/status"
    When the recording is played with number 1 <wrong>
    Then watcher prints a line with "on plant/raw: injected: <reason>"
    And watcher ends with code 1
    And status ends with code 1
    And its output mentions "on plant/raw: injected: <reason>"

    Examples:
      | wrong              | reason                                         |
      | unstamped          | it has no stamp, and others on this topic have |
      | stamped twice      | it has more than one stamp                     |
      | stamped unreadably | its stamp cannot be read: character 54         |

  Scenario: A fault of another topic's lane is not counted
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And status runs `unbroken audit status -p PORT -t plant/other -t here/status -W 4` and listens to "here/status"
    And watcher runs `unbroken audit watch -p PORT` and listens to "plant/raw"
    When the recording is played with number 1 altered
    Then watcher prints a line with "broker: lane"
    And status ends with code 3
    And its output mentions "not in this filter"

  Scenario: A checkpoint that does not fit its tag is named with its topic
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw -W 5` and listens to "plant/raw"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 5` and listens to "here/status"
    When the recording is played with its checkpoints altered
    Then watcher prints a line with "refused: the tag does not fit"
    And watcher ends with code 1
    And status ends with code 1
    And its output mentions "on audit/checkpoint/"

  Scenario: A lane that was recorded long ago and is played again is shown as old
    Given a recording on "plant/7" that is decades old
    And watcher runs `unbroken audit watch -p PORT -t plant/7` and listens to "plant/7"
    And status runs `unbroken audit status -p PORT -t plant/7 -t here/status -W 5` and listens to "here/status"
    When the recording is played
    Then watcher prints a line with "old: checkpoints of 1970-01-01"
    And watcher prints a line with "numbers 0 to 4 proven"
    And status ends with code 3
    And its output mentions "old: checkpoints of 1970-01-01"

  Scenario: A listener that loses its connection says from when on it heard nothing
    Given a durable broker
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    When the broker is killed
    Then watcher prints a line with "this listener was not connected from"

  Scenario: A proof that lacks others of its window says so
    Given a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      20.2
      """
    And exporter runs `unbroken audit export -p PORT -t plant/raw -t here/exporter -W 4 --number 1` and listens to "here/exporter"
    When the recording is played without number 2
    Then exporter ends with code 1
    And its errors mention "number 1 came, but 1 other message of its window did not"

  Scenario: A lane without a key is said to be proven against accidents only
    When I run `unbroken audit status -p PORT -W 1`
    Then its errors mention "without a key (--key-file) lanes are proven against accidents only"

  Scenario: A proof is checked without a broker, against a root that was saved
    Given a recording of these lines on "plant/raw":
      """
      21.5
      21.7
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw` and listens to "plant/raw"
    And exporter runs `unbroken audit export -p PORT -t plant/raw -t here/exporter --number 0` and listens to "here/exporter"
    When the recording is played
    Then watcher shows the root of the lane, which is kept as ROOT
    And exporter ends with code 0
    When its output is kept as "proof.json"
    And the operator stops the broker
    And I run `unbroken audit verify proof.json --root ROOT`
    Then it ends with code 0
    And its output mentions "the root of the lane is the one that you saved"
    When I run `unbroken audit verify proof.json --root 00000000000000000000000000000000`
    Then it ends with code 1
    And its errors mention "the saved root"
    When in the file "proof.json" `MjEuNQ==` becomes `MjEuNw==`
    And I run `unbroken audit verify proof.json --root ROOT`
    Then it ends with code 1
    And its errors mention "topic or payload is not what the producer stamped"

  Scenario: A file that is no proof is refused
    Given a file "no-proof.json":
      """
      { "unbroken_proof": 1 }
      """
    When I run `unbroken audit verify no-proof.json`
    Then it ends with code 1
    And its errors mention "is no proof file"
    When I run `unbroken audit verify absent.json`
    Then it ends with code 66

  Scenario: No producer stamps
    When I run `unbroken audit status -p PORT -W 1`
    Then it ends with code 3
    And its output mentions "no stamped message was received"

  Scenario: What the broker says of its own lanes is no judgement from end to end
    Given status runs `unbroken audit status -p PORT -W 4` and listens to "here/status"
    And feeder connects
    When feeder publishes "tea" to "orders" at QoS 1
    Then status ends with code 3
    And its output mentions "nothing was judged from end to end; what the broker says of its own lanes ends at the broker"

  Scenario: A filter that is none is refused
    When I run `unbroken pipe -p PORT --from plant/bad# --to plant/raw`
    Then it ends with code 2
    And its errors mention "plant/bad#"

  Scenario: A line with a key is read with the same key
    Given a file "key" that only its owner can read:
      """
      000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
      """
    And watcher runs `unbroken audit watch -p PORT -t plant/raw --key-file key` and listens to "plant/raw"
    When I run `unbroken pipe -p PORT --to plant/raw --key-file key` with the input:
      """
      21.5
      """
    Then it ends with code 0
    And watcher prints a line with "number 0 proven"

  Scenario: Another key is named as what it is
    Given a file "key" that only its owner can read:
      """
      000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
      """
    And a file "other" that only its owner can read:
      """
      ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
      """
    And reader runs `unbroken pipe -p PORT --from plant/raw --key-file other` and listens to "plant/raw"
    And watcher runs `unbroken audit watch -p PORT -t plant/raw -t here/watcher --key-file other` and listens to "here/watcher"
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 5` and listens to "here/status"
    When I run `unbroken pipe -p PORT --to plant/raw --key-file key` with the input:
      """
      21.5
      """
    Then reader warns "give this subscriber the algorithm and the key of its producer"
    And watcher prints a line with "give this subscriber the algorithm and the key of its producer"
    And status ends with code 3
    And its output mentions "keyed by another key"

  Scenario: Stamps of another algorithm beside a lane that is judged are not passed over
    Given a file "key" that only its owner can read:
      """
      000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
      """
    And a recording of these lines on "plant/raw":
      """
      20.0
      20.1
      """
    And status runs `unbroken audit status -p PORT -t plant/raw -t here/status -W 5` and listens to "here/status"
    And all runs `unbroken audit status -p PORT -t plant/raw -t here/all -W 5 --all-lanes` and listens to "here/all"
    When the recording is played
    And I run `unbroken pipe -p PORT --to plant/raw --key-file key` with the input:
      """
      21.5
      """
    Then status ends with code 3
    And its output mentions "on plant/raw: not judged: a stamp of algorithm Blake3 for lane"
    And all ends with code 3
    And its output mentions "on plant/raw: not judged: a stamp of algorithm Blake3 for lane"

  Scenario: A key that is not there is named
    When I run `unbroken pipe -p PORT --to plant/raw --key-file absent`
    Then it ends with code 66
    And its errors mention "cannot read the key absent"

  Scenario: A key that everybody can read is refused
    Given a file "key" that everybody can read:
      """
      000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
      """
    When I run `unbroken pipe -p PORT --to plant/raw --key-file key`
    Then it ends with code 66
    And its errors mention "every user of this machine can read it: chmod 600 key"

  Scenario: A key that is none is refused
    Given a file "key" that only its owner can read:
      """
      0001
      """
    When I run `unbroken audit status -p PORT --key-file key`
    Then it ends with code 66
    And its errors mention "it is neither 64 hexadecimal digits nor 32 bytes"
