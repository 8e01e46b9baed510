// The page of browser.js: carries out commands, and posts events in order.
"use strict";

const VERSIONS = {
  "3.1": { protocolId: "MQIsdp", protocolVersion: 3 },
  "3.1.1": { protocolId: "MQTT", protocolVersion: 4 },
  "5.0": { protocolId: "MQTT", protocolVersion: 5 },
};

let client = null;
let posted = Promise.resolve();

function tell(event, fields = {}) {
  const body = JSON.stringify({ event, ...fields });
  posted = posted.then(() => fetch("/events", { method: "POST", body }));
}

function fail(error) {
  tell("error", { text: String(error) });
}

const handlers = {
  connect(command) {
    const options = {
      ...VERSIONS[command.version],
      clientId: command.id,
      clean: command.clean,
      reconnectPeriod: 0,
    };
    if (command.user !== undefined) {
      options.username = command.user;
      options.password = command.password;
    }
    if (command.version === "5.0" && !command.clean) {
      options.properties = { sessionExpiryInterval: 3600 };
    }
    client = mqtt.connect(`${command.scheme}://localhost:${command.port}/mqtt`, options);
    client.on("connect", (connack) => tell("connected", { session: connack.sessionPresent }));
    client.on("message", (topic, payload, packet) =>
      tell("message", {
        topic,
        payload: payload.toString(),
        qos: packet.qos,
        retain: packet.retain,
      }),
    );
    client.on("close", () => tell("disconnected"));
    client.on("error", (error) =>
      error.code === undefined ? fail(error) : tell("refused", { code: error.code }),
    );
  },
  subscribe({ filter, qos }) {
    client.subscribe(filter, { qos }, (error, granted) =>
      error ? fail(error) : tell("subscribed", { code: granted[0].qos }),
    );
  },
  unsubscribe({ filter }) {
    client.unsubscribe(filter, (error) => (error ? fail(error) : tell("unsubscribed")));
  },
  publish({ topic, payload, qos, retain }) {
    client.publish(topic, payload, { qos, retain }, (error) =>
      error ? fail(error) : tell("published"),
    );
  },
  disconnect() {
    client.end();
  },
};

async function obey() {
  for (;;) {
    const response = await fetch("/commands");
    const command = await response.json();
    handlers[command.do](command);
  }
}

obey().catch(fail);
