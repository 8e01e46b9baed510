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

  Scenario: A proof is checked without a broker
    Given a file "no-proof.json":
      """
      { "unbroken_proof": 1 }
      """
    When I run `unbroken audit verify no-proof.json`
    Then it ends with code 1
    And its errors mention "is no proof file"
    When I run `unbroken audit verify absent.json`
    Then it ends with code 66

  Scenario: Nobody stamps
    When I run `unbroken audit status -p PORT -W 1`
    Then it ends with code 0
    And its output mentions "no stamped message was heard"

  Scenario: A filter that is none is refused
    When I run `unbroken pipe -p PORT --from plant/bad# --to plant/raw`
    Then it ends with code 2
    And its errors mention "plant/bad#"
