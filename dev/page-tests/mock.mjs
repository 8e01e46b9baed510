// A server with the shape of the admin API and invented figures, to look at the page without a broker:
//     node dev/page-tests/mock.mjs [PORT]
// Names decide roles: sign in as `viewer`, `operator` or `admin`, with any password. `/broker/` serves the page below a path.
import http from "node:http";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const PAGE = fileURLToPath(new URL("../../crates/admin/page/", import.meta.url));
const POLICY = "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const CLIENTS = 100_000;
const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();

export function start({ port = 0, state = "red" } = {}) {
  const world = { state, sessions: new Map(), demonstration: null, published: 1_204_331, streams: new Set(), denied: [] };
  const server = http.createServer((request, response) => serve(world, request, response));
  const timer = setInterval(() => {
    world.published += 118;
    for (const stream of world.streams) stream.write(`id: ${Date.now()}\nevent: snapshot\ndata: ${JSON.stringify(snapshot(world))}\n\n`);
  }, 1000);
  server.on("close", () => clearInterval(timer));
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve({ server, world, url: `http://127.0.0.1:${server.address().port}/` })));
}

function serve(world, request, response) {
  const url = new URL(request.url, "http://x");
  const where = url.pathname.replace(/^\/broker(?=\/)/, "");
  response.setHeader("content-security-policy", POLICY);
  if (where.startsWith("/api/v1/")) return api(world, request, response, where.slice(7), url.searchParams);
  const file = path.join(PAGE, where === "/" ? "index.html" : where.replace(/^\/page\//, ""));
  if (!file.startsWith(PAGE) || !fs.existsSync(file)) {
    response.statusCode = 404;
    return response.end();
  }
  response.setHeader("content-type", TYPES[path.extname(file)]);
  return response.end(fs.readFileSync(file));
}

async function api(world, request, response, where, query) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const body = text ? JSON.parse(text) : {};
  const json = (value, status = 200) => {
    response.writeHead(status, { "content-type": status < 400 ? "application/json" : "application/problem+json" });
    response.end(JSON.stringify(value));
  };
  const problem = (status, detail) => json({ title: "problem", status, detail }, status);
  const cookie = /unbroken=([^;]+)/.exec(request.headers.cookie ?? "")?.[1];
  const caller = world.sessions.get(cookie);
  const signIn = (name) => {
    const id = Math.random().toString(36).slice(2);
    world.sessions.set(id, { name, role: ["viewer", "operator"].includes(name) ? name : "admin", csrf: id, expires: ago(-43_200) });
    response.setHeader("set-cookie", `unbroken=${id}; HttpOnly; SameSite=Strict; Path=/`);
    json({});
  };
  if (where === "/sign-in") return body.password === "wrong" ? problem(401, "Name or password is wrong.") : signIn(body.name);
  if (where === "/sign-in/link") return body.token === "TOKEN" ? signIn(body.name) : problem(403, "The link was used or has expired: `unbroken admin link` makes another.");
  if (!caller) return problem(401, "sign in first");
  if (request.method !== "GET" && request.headers["x-csrf-token"] !== caller.csrf) return problem(403, "the header X-CSRF-Token is missing or wrong");
  if (request.method !== "GET" && caller.role === "viewer" && where !== "/sign-out") return problem(403, `${caller.name} has the role viewer, and this needs operator`);
  if (where === "/sign-out") {
    world.sessions.delete(cookie);
    return json({});
  }
  if (where === "/me") return json(caller);
  if (where === "/live") return stream(world, response, request);
  if (where === "/traces/1/events") return steps(response);
  const segments = where.split("/").slice(1).map(decodeURIComponent);
  const answer = (request.method === "GET" ? read : write)(world, segments, query, body);
  if (answer === undefined) return problem(404, `there is no ${where}`);
  return json(answer);
}

/** A trace that ends at once. */
function steps(response) {
  const step = (fields) => `event: step\ndata: ${JSON.stringify({ at: ago(1), shard: 0, client: "press-7", ...fields })}\n\n`;
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(step({ step: "received", packet: "PUBLISH", packet_id: 7, topic: "plant/line1/press7/force", qos: 1, bytes: 4, payload_base64: "MjEuNQ==" }));
  response.write(step({ step: "matched", topic: "plant/line1/press7/force", access: "allowed", receivers: 1, receiver_names: ["historian"] }));
  response.end("event: end\ndata: {}\n\n");
}

function stream(world, response, request) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  response.write(`retry: 1000\n\nevent: snapshot\ndata: ${JSON.stringify(snapshot(world))}\n\n`);
  world.streams.add(response);
  request.on("close", () => world.streams.delete(response));
}

