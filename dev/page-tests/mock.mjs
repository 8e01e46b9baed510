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
  const segments = where.split("/").slice(1).map(decodeURIComponent);
  const answer = (request.method === "GET" ? read : write)(world, segments, query, body);
  if (answer === undefined) return problem(404, `there is no ${where}`);
  return json(answer);
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
  const dropped = world.state === "green" || isEmpty ? {} : { "queue-full": 214, "session-ended": 3 };
  const sum = Object.values(dropped).reduce((a, b) => a + b, 0);
  const acknowledged = Math.max(0, published - lost - sum - (isEmpty ? 0 : 4181));
  return {
    as_of: new Date().toISOString(), since: new Date(new Date().setHours(9, 0, 0, 0)).toISOString(), after_crash: false,
    state: isEmpty ? "empty" : world.state, sentence: "", published, expected: published, acknowledged, sent: acknowledged,
    processed: 0, handed_to_network: isEmpty ? 0 : 4181, waiting: 0, in_flight: 0, dropped, lost, duplicated: 0, reordered: 0, altered: 0, unrouted: 12,
    not_seen: isEmpty ? [] : ["Not seen: whether the 4,181 QoS 0 messages arrived after they were handed to the network, and what publishers lost before they sent it."],
  };
}

function snapshot(world) {
  return {
    id: Date.now(), as_of: new Date().toISOString(), delivery: delivery(world),
    rates: { received: 1180 + Math.random() * 40, sent: 3520 + Math.random() * 80, bytes_in: 181_000, bytes_out: 552_000 },
    node: { clients: 1204, connections: 1210, cpu: 11.8, rss: 48_200_000, store_bytes: 1_290_000_000 },
    drops: delivery(world).dropped, latency: { p50_ms: 0.21, p95_ms: 0.9, p99_ms: 2.4 },
  };
}

const INCIDENTS = [
  { id: "17", kind: "lost", count: 1, first: 1_204_118, epoch: 1795291445, lane: "0f4b9736d6a423ad", publisher: "press-7", subscriber: "historian", topic: "plant/line1/press7/force", qos: 1, reason: "fault of the broker", place: "between shards 0 and 2", first_seen: ago(64.211), last: ago(64.211),
    words: "Number 1,204,118 was accepted and never left the broker for historian." },
  { id: "16", kind: "dropped", count: 214, first: 88_101, last_number: 88_314, epoch: 1795291445, lane: "a93c11d0b5e6f702", publisher: "oven-2", subscriber: "phone-3", topic: "plant/line2/oven2/temperature", qos: 1, reason: "queue-full", place: "queue of the session", first_seen: ago(1800), last: ago(1500), words: "214 messages found the queue of phone-3 full (1,000 messages)." },
  { id: "12", kind: "dropped", count: 3, publisher: "oven-2", subscriber: "tablet-1", topic: "plant/line2/oven2/door", qos: 1, reason: "session-ended", place: "session", first_seen: ago(5400), last: ago(5400), ignored: true, words: "The session of tablet-1 ended with 3 messages waiting.", notes: [{ text: "The tablet was replaced.", by: "admin", at: ago(5000) }] },
];
const HOPS = [
  { name: "PUBLISH from press-7", at: ago(64.219), reached: true, detail: "QoS 1, packet 4711" },
  { name: "accepted and numbered", at: ago(64.219), reached: true, detail: "lane 0f4b9736d6a423ad" },
  { name: "routed", at: ago(64.218), reached: true, detail: "1 session" },
  { name: "session of historian", reached: false, detail: "shard 2" },
  { name: "PUBACK from historian", reached: null },
];

function listOf(items) {
  return { items, next: null, as_of: new Date().toISOString() };
}

function client(n) {
  const id = `sensor-${String(n).padStart(6, "0")}`;
  return { id, user: n % 3 ? "plant" : null, address: `10.1.${(n >> 8) & 255}.${n & 255}:5${n % 10000}`, listener: "tcp", version: "5.0", connected_since: ago(60 + n), keep_alive_s: 60, clean_start: true, session_expiry_s: 3600, queued: n % 7, in_flight: n % 3, subscriptions: 2, will_topic: "plant/status" };
}

function clients(query) {
  const from = Number(query.get("cursor") ?? 0);
  const limit = Number(query.get("limit") ?? 100);
  const search = query.get("search") ?? "";
  const items = [];
  let n = from;
  for (; n < CLIENTS && items.length < limit; n += 1) if (client(n).id.includes(search)) items.push(client(n));
  return { items, next: n < CLIENTS ? String(n) : null, as_of: new Date().toISOString() };
}

