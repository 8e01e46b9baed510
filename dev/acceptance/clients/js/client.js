// MQTT.js behind the streams described in ../README.md.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const mqtt = require("mqtt");

const VERSIONS = {
  "3.1": { protocolId: "MQIsdp", protocolVersion: 3 },
  "3.1.1": { protocolId: "MQTT", protocolVersion: 4 },
  "5.0": { protocolId: "MQTT", protocolVersion: 5 },
};

let client = null;

function tell(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, ...fields }) + "\n");
}

function fail(error) {
  tell("error", { text: String(error) });
}

function connect(command) {
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
  if (command.will !== undefined) {
    options.will = { ...command.will, qos: 1 };
  }
  if (command.version === "5.0" && !command.clean) {
    options.properties = { sessionExpiryInterval: 3600 };
  }
  const scheme = command.scheme ?? "mqtt";
  const host = scheme === "mqtt" ? "127.0.0.1" : "localhost";
  const path = scheme.startsWith("ws") ? "/mqtt" : "";
  if (command.ca !== undefined) {
    options.ca = fs.readFileSync(command.ca);
  }
  if (command.cert !== undefined) {
    options.cert = fs.readFileSync(command.cert);
    options.key = fs.readFileSync(command.key);
  }
  options.wsOptions = { ca: options.ca, cert: options.cert, key: options.key };
  client = mqtt.connect(`${scheme}://${host}:${command.port}${path}`, options);
  client.on("connect", (connack) => tell("connected", { session: connack.sessionPresent }));
  client.on("message", (topic, payload, packet) =>
    tell("message", { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain }),
  );
  client.on("close", () => tell("disconnected"));
  client.on("error", (error) =>
    error.code === undefined ? fail(error) : tell("refused", { code: error.code }),
  );
}

const commands = {
  connect,
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

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const command = JSON.parse(line);
  commands[command.do](command);
});
lines.on("close", () => process.exit(0));
