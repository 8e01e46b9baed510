@tcp
Feature: Clients of other people
  Libraries written by others, each in its own reading of the standard, work with the broker.

  Background:
    Given a broker
    And phone connects
    And phone subscribes to "from/library" at QoS 2

  Scenario Outline: A library publishes and subscribes at every quality
    Given display connects by MQTT <version> with <library>
    And display subscribes to "to/library" at QoS 2
    When display publishes "zero" to "from/library" at QoS 0
    And display publishes "one" to "from/library" at QoS 1
    And display publishes "two" to "from/library" at QoS 2
    Then phone receives "zero" on "from/library" at QoS 0
    And phone receives "one" on "from/library" at QoS 1
    And phone receives "two" on "from/library" at QoS 2
    When phone publishes "zero" to "to/library" at QoS 0
    And phone publishes "one" to "to/library" at QoS 1
    And phone publishes "two" to "to/library" at QoS 2
    Then display receives "zero" on "to/library" at QoS 0
    And display receives "one" on "to/library" at QoS 1
    And display receives "two" on "to/library" at QoS 2

    @tool:paho-python
    Examples:
      | library     | version |
      | paho-python | 3.1     |
      | paho-python | 3.1.1   |
      | paho-python | 5.0     |

    @tool:mqtt-js
    Examples:
      | library | version |
      | mqtt-js | 3.1     |
      | mqtt-js | 3.1.1   |
      | mqtt-js | 5.0     |

    @tool:paho-go
    Examples:
      | library | version |
      | paho-go | 3.1     |
      | paho-go | 3.1.1   |

  Scenario Outline: A library finds its session and what it missed
    Given display connects by MQTT <version> with <library>, a persistent session
    And display subscribes to "to/library" at QoS 1
    When display disconnects
    And phone publishes "missed" to "to/library" at QoS 1
    And display connects by MQTT <version> with <library>, a persistent session
    Then display still has its session
    And display receives "missed" on "to/library" at QoS 1

    @tool:paho-python
    Examples:
      | library     | version |
      | paho-python | 3.1.1   |
      | paho-python | 5.0     |

    @tool:mqtt-js
    Examples:
      | library | version |
      | mqtt-js | 3.1.1   |
      | mqtt-js | 5.0     |

    @tool:paho-go
    Examples:
      | library | version |
      | paho-go | 3.1.1   |

  Scenario Outline: A library that dies leaves its will
    Given display connects by MQTT <version> with <library>, the will "gone" on "from/library"
    When display loses its connection
    Then phone receives "gone" on "from/library" at QoS 1

    @tool:paho-python
    Examples:
      | library     | version |
      | paho-python | 5.0     |

    @tool:mqtt-js
    Examples:
      | library | version |
      | mqtt-js | 5.0     |

    @tool:paho-go
    Examples:
      | library | version |
      | paho-go | 3.1.1   |

  Scenario Outline: A library gets the retained message
    Given phone publishes "kept" to "to/library" at QoS 1, retained
    When display connects by MQTT <version> with <library>
    And display subscribes to "to/+" at QoS 1
    Then display receives "kept" on "to/library", as a retained message
    When display unsubscribes from "to/+"
    And phone publishes "late" to "to/library" at QoS 1
    And display subscribes to "other" at QoS 1
    And phone publishes "next" to "other" at QoS 1
    Then display receives "next" on "other"

    @tool:paho-python
    Examples:
      | library     | version |
      | paho-python | 3.1.1   |
      | paho-python | 5.0     |

    @tool:mqtt-js
    Examples:
      | library | version |
      | mqtt-js | 3.1.1   |
      | mqtt-js | 5.0     |

    @tool:paho-go
    Examples:
      | library | version |
      | paho-go | 3.1.1   |

  @tool:paho-python @tool:mqtt-js @tool:paho-go
  Scenario: Three libraries talk to each other
    Given snake connects by MQTT 5.0 with paho-python
    And script connects by MQTT 3.1.1 with mqtt-js
    And gopher connects by MQTT 3.1 with paho-go
    And snake subscribes to "round" at QoS 2
    And script subscribes to "round" at QoS 1
    And gopher subscribes to "round" at QoS 0
    When gopher publishes "from gopher" to "round" at QoS 2
    Then snake receives "from gopher" on "round" at QoS 2
    And script receives "from gopher" on "round" at QoS 1
    And gopher receives "from gopher" on "round" at QoS 0