function delivery(world) {
  const isEmpty = world.state === "empty" && !world.demonstration;
  const published = isEmpty ? 0 : world.published;
  const lost = world.state === "red" ? 1 : 0;
  const byReason = world.state === "green" || isEmpty ? {} : { "queue-full": 214, "session-ended": 3 };
  const dropped = Object.values(byReason).reduce((a, b) => a + b, 0);
  const acknowledged = Math.max(0, published - lost - dropped - (isEmpty ? 0 : 4181));
  const none = { lost: 0, duplicated: 0, reordered: 0, altered: 0 };
  return {
    state: isEmpty ? "empty" : world.state, sentence: "", reasons: lost ? ["1 message was lost inside the broker", "214 messages found the queue of their session full"] : [],
    as_of: new Date().toISOString(), since: new Date(new Date().setHours(9, 0, 0, 0)).toISOString(), after_crash: false,
    published, unrouted: 12, expected: published, handed_to_network: isEmpty ? 0 : 4181, sent: acknowledged, acknowledged, processed: 0, delivered: acknowledged,
    waiting: 0, in_flight: 0, given_up: 0, dropped, dropped_by_reason: byReason, ...none, lost, unbalanced: 0,
    publishers: { verified: 0, unaudited: 0, ...none, injected: 0, forged: 0 }, windows: { proven: 1176, faulty: lost, unproven: 2 },
    incidents: { red: lost, amber: 1, repaired: 0, ignored: 1, evicted: 0, missed: 0 },
    not_seen: ["QoS 0 counts as delivered once the kernel takes it: if the connection breaks after that, only the receiver knows.",
      "Messages that a publisher does not stamp are counted from the broker on: what is lost before it comes here is not seen.",
      "An acknowledgement says that the receiver has the message. Only one that reports `processed` says what it did with it.",
      "Counters begin with each start of the broker; incidents of earlier runs are kept."],
  };
}

function snapshot(world) {
  const now = delivery(world);
  return {
    id: Date.now(), as_of: now.as_of, delivery: now,
    rates: { received_per_s: 1180 + Math.random() * 40, sent_per_s: 3520 + Math.random() * 80, received_bytes_per_s: 181_000, sent_bytes_per_s: 552_000 },
    node: { version: "0.1.0", uptime_s: 8000, clients: 1204, connections: 1210, cpu: 0.118, rss: 48_200_000, store_bytes: 1_290_000_000 },
    drops: { ...now.dropped_by_reason, expired: 0 }, latency: { p50_ms: 0.21, p95_ms: 0.9, p99_ms: 2.4 },
  };
}

const INCIDENT = { state: "open", reason_code: null, received_at: null, publisher: null, subscriber: null, topic: null, qos: 1, lane: null, epoch: null, is_stamped: false, first: null, last: null, sent_again: 0, repaired_at: null, note: null, note_by: null };
const INCIDENTS = [
  { ...INCIDENT, id: 17, kind: "lost", severity: "red", hop: "publisher_to_broker", reason: "lost", words: "1 message of press-7 on plant/line1/press7/force, number 1204118 of lane 0f4b9736d6a423ad, was lost before the broker", count: 1, first_at: ago(64.211), last_at: ago(64.211), publisher: "press-7", topic: "plant/line1/press7/force", lane: "0f4b9736d6a423ad", epoch: 1795291445, is_stamped: true, first: 1_204_118, last: 1_204_118 },
  { ...INCIDENT, id: 16, kind: "dropped", severity: "red", hop: "broker_to_subscriber", reason: "queue-full", reason_code: 1, words: "214 messages of oven-2 on plant/line2/oven2/temperature were not delivered to phone-3: queue-full", count: 214, first_at: ago(1800), last_at: ago(1500), received_at: ago(1500.02), publisher: "oven-2", subscriber: "phone-3", topic: "plant/line2/oven2/temperature", lane: "a93c11d0b5e6f702", epoch: 1795291445, first: 88_101, last: 88_314 },
  { ...INCIDENT, id: 12, kind: "dropped", severity: "amber", state: "ignored", hop: "broker_to_subscriber", reason: "session-ended", reason_code: 4, words: "3 messages of oven-2 were not delivered to tablet-1: session-ended", count: 3, first_at: ago(5400), last_at: ago(5400), publisher: "oven-2", subscriber: "tablet-1", topic: "plant/line2/oven2/door", note: "The tablet was replaced.", note_by: "admin" },
];

