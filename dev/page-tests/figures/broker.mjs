// Invented clients, topics, rules and settings.
import { ago, listOf } from "./base.mjs";

const CLIENTS = 100_000;

const SUBSCRIPTIONS = [
  { client_id: "historian", filter: "plant/#", qos: 1, no_local: false, retain_as_published: false, identifier: null },
  {
    client_id: "phone-3",
    filter: "$share/a/plant/+/oven2/temperature",
    qos: 1,
    no_local: true,
    retain_as_published: false,
    identifier: 7,
  },
];

function client(n) {
  const id = `sensor-${String(n).padStart(6, "0")}`;
  return {
    client_id: id,
    user: n % 3 ? "plant" : null,
    address: `10.1.${(n >> 8) & 255}.${n & 255}:5${n % 10000}`,
    listener: 0,
    listener_name: "plant",
    protocol: "5.0",
    connected_since: ago(60 + n),
    keep_alive_s: 60,
    is_bridge: false,
    mount: null,
    output_bytes: 0,
    is_over_rate: false,
    subscriptions: 2,
    queued: n % 7,
    queued_bytes: 120 * (n % 7),
    in_flight: n % 3,
    session_expiry_s: 3600,
    will_topic: "plant/status",
  };
}

function session(n) {
  const { client_id, user, subscriptions, queued, queued_bytes, in_flight, will_topic } = client(n);
  return {
    client_id,
    user,
    is_connected: n % 4 !== 0,
    away_since: n % 4 ? null : ago(600),
    expiry_s: n % 5 ? 3600 : null,
    mount: null,
    subscriptions,
    queued,
    queued_bytes,
    is_counted: n % 9 !== 0,
    in_flight,
    will_topic,
  };
}

function clients(query, make) {
  const limit = Number(query.get("limit") ?? 100);
  const search = query.get("search") ?? "";
  const items = [];
  let n = Number(query.get("cursor") ?? 0);
  for (; n < CLIENTS && items.length < limit; n += 1) if (make(n).client_id.includes(search)) items.push(make(n));
  return { items, next: n < CLIENTS ? String(n) : null, as_of: new Date().toISOString() };
}

function value(text) {
  return {
    payload_bytes: text.length,
    text,
    base64: null,
    is_truncated: false,
    qos: 1,
    at: ago(1),
    expires: null,
    publisher: "oven-2",
    content_type: null,
  };
}

function topics(query) {
  const tree = {
    plant: { line1: { press7: { force: 0, speed: 0 }, temperature: 0 }, line2: { oven2: { temperature: 0, door: 0 } } },
    office: { door: 0 },
  };
  const parent = query.get("parent") ?? "";
  const at = parent
    .split("/")
    .filter(Boolean)
    .reduce((node, name) => node?.[name], tree);
  return listOf(
    Object.entries(at ?? {}).map(([name, below]) => ({
      name,
      topic: parent ? `${parent}/${name}` : name,
      children: below !== 0,
      retained: below === 0,
      value: below === 0 ? value("21.5") : null,
      rate: null,
    })),
  );
}

const CONFIG = [
  ["broker.sys_interval", "10s", "default", ""],
  ["broker.shards", "2", "default", ""],
  ["limits.queue_messages", "1000", "file", "unbroken.toml:14"],
  ["limits.store_bytes_max", '"8GiB"', "environment", "UNBROKEN_LIMITS_STORE_BYTES_MAX"],
  ["listeners.0.port", "1883", "file", "unbroken.toml:3"],
  ["listeners.1.protocol", '"ws"', "file", "unbroken.toml:7"],
  ["store.directory", '"/var/lib/unbroken"', "flag", "--data"],
  ["admin.listen", '"127.0.0.1:7883"', "default", ""],
].map(([name, value, source, origin]) => ({
  name,
  value,
  source,
  origin,
  after_restart: name === "broker.shards" ? "4" : null,
}));

