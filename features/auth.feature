Feature: Who may come in
  From this machine any client may connect; with a password file only the users in it; from outside no client unless the
  configuration allows it.

  # [MQTT-3.1.4-2]
  Scenario Outline: A user with the right password comes in
    Given a broker that lets in only the user "alice" with the password "wonderland"
    And clients speak MQTT <version>
    When phone connects with the user "alice" and "wonderland"
    Then phone is still connected

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  # [MQTT-3.1.4-2] [MQTT-3.2.2-7] [MQTT311-3.2.2-5]
  Scenario Outline: A wrong password, an unknown user, a user without password are refused
    Given a broker that lets in only the user "alice" with the password "wonderland"
    And clients speak MQTT <version>
    When phone tries to connect with <who>
    Then phone is refused because the user name or password is wrong

    Examples:
      | version | who                                |
      | 3.1     | the user "alice" and "looking-glass" |
      | 3.1.1   | the user "hatter" and "wonderland"   |
      | 3.1.1   | the user "alice"                     |
      | 5.0     | the user "alice" and "looking-glass" |
      | 5.0     | the user "hatter" and "wonderland"   |
      | 5.0     | the user "alice" and ""              |

  Scenario Outline: Who gives no name is refused where names are required
    Given a broker that lets in only the user "alice" with the password "wonderland"
    And clients speak MQTT <version>
    When phone tries to connect
    Then phone is refused because it is not authorized

    Examples:
      | version |
      | 3.1     |
      | 3.1.1   |
      | 5.0     |

  Scenario Outline: Guesses from one address do not keep out others
    Given a broker that lets in only the user "alice" with the password "wonderland"
    And clients speak MQTT <version>
    When 200 clients somewhere else guess the password of "alice"
    And phone connects with the user "alice" and "wonderland"
    Then phone is still connected

    Examples:
      | version |
      | 3.1.1   |
      | 5.0     |

  Scenario: Who was connected a moment ago comes back among guesses from the same address
    Given a broker that lets in only the user "alice" with the password "wonderland"
    When phone connects with the user "alice" and "wonderland"
    And 200 clients guess the password of "alice"
    And phone reconnects
    Then phone is still connected

  Scenario: Without a password file a user name is welcome and not checked
    Given a broker
    When phone connects with the user "anybody" and "anything"
    Then phone is still connected

  Scenario: A listener beyond this machine must say who may come in
    Given a file "open.toml":
      """
      [[listeners]]
      address = "0.0.0.0:0"
      """
    When I run `unbroken serve -c open.toml`
    Then it ends with code 78
    And its errors mention "allow_anonymous = true"
    And its errors mention "password_file"

  Scenario: A listener beyond this machine without TLS must be called insecure
    Given a file "open.toml":
      """
      [[listeners]]
      address = "0.0.0.0:0"
      allow_anonymous = true
      """
    When I run `unbroken serve -c open.toml`
    Then it ends with code 78
    And its errors mention "open.toml:2"
    And its errors mention "insecure = true"
    When I run `unbroken serve --bind 0.0.0.0 --allow-anonymous`
    Then it ends with code 78
    And its errors mention "add --insecure"

  @tool:mosquitto
  Scenario: A password file of Mosquitto is read as it is
    Given I run `mosquitto_passwd -c -b users alice wonderland`
    And it ends with code 0
    And a broker whose listener has the password file "users"
    When I run `mosquitto_pub -p PORT -u alice -P wonderland -t a -m x`
    Then it ends with code 0
    When I run `mosquitto_pub -p PORT -u alice -P wrong -t a -m x`
    Then it ends with code 4