function series(query) {
  const seconds = Number(query.get("for_s"));
  const points = 150;
  const now = Math.floor(Date.now() / 1000);
  const times = Array.from({ length: points }, (_, i) => now - seconds + Math.round((i * seconds) / points));
  const shape = { received: 1180, sent: 3520, expected: 3521, delivered: 3520, bytes_in: 181_000, bytes_out: 552_000, clients: 1204, latency_p50: 0.21, latency_p95: 0.9, latency_p99: 2.4, dropped: 0.7, waiting: 14, cpu: 11.8, rss: 48e6, store_bytes: 1.29e9 };
  const of = (name) => times.map((t, i) => (i < 8 ? null : shape[name] * (1 + 0.12 * Math.sin(t / (seconds / 9)) + 0.04 * Math.sin(i * 1.7)) - (name === "delivered" && i > 120 && i < 124 ? 700 : 0)));
  return { as_of: new Date().toISOString(), times, series: Object.fromEntries(query.get("names").split(",").map((name) => [name, { avg: of(name) }])) };
}

function topics(query) {
  const tree = { plant: { line1: { press7: { force: 0, speed: 0 }, temperature: 0 }, line2: { oven2: { temperature: 0, door: 0 } } }, office: { door: 0 } };
  const parent = query.get("parent") ?? "";
  const at = parent.split("/").filter(Boolean).reduce((node, name) => node?.[name], tree);
  return listOf(Object.entries(at ?? {}).map(([name, below]) => ({ name, topic: parent ? `${parent}/${name}` : name, children: Object.keys(below).length, retained: below === 0, last_value: below === 0 ? { text: "21.5" } : null, rate: null })));
}

const CONFIG = [
  ["broker.sys_interval", "10s", "default"], ["broker.shards", 2, "default"], ["limits.queue_messages", 1000, "unbroken.toml:14"], ["limits.store_bytes_max", "8GiB", "UNBROKEN_LIMITS_STORE_BYTES_MAX"],
  ["listener[0].tcp", "0.0.0.0:1883", "unbroken.toml:3"], ["listener[1].websocket", "0.0.0.0:8083", "unbroken.toml:7"], ["store.directory", "/var/lib/unbroken", "flag --data"], ["admin.listen", "127.0.0.1:7883", "default"],
].map(([key, value, origin]) => ({ key, value, origin }));

