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

  # A unix socket has no addresses.
  @tcp
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

  Scenario: A token that its issuer has signed lets its user in, and no other does
    Given a file "secret":
      """
      the plant's secret, which nobody else knows
      """
    And a broker beside these files, with listeners of its own:
      """
      [[listeners]]
      address = "127.0.0.1:0"
      jwt = ["plant"]

      [[jwt]]
      name = "plant"
      algorithms = ["HS256"]
      key_file = "./secret"

      [[roles]]
      granted = ["operator"]
      allow = ["publish,receive,subscribe of/{user}"]
      """
    # Of ann, until 2100, with the role operator.
    When phone connects with the user "anybody" and "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsInJvbGVzIjpbIm9wZXJhdG9yIl19.B7fBBGcxmGi0KgYfMfixqSjdUPcq8cHlwvZ3xeTBS9g"
    And phone subscribes to "of/ann" at QoS 1
    And phone publishes "21.5" to "of/ann" at QoS 1
    Then phone receives "21.5" on "of/ann" at QoS 1
    And phone learns that it is not authorized when it publishes "x" to "of/bob" at QoS 1
    # The same, with another signature.
    When other tries to connect with the user "ann" and "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDAsInJvbGVzIjpbIm9wZXJhdG9yIl19.A7fBBGcxmGi0KgYfMfixqSjdUPcq8cHlwvZ3xeTBS9g"
    Then other is refused because the user name or password is wrong
    # It has ended in 2001.
    When late tries to connect with the user "ann" and "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjEwMDAwMDAwMDAsInJvbGVzIjpbIm9wZXJhdG9yIl19.EHopDxF1YlwnqiK3V-xTF4rdIpg1rQKFOdhrnUYaODE"
    Then late is refused because it is not authorized
    And the broker's log mentions "its token has expired"

  Scenario: A service that does not answer lets in nobody
    Given a broker with listeners of its own:
      """
      [[listeners]]
      address = "127.0.0.1:0"
      http_auth = ["accounts"]

      [[http_auth]]
      name = "accounts"
      url = "http://127.0.0.1:9/nobody-listens-here"
      """
    When phone tries to connect with the user "ann" and "secret"
    Then phone is refused because the broker is unavailable
    And the broker's log mentions "does not answer"

  Scenario: A configuration names what its tokens lack
    Given a file "open.toml":
      """
      [[listeners]]
      jwt = ["plant"]

      [[jwt]]
      name = "plant"
      algorithms = ["none"]
      jwks_url = "http://id.example.org/keys"
      """
    When I run `unbroken check -c open.toml`
    Then it ends with code 1
    And its errors mention "jwt.0.algorithms"
    And its errors mention "https://"
