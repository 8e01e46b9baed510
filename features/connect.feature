Feature: Connecting
  Any MQTT client connects to the broker, whatever version it speaks, and learns why when it cannot.

  Background:
    Given a broker

  # [MQTT-3.1.4-5] [MQTT311-3.1.4-4]
  Scenario Outline: A client of any version connects and publishes
    Given clients speak MQTT <version>
    When kitchen connects
    And phone connects
    And phone subscribes to "kitchen/#"
    And kitchen publishes "21.5" to "kitchen/temperature"
    Then phone receives "21.5" on "kitchen/temperature"

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario Outline: Clients of different versions talk to each other
    When old connects by MQTT <one>
    And new connects by MQTT <other>
    And old subscribes to "to/old" at QoS 2
    And new subscribes to "to/new" at QoS 2
    And old publishes "hello" to "to/new" at QoS 2
    And new publishes "hello yourself" to "to/old" at QoS 2
    Then new receives "hello" on "to/new" at QoS 2
    And old receives "hello yourself" on "to/old" at QoS 2

    Examples:
      | one   | other |
      | 3.1   | 3.1.1 |
      | 3.1   | 5.0   |
      | 3.1.1 | 5.0   |

  # [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16]
  Scenario: A client without a client id is given one
    When visitor connects with no client id
    Then visitor is given a client id

  # [MQTT311-3.1.3-7] [MQTT311-3.1.3-8]
  Scenario: An old client without a client id cannot keep a session
    Given clients speak MQTT 3.1.1
    When visitor tries to connect with no client id, a persistent session
    Then visitor is refused because the client id is not valid

  # [MQTT-4.12.0-1]
  Scenario: A client that wants an unknown kind of authentication is refused
    When robot tries to connect with the authentication method "KERBEROS"
    Then robot is refused because the authentication method is unknown

  Scenario: A client with an unusual client id is welcome
    When someone connects with the client id "Büro/Drucker #2 🖨"
    Then someone is still connected

  # [MQTT-3.1.2-2]
  Scenario: A client of a future version learns that it is too new
    When future opens a connection and sends `10 0e 00 04 4d 51 54 54 06 02 00 00 00 00 01 63`
    Then future is refused because the version is not supported