/** By the first segment of their path. */
export const answers = {
  node: () => ({
    version: "0.1.0",
    process_id: 4711,
    started: ago(8000),
    uptime_s: 8000,
    shards: 2,
    data_directory: "/var/lib/unbroken",
    store: "ok",
  }),
  listeners: () =>
    listOf([
      {
        number: 0,
        name: "plant",
        protocol: "mqtt",
        address: "127.0.0.1:1883",
        admits: "users",
        trusted_proxies: [],
        mount_point: null,
        certificate_files: [],
        max_connections: 100_000,
      },
      {
        number: 1,
        name: null,
        protocol: "ws",
        address: "127.0.0.1:8083",
        admits: "everyone",
        trusted_proxies: [],
        mount_point: null,
        certificate_files: [],
        max_connections: null,
      },
    ]),
  certificates: () =>
    listOf([
      { file: "/etc/unbroken/broker.pem", what: "certificate", expires: ago(-86_400 * 9.5), days_left: 9 },
      { file: "/etc/unbroken/ca.pem", what: "authority", expires: ago(-86_400 * 900), days_left: 899 },
    ]),
  clients: ({ id, query }) => (id === undefined ? clients(query, client) : client(Number(id.slice(7)))),
  sessions: ({ id, query }) =>
    id === undefined ? clients(query, session) : { ...session(Number(id.slice(7))), subscription_list: SUBSCRIPTIONS },
  subscriptions: () => listOf(SUBSCRIPTIONS),
  groups: () =>
    listOf([
      {
        group: "workers",
        filter: "jobs/#",
        members: 40,
        member_list: [
          { client_id: "worker-1", qos: 1, state: "ready" },
          { client_id: "worker-2", qos: 1, state: "away" },
        ],
      },
    ]),
  topics: ({ id, query }) =>
    id === "value" ? { topic: query.get("topic"), ...value((20 + Math.random()).toFixed(2)) } : topics(query),
  users: () =>
    listOf([
      { name: "plant", roles: ["sensor"] },
      { name: "historian", roles: ["reader"] },
    ]),
  roles: () =>
    listOf([
      {
        name: "sensor",
        everyone: false,
        anonymous: false,
        users: ["plant"],
        user_count: 1,
        rules: [{ effect: "allow", rule: "publish plant/{client}/#" }],
      },
      {
        name: "reader",
        everyone: true,
        anonymous: false,
        users: [],
        user_count: 0,
        rules: [
          { effect: "allow", rule: "subscribe,receive #" },
          { effect: "deny", rule: "subscribe,receive secret/#" },
        ],
      },
    ]),
  bans: () =>
    listOf([
      {
        kind: "client",
        target: "noisy-1",
        since: ago(600),
        until: ago(-3000),
        reason: "floods the line",
        is_automatic: false,
      },
      {
        kind: "address",
        target: "10.9.0.7",
        since: null,
        until: ago(-60),
        reason: "too many logins from it have failed",
        is_automatic: true,
      },
    ]),
  access: () => ({
    ...listOf([
      {
        at: ago(30),
        what: "message",
        client_id: "phone-3",
        user: "guest",
        address: "10.9.0.3",
        topic: "plant/line1/stop",
        reason: "not-authorized",
        count: 12,
      },
    ]),
    missed_events: 0,
  }),
  config: () => listOf(CONFIG),
  logs: () =>
    listOf([
      {
        at: ago(3),
        level: "info",
        message: "client connected",
        fields: { client: "sensor-000001", user: "plant", address: "10.1.0.1:50001" },
      },
      { at: ago(20), level: "warn", message: "queue full", fields: { client: "phone-3", dropped: 214 } },
      {
        at: ago(64),
        level: "error",
        message: "fault: a message was lost",
        fields: { lane: "0f4b9736d6a423ad", number: 1_204_118 },
      },
    ]),
  traces: () =>
    listOf([{ id: 1, left_s: 40, client: "press-7", user: null, topic: null, for_s: 60, payload_bytes: 0 }]),
  accounts: () =>
    listOf([
      { name: "admin", role: "admin" },
      { name: "shift", role: "operator" },
    ]),
  tokens: () =>
    listOf([
      {
        id: "k1",
        name: "grafana",
        role: "viewer",
        scope: [],
        created: ago(900),
        created_by: "admin",
        is_expired: false,
        expires: ago(-86_400 * 40),
        last_used: ago(20),
      },
    ]),
  history: ({ id }) =>
    listOf([
      {
        id: 2,
        at: ago(900),
        caller: "admin",
        action: "POST /config/reload",
        target: "/api/v1/config/reload",
        outcome: "done",
        status: 200,
        address: "127.0.0.1",
      },
      {
        id: 1,
        at: ago(5000),
        caller: "admin",
        action: "POST /incidents/{id}/note",
        target: "12",
        outcome: "done",
        status: 200,
        address: "127.0.0.1",
      },
    ]),
};
