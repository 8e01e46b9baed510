Feature: Mount points
  Clients live in a part of the topic tree without knowing it: two tenants use the same topics and do not see each other,
  and a service without a mount point sees both.

  Background:
    Given a durable broker with the configuration:
      """
      [[roles]]
      name = "tenants"
      clients = ["north*", "south*"]
      mount_point = "plant/{client}/"
      allow = ["all plant/{client}/#"]

      [[roles]]
      name = "service"
      clients = ["service"]
      allow = ["all #"]
      """

  Scenario: Two tenants with the same topics do not see each other
    Given service connects
    And north connects
    And south connects
    And north subscribes to "#" at QoS 1
    And south subscribes to "#" at QoS 1
    When north publishes "21.5" to "temperature" at QoS 1
    And south publishes "19.0" to "temperature" at QoS 1
    And service publishes "north is next" to "plant/north/end" at QoS 1
    And service publishes "south is next" to "plant/south/end" at QoS 1
    Then north receives "21.5" on "temperature" at QoS 1
    And north receives "north is next" on "end" at QoS 1
    And south receives "19.0" on "temperature" at QoS 1
    And south receives "south is next" on "end" at QoS 1

  Scenario: A service sees all tenants, and answers a request on the topic that it was asked for
    Given service connects
    And service subscribes to "plant/+/request"
    And north connects
    And north subscribes to "reply"
    When north publishes "time?" to "request", asking for a reply on "reply", with correlation "7"
    Then service receives "time?" on "plant/north/request", asking for a reply on "plant/north/reply"
    And north is answered on the topic it asked for when service replies

  Scenario: What is retained, a will and a shared group are a tenant's own
    Given service connects
    And service subscribes to "plant/#"
    And north connects with the will "gone" on "state"
    And south connects
    When south publishes "old" to "state", retained
    Then service receives "old" on "plant/south/state"
    When north loses its connection
    Then service receives "gone" on "plant/north/state"
    When north connects
    And north subscribes to "$share/workers/job"
    And south subscribes to "$share/workers/job"
    And service publishes "dig" to "plant/north/job"
    And service publishes "fill" to "plant/south/job"
    Then north receives "dig" on "job"
    And south receives "fill" on "job"

  Scenario: A persistent session keeps its part of the tree over a restart
    Given service connects
    And north connects with a persistent session
    And north subscribes to "orders/#" at QoS 1
    And north loses its connection
    And service publishes "first" to "plant/north/orders/1" at QoS 1
    When the broker is killed and started again
    And service connects
    And service publishes "second" to "plant/north/orders/2" at QoS 1
    And north reconnects with a persistent session
    Then north still has its session
    And north receives "first" on "orders/1" at QoS 1
    And north receives "second" on "orders/2" at QoS 1

  Scenario: A client whose mount point has changed begins a new session, and the log says so
    Given north connects with a persistent session
    And north subscribes to "orders/#" at QoS 1
    When the configuration is changed to:
      """
      [[roles]]
      name = "tenants"
      clients = ["north*", "south*"]
      mount_point = "factory/{client}/"
      allow = ["all plant/{client}/#", "all factory/{client}/#"]
      """
    And the operator reloads the configuration
    Then the broker tells north that an operator ended its connection
    When north reconnects with a persistent session
    Then north starts without a session
    And the broker's log mentions "mount-point-changed"