const SUBSCRIPTIONS = [{ client_id: "historian", filter: "plant/#", qos: 1, no_local: false, retain_as_published: false, identifier: null }, { client_id: "phone-3", filter: "$share/a/plant/+/oven2/temperature", qos: 1, no_local: true, retain_as_published: false, identifier: 7 }];

function neighbour(number) {
  return Number.isInteger(number) && number > 0 ? { number, outcome: "arrived", incident: null } : null;
}

function listOf(items) {
  return { items, next: null, as_of: new Date().toISOString() };
}

function client(n) {
  const id = `sensor-${String(n).padStart(6, "0")}`;
  return { client_id: id, user: n % 3 ? "plant" : null, address: `10.1.${(n >> 8) & 255}.${n & 255}:5${n % 10000}`, listener: 0, listener_name: "plant", protocol: "5.0", connected_since: ago(60 + n), keep_alive_s: 60, is_bridge: false, mount: null, output_bytes: 0, is_over_rate: false, subscriptions: 2, queued: n % 7, queued_bytes: 120 * (n % 7), in_flight: n % 3, session_expiry_s: 3600, will_topic: "plant/status" };
}

function session(n) {
  const { client_id, user, subscriptions, queued, queued_bytes, in_flight, will_topic } = client(n);
  return { client_id, user, is_connected: n % 4 !== 0, away_since: n % 4 ? null : ago(600), expiry_s: n % 5 ? 3600 : null, mount: null, subscriptions, queued, queued_bytes, is_counted: n % 9 !== 0, in_flight, will_topic };
}

function clients(query, make) {
  const limit = Number(query.get("limit") ?? 100);
  const search = query.get("search") ?? "";
  const items = [];
  let n = Number(query.get("cursor") ?? 0);
  for (; n < CLIENTS && items.length < limit; n += 1) if (make(n).client_id.includes(search)) items.push(make(n));
  return { items, next: n < CLIENTS ? String(n) : null, as_of: new Date().toISOString() };
}

function series(query) {
  const from = Math.floor(new Date(query.get("from")) / 1000);
  const points = 150;
  const step = Math.max(1, Math.round((Date.now() / 1000 - from) / points));
  const times = Array.from({ length: points }, (_, i) => from + i * step);
  const shape = { received_per_s: 1180, sent_per_s: 3520, expected_per_s: 3521, delivered_per_s: 3520, received_bytes_per_s: 181_000, sent_bytes_per_s: 552_000, clients: 1204, latency_p50_ms: 0.21, latency_p95_ms: 0.9, latency_p99_ms: 2.4, dropped_per_s: 0.7, waiting: 14, cpu_ratio: 0.118, resident_bytes: 48e6, store_bytes: 1.29e9 };
  const of = (name) => times.map((t, i) => (i < 8 ? null : shape[name] * (1 + 0.12 * Math.sin(i / 17) + 0.04 * Math.sin(i * 1.7)) - (name.startsWith("delivered") && i > 120 && i < 124 ? 700 : 0)));
  const names = query.get("names").split(",");
  return { from: new Date(from * 1000).toISOString(), step_s: step, as_of: new Date().toISOString(), series: Object.fromEntries(names.map((name) => [name, { avg: of(name) }])) };
}

function value(text) {
  return { payload_bytes: text.length, text, base64: null, is_truncated: false, qos: 1, at: ago(1), expires: null, publisher: "oven-2", content_type: null };
}

function topics(query) {
  const tree = { plant: { line1: { press7: { force: 0, speed: 0 }, temperature: 0 }, line2: { oven2: { temperature: 0, door: 0 } } }, office: { door: 0 } };
  const parent = query.get("parent") ?? "";
  const at = parent.split("/").filter(Boolean).reduce((node, name) => node?.[name], tree);
  return listOf(Object.entries(at ?? {}).map(([name, below]) => ({ name, topic: parent ? `${parent}/${name}` : name, children: below !== 0, retained: below === 0, value: below === 0 ? value("21.5") : null, rate: null })));
}

