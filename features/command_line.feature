@tcp
Feature: The command line
  A user of mosquitto_pub and mosquitto_sub knows unbroken pub and unbroken sub.

  Background:
    Given a broker

  Scenario Outline: A message goes from one command to the other
    Given reader listens by `<sub> -p PORT -t news/# -v`
    When I run `<pub> -p PORT -t news/today -m 'it is morning'`
    Then it ends with code 0
    And reader prints "news/today it is morning"

    Examples:
      | pub          | sub          |
      | unbroken pub | unbroken sub |

    @tool:mosquitto
    Examples: beside Mosquitto's own
      | pub           | sub           |
      | mosquitto_pub | unbroken sub  |
      | unbroken pub  | mosquitto_sub |
      | mosquitto_pub | mosquitto_sub |

  Scenario Outline: Every version and every quality can be asked for
    Given reader listens by `unbroken sub -p PORT -V <version> -q <qos> -t news -F '%q %p'`
    When I run `unbroken pub -p PORT -V <version> -q <qos> -t news -m hello`
    Then it ends with code 0
    And reader prints "<qos> hello"

    Examples:
      | version  | qos |
      | mqttv31  | 0   |
      | mqttv311 | 1   |
      | 311      | 2   |
      | mqttv5   | 0   |
      | 5        | 1   |
      | 5        | 2   |

  Scenario: A URL says it all
    Given reader listens by `unbroken sub -L mqtt://127.0.0.1:PORT/news`
    When I run `unbroken pub -L mqtt://127.0.0.1:PORT/news -m hello`
    Then it ends with code 0
    And reader prints "hello"

  Scenario: A file, lines and nothing can be published
    Given a file "letter.txt":
      """
      dear all
      """
    And reader listens by `unbroken sub -p PORT -t news -F '%l:%p'`
    When I run `unbroken pub -p PORT -t news -n`
    Then reader prints "0:"
    When I run `unbroken pub -p PORT -t news -l` with the input:
      """
      first
      second
      """
    Then it ends with code 0
    And reader prints "5:first"
    And reader prints "6:second"
    When I run `unbroken pub -p PORT -t news -f letter.txt`
    Then reader prints "9:dear all"

  Scenario: A counted listener ends by itself
    Given I run `unbroken pub -p PORT -t a -m one -r -q 1`
    And I run `unbroken pub -p PORT -t b -m two -r -q 1`
    When I run `unbroken sub -p PORT -t a -t b -C 2`
    Then it ends with code 0
    And its output mentions "one"
    And its output mentions "two"

  Scenario Outline: The exit code says that a wait was in vain
    When I run `<sub> -p PORT -t silence -W 1`
    Then it ends with code 27

    Examples:
      | sub          |
      | unbroken sub |

    @tool:mosquitto
    Examples:
      | sub           |
      | mosquitto_sub |

  Scenario: A broker that does not answer is an error that says what to do
    When I run `unbroken pub -p 1 -t a -m x`
    Then it ends with code 1
    And its errors mention "127.0.0.1"

  Scenario Outline: Mistakes in the arguments end with code 1, as with Mosquitto
    When I run `unbroken <arguments>`
    Then it ends with code 1

    Examples:
      | arguments                      |
      | pub -p PORT -m x               |
      | pub -p PORT -t a               |
      | pub -p PORT -t a/# -m x        |
      | pub -p PORT -t a -m x -q 3     |
      | sub -p PORT                    |
      | sub -p PORT -t a/#/b           |

  Scenario: Messages as JSON
    Given reader listens by `unbroken sub -p PORT -t news --json`
    When I run `unbroken pub -p PORT -t news -m hello -q 0`
    Then reader prints JSON with topic=news and payload=hello and qos=0

  Scenario: A retained message is kept, shown and removed
    Given I run `unbroken pub -p PORT -t value -m 42 -r -q 1`
    When I run `unbroken sub -p PORT -t value -C 1 -F '%r %p'`
    Then its output is "1 42"
    When I run `unbroken sub -p PORT -t value --remove-retained --retained-only -W 1`
    And I run `unbroken sub -p PORT -t value -W 1`
    Then it ends with code 27
    And its output is ""

  Scenario: A session is kept while its owner is away
    Given I run `unbroken sub -p PORT -i desk -c -q 1 -t news -E`
    And I run `unbroken pub -p PORT -t news -m missed -q 1`
    When I run `unbroken sub -p PORT -i desk -c -q 1 -t news -C 1`
    Then it ends with code 0
    And its output is "missed"

  Scenario: A will is left behind
    Given nurse connects
    And nurse subscribes to "status"
    And patient listens by `unbroken sub -p PORT -t x --will-topic status --will-payload gone`
    When patient is killed
    Then nurse receives "gone" on "status"

  Scenario: Properties of 5.0 are given as with Mosquitto
    Given phone connects
    And phone subscribes to "report"
    When I run `unbroken pub -p PORT -V 5 -t report -m fine -D publish content-type text/plain -D publish user-property a 1`
    Then phone receives "fine" on "report", with content type "text/plain", with "a=1"

  Scenario: Topics can be left out
    Given reader listens by `unbroken sub -p PORT -t house/# -T house/noise -v`
    When I run `unbroken pub -p PORT -t house/noise -m x`
    And I run `unbroken pub -p PORT -t house/light -m on`
    Then reader prints "house/light on"

  Scenario: Wrong user name and password
    Given a broker that lets in only the user "alice" with the password "wonderland"
    When I run `unbroken pub -p PORT -u alice -P wonderland -t a -m x`
    Then it ends with code 0
    When I run `unbroken pub -p PORT -u alice -P wrong -t a -m x -V 311`
    Then it ends with code 4
    When I run `unbroken pub -p PORT -u alice -P wrong -t a -m x -V 5`
    Then it ends with code 134

  Scenario Outline: Help teaches by example
    When I run `unbroken <command> --help`
    Then it ends with code 0
    And its output mentions "Examples:"
    And its output mentions "unbroken <command>"

    Examples:
      | command |
      | serve   |
      | check   |
      | pub     |
      | sub     |
      | passwd  |
      | bench   |

  Scenario Outline: Shells learn the commands
    When I run `unbroken completions <shell>`
    Then it ends with code 0
    And its output mentions "unbroken"

    Examples:
      | shell |
      | bash  |
      | zsh   |
      | fish  |

  Scenario: There is a manual
    When I run `unbroken man`
    Then it ends with code 0
    And its output mentions ".TH"

  Scenario: A listener told to stop ends well
    Given reader listens by `unbroken sub -p PORT -t news`
    When reader is stopped
    Then reader ends with code 0

  Scenario: The first message in which two ends differ is named
    Given a file "sent.log":
      """
      21.5
      21.7
      22.0
      """
    When I run `unbroken audit tree build --lines sent.log -o sent.tree`
    Then it ends with code 0
    When I run `unbroken audit tree build --lines -o received.tree` with the input:
      """
      21.5
      22.0
      """
    Then it ends with code 0
    When I run `unbroken audit tree compare sent.tree received.tree`
    Then it ends with code 1
    And its output is:
      """
      leaf 1 is the first that differs
        sent.tree, 3 leaves: 355d779c6cae6bd8032b1adfbc3c19a07ecad0c6
        received.tree, 2 leaves: ab19f95e3779aa9f3d6d6281fadcb87b17e12dc4
      """
    When I run `unbroken audit tree compare sent.tree sent.tree`
    Then it ends with code 0
    And its output mentions "the same 3 leaves"

  Scenario: What is no tree is refused by its name
    Given a file "sent.log":
      """
      21.5
      """
    When I run `unbroken audit tree show sent.log`
    Then it ends with code 65
    And its errors mention "sent.log: this is no heritage tree"