function read(world, [name, id, more], query) {
  switch (name) {
    case "delivery": return id === "checkpoints" ? checkpoints(world) : delivery(world);
    case "node": return { version: "0.1.0", process_id: 4711, started: ago(8000), shards: 2, data_directory: "/var/lib/unbroken" };
    case "listeners": return listOf([{ name: "tcp", protocol: "mqtt", address: "127.0.0.1:1883", tls: false, connections: 1180 }, { name: "ws", protocol: "ws", address: "127.0.0.1:8083", tls: false, connections: 24 }]);
    case "certificates": return listOf([{ file: "/etc/unbroken/broker.pem", what: "certificate", not_after: ago(-86_400 * 9) }, { file: "/etc/unbroken/ca.pem", what: "authority", not_after: ago(-86_400 * 900) }]);
    case "clients": return id === undefined ? clients(query) : client(Number(id.slice(7)));
    case "sessions": return id === undefined ? { ...clients(query), items: clients(query).items.map((row, n) => ({ ...row, connected: n % 4 !== 0, expiry_s: 3600 })) } : { ...client(Number(id.slice(7))), connected: true, expiry_s: 3600, subscriptions: [{ filter: "plant/#", qos: 1 }, { filter: "$share/a/jobs", qos: 1, group: "a" }] };
    case "subscriptions": return listOf([{ client: "historian", filter: "plant/#", qos: 1 }, { client: "phone-3", filter: "plant/+/oven2/temperature", qos: 1, no_local: true }]);
    case "groups": return listOf([{ group: "workers", filter: "jobs/#", members: ["worker-1", "worker-2"] }]);
    case "incidents": {
      const all = world.state === "green" || world.state === "empty" ? [] : INCIDENTS;
      if (id === undefined) return listOf(all);
      const found = all.find((incident) => incident.id === id);
      if (more === "proof") return { lane: found.lane, root: "0a51f35315c5f54a5402c5fe23f6a800" };
      return found && { ...found, hops: id === "17" ? HOPS : [], neighbours: id === "17" ? [-2, -1, 0, 1, 2].map((d) => ({ number: found.first + d, outcome: d === 0 ? "lost" : "acknowledged", at: ago(64.2 - d / 10) })) : [] };
    }
    case "lanes": return listOf(["press-7", "oven-2", "conveyor-1"].map((publisher, n) => ({ id: ["0f4b9736d6a423ad", "a93c11d0b5e6f702", "77b0c6f1d2a49e38"][n], publisher, epoch: 1795291445, messages: 1_204_331 - n * 300_000, state: n === 0 && world.state === "red" ? "faulty" : n === 1 ? "unproven" : "proven", checkpoint: { number: 12, at: ago(2 + n) }, time_to_proof_ms: n === 1 ? null : 42 + n })));
    case "series": return series(query);
    case "topics": return id === "value" ? { topic: query.get("topic"), payload_base64: Buffer.from((20 + Math.random()).toFixed(2)).toString("base64"), size_bytes: 5, qos: 1, retained: true, at: ago(1), publisher: "oven-2" } : topics(query);
    case "users": return listOf([{ name: "plant", roles: ["sensor"] }, { name: "historian", roles: ["reader"], origin: "file" }]);
    case "roles": return listOf([{ name: "sensor", rules: ["allow publish plant/${client}/#"] }, { name: "reader", rules: ["allow subscribe #", "deny subscribe secret/#"] }]);
    case "bans": return listOf([{ client: "noisy-1", until: ago(-3000), reason: "too many connections", automatic: true }]);
    case "access": return listOf([{ id: 1, at: ago(30), client: "phone-3", user: "guest", action: "publish", topic: "plant/line1/stop", reason: "no rule allows it" }]);
    case "config": return listOf(CONFIG);
    case "logs": return listOf([{ at: ago(3), level: "info", message: "client connected", fields: { client: "sensor-000001", user: "plant", address: "10.1.0.1:50001" } }, { at: ago(20), level: "warn", message: "queue full", fields: { client: "phone-3", dropped: 214 } }, { at: ago(64), level: "error", message: "fault: a message was lost", fields: { lane: "0f4b9736d6a423ad", number: 1_204_118 } }]);
    case "traces": return listOf([{ id: "t1", client: "press-7", caller: "admin", until: ago(-40), events: 118 }]);
    case "accounts": return listOf([{ name: "admin", role: "admin" }, { name: "shift", role: "operator" }]);
    case "tokens": return listOf([{ id: "k1", name: "grafana", role: "viewer", expires: ago(-86_400 * 40), last_used: ago(20) }]);
    case "history": return listOf([{ id: 2, at: ago(900), caller: "admin", action: "POST /config/reload", target: null, outcome: "200", address: "127.0.0.1" }, { id: 1, at: ago(5000), caller: "admin", action: "POST /incidents/{id}/note", target: "12", outcome: "200", address: "127.0.0.1" }]);
    case "demonstration": return world.demonstration ? progress(world.demonstration) : { running: false };
    default: return undefined;
  }
}

function progress(demonstration) {
  const sent = Math.floor((Date.now() - demonstration.from) / 20);
  const at = (time, delay) => (Date.now() - time > delay ? new Date(time + delay).toISOString() : null);
  const faults = demonstration.faults.map(({ kind, from, number }) => ({ id: from, kind, number, injected_at: new Date(from).toISOString(), named_at: at(from, 300), repaired_at: at(from, 900), name: `number ${number} is ${kind === "drop" ? "lost" : kind}` }));
  return { running: true, as_of: new Date().toISOString(), sent, received: sent, verified: sent, faults };
}

function checkpoints(world) {
  return listOf(Array.from({ length: 120 }, (_, n) => {
    const state = n === 100 && world.state === "red" ? "faulty" : n === 40 || n === 41 ? "unproven" : "proven";
    return { at: ago((120 - n) * 5), state, [state]: 1 + (n % 3), incident: state === "faulty" ? "17" : undefined };
  }));
}

function write(world, [name, id, more], query, body) {
  if (name === "demonstration" && id === undefined) world.demonstration = { from: Date.now(), faults: [] };
  if (name === "demonstration" && id === "fault") world.demonstration.faults.push({ kind: body.kind, from: Date.now(), number: Math.floor((Date.now() - world.demonstration.from) / 20) });
  if (name === "access") return { allowed: body.topic !== "plant/line1/stop", steps: ["user guest has the role reader", "no rule of reader allows publish plant/line1/stop"] };
  if (name === "traces") return { id: "t1" };
  if (name === "tokens") return { id: "k2", name: body.name, token: "unb_9f2c7d" };
  return {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start({ port: Number(process.argv[2] ?? 0), state: process.argv[3] ?? "red" });
  console.log(url);
}