const CONFIG = [
  ["broker.sys_interval", "10s", "default", ""], ["broker.shards", "2", "default", ""], ["limits.queue_messages", "1000", "file", "unbroken.toml:14"], ["limits.store_bytes_max", "\"8GiB\"", "environment", "UNBROKEN_LIMITS_STORE_BYTES_MAX"],
  ["listeners.0.port", "1883", "file", "unbroken.toml:3"], ["listeners.1.protocol", "\"ws\"", "file", "unbroken.toml:7"], ["store.directory", "\"/var/lib/unbroken\"", "flag", "--data"], ["admin.listen", "\"127.0.0.1:7883\"", "default", ""],
].map(([name, value, source, origin]) => ({ name, value, source, origin, after_restart: name === "broker.shards" ? "4" : null }));

function read(world, [name, id, more], query) {
  switch (name) {
    case "delivery": return id === "checkpoints" ? checkpoints(world) : delivery(world);
    case "node": return { version: "0.1.0", process_id: 4711, started: ago(8000), uptime_s: 8000, shards: 2, data_directory: "/var/lib/unbroken", store: "ok" };
    case "listeners": return listOf([{ number: 0, name: "plant", protocol: "mqtt", address: "127.0.0.1:1883", admits: "users", trusted_proxies: [], mount_point: null, certificate_files: [], max_connections: 100_000 }, { number: 1, name: null, protocol: "ws", address: "127.0.0.1:8083", admits: "everyone", trusted_proxies: [], mount_point: null, certificate_files: [], max_connections: null }]);
    case "certificates": return listOf([{ file: "/etc/unbroken/broker.pem", what: "certificate", expires: ago(-86_400 * 9.5), days_left: 9 }, { file: "/etc/unbroken/ca.pem", what: "authority", expires: ago(-86_400 * 900), days_left: 899 }]);
    case "clients": return id === undefined ? clients(query, client) : client(Number(id.slice(7)));
    case "sessions": return id === undefined ? clients(query, session) : { ...session(Number(id.slice(7))), subscription_list: SUBSCRIPTIONS };
    case "subscriptions": return listOf(SUBSCRIPTIONS);
    case "groups": return listOf([{ group: "workers", filter: "jobs/#", members: 40, member_list: [{ client_id: "worker-1", qos: 1, state: "ready" }, { client_id: "worker-2", qos: 1, state: "away" }] }]);
    case "incidents": {
      const all = world.state === "green" || world.state === "empty" ? [] : INCIDENTS;
      if (id === undefined) return listOf(all);
      const found = all.find((incident) => String(incident.id) === id);
      if (!found) return undefined;
      const detail = { incident: found, previous: neighbour(found.first - 1), next: neighbour(found.last + 1), lane: null, is_repairable: found.is_stamped, not_repairable_because: found.is_stamped ? null : "its publisher does not stamp its messages, so it cannot be asked to send one again", as_of: new Date().toISOString() };
      return more === "proof" ? { unbroken_incident: 1, evidence: detail } : detail;
    }
    case "lanes": return listOf(["press-7", "oven-2", "conveyor-1"].map((publisher, n) => ({ id: ["0f4b9736d6a423ad", "a93c11d0b5e6f702", "77b0c6f1d2a49e38"][n], publisher, user: "plant", epoch: 1795291445, is_stamped: n !== 1, next: 1_204_331 - n * 300_000, scope_start: 0, state: n === 0 && world.state === "red" ? "faulty" : n === 1 ? "counted" : "proven", checkpoint: n === 1 ? null : { size: 1024, at: ago(2 + n) }, windows: { proven: 1176 - n * 293, faulty: 0, unproven: 0 }, lost: 0, open_ms: null, time_to_proof_ms: n === 1 ? null : 42 + n })));
    case "series": return series(query);
    case "topics": return id === "value" ? { topic: query.get("topic"), ...value((20 + Math.random()).toFixed(2)) } : topics(query);
    case "users": return listOf([{ name: "plant", roles: ["sensor"] }, { name: "historian", roles: ["reader"] }]);
    case "roles": return listOf([{ name: "sensor", everyone: false, anonymous: false, users: ["plant"], user_count: 1, rules: [{ effect: "allow", rule: "publish plant/{client}/#" }] }, { name: "reader", everyone: true, anonymous: false, users: [], user_count: 0, rules: [{ effect: "allow", rule: "subscribe,receive #" }, { effect: "deny", rule: "subscribe,receive secret/#" }] }]);
    case "bans": return listOf([{ kind: "client", target: "noisy-1", since: ago(600), until: ago(-3000), reason: "floods the line", is_automatic: false }, { kind: "address", target: "10.9.0.7", since: null, until: ago(-60), reason: "too many logins from it have failed", is_automatic: true }]);
    case "access": return { ...listOf([{ at: ago(30), what: "message", client_id: "phone-3", user: "guest", address: "10.9.0.3", topic: "plant/line1/stop", reason: "not-authorized", count: 12 }]), missed_events: 0 };
    case "config": return listOf(CONFIG);
    case "logs": return listOf([{ at: ago(3), level: "info", message: "client connected", fields: { client: "sensor-000001", user: "plant", address: "10.1.0.1:50001" } }, { at: ago(20), level: "warn", message: "queue full", fields: { client: "phone-3", dropped: 214 } }, { at: ago(64), level: "error", message: "fault: a message was lost", fields: { lane: "0f4b9736d6a423ad", number: 1_204_118 } }]);
    case "traces": return listOf([{ id: 1, left_s: 40, client: "press-7", user: null, topic: null, for_s: 60, payload_bytes: 0 }]);
    case "accounts": return listOf([{ name: "admin", role: "admin" }, { name: "shift", role: "operator" }]);
    case "tokens": return listOf([{ id: "k1", name: "grafana", role: "viewer", scope: [], created: ago(900), created_by: "admin", is_expired: false, expires: ago(-86_400 * 40), last_used: ago(20) }]);
    case "history": return listOf([{ id: 2, at: ago(900), caller: "admin", action: "POST /config/reload", target: "/api/v1/config/reload", outcome: "done", status: 200, address: "127.0.0.1" }, { id: 1, at: ago(5000), caller: "admin", action: "POST /incidents/{id}/note", target: "12", outcome: "done", status: 200, address: "127.0.0.1" }]);
    case "demonstration": return world.demonstration ? progress(world.demonstration) : undefined;
    default: return undefined;
  }
}

function progress(demonstration) {
  const sent = Math.floor((Date.now() - demonstration.from) / 20);
  const at = (time, delay) => (Date.now() - time > delay ? new Date(time + delay).toISOString() : null);
  const faults = demonstration.faults.map(({ kind, from, number }) => ({ kind, asked_at: new Date(from).toISOString(), injected_at: at(from, 20), number, named_at: at(from, 300), named: kind === "drop" ? "lost" : kind, incident: null, repaired_at: at(from, 900) }));
  return { state: "running", started_at: new Date(demonstration.from).toISOString(), ends_at: ago(-600), topic: "unbroken/demonstration/plant", lane: "77b0c6f1d2a49e38", sent, received: sent, verified: sent, faults, error: null };
}

function checkpoints(world) {
  return listOf(Array.from({ length: 120 }, (_, n) => {
    const state = n === 100 && world.state === "red" ? "faulty" : n === 40 || n === 41 ? "unproven" : n === 119 ? "open" : n === 12 ? "unknown" : "proven";
    return { at: ago(120 - n), state, published: 1180, expected: 3521, delivered: 3500, dropped: state === "unproven" ? 21 : 0, faults: state === "faulty" ? 1 : 0, windows: { proven: 1, faulty: 0, unproven: 0 }, incident: state === "faulty" ? 17 : null };
  }));
}

function write(world, [name, id, more], query, body) {
  if (name === "demonstration" && id === undefined) world.demonstration = { from: Date.now(), faults: [] };
  if (name === "demonstration" && id === "fault") world.demonstration.faults.push({ kind: body.kind, from: Date.now(), number: Math.floor((Date.now() - world.demonstration.from) / 20) });
  if (name === "access") return { allowed: body.topic !== "plant/line1/stop", reason: "no rule allows it", rule: null, role: "reader", mount: null, max_qos: 2, retain: true };
  if (name === "config") return { changes: ["limits.queue_messages: 1000 → 2000 (applied)"] };
  if (name === "traces") return { id: 1, left_s: 60 };
  if (name === "tokens") return { id: "k2", name: body.name, secret: "unb_9f2c7d" };
  return {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start({ port: Number(process.argv[2] ?? 0), state: process.argv[3] ?? "red" });
  console.log(url);
}
