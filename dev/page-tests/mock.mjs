// A server with the shape of the admin API and invented figures, to look at the page without a broker:
//     node dev/page-tests/mock.mjs [PORT] [red|amber|green|empty]
// Names decide roles: sign in as `viewer`, `operator` or `admin`, with any password. `/broker/` serves the page below
// a path.
import http from "node:http";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { ago } from "./figures/base.mjs";
import * as broker from "./figures/broker.mjs";
import * as delivery from "./figures/delivery.mjs";

const PAGE = fileURLToPath(new URL("../../crates/admin/page/", import.meta.url));
const POLICY =
  "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

export function start({ port = 0, state = "red" } = {}) {
  const world = {
    state,
    sessions: new Map(),
    demonstration: null,
    published: 1_204_331,
    streams: new Set(),
    denied: [],
  };
  const server = http.createServer((request, response) => serve(world, request, response));
  const timer = setInterval(() => {
    world.published += 118;
    for (const stream of world.streams)
      stream.write(`id: ${Date.now()}\nevent: snapshot\ndata: ${JSON.stringify(delivery.snapshot(world))}\n\n`);
  }, 1000);
  server.on("close", () => clearInterval(timer));
  return new Promise((resolve) =>
    server.listen(port, "127.0.0.1", () =>
      resolve({ server, world, url: `http://127.0.0.1:${server.address().port}/` }),
    ),
  );
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
    world.sessions.set(id, {
      name,
      role: ["viewer", "operator"].includes(name) ? name : "admin",
      csrf: id,
      expires: ago(-43_200),
    });
    response.setHeader("set-cookie", `unbroken=${id}; HttpOnly; SameSite=Strict; Path=/`);
    json({});
  };
  if (where === "/sign-in")
    return body.password === "wrong" ? problem(401, "Name or password is wrong.") : signIn(body.name);
  if (where === "/sign-in/link")
    return body.token === "TOKEN"
      ? signIn(body.name)
      : problem(403, "The link was used or has expired: `unbroken admin link` makes another.");
  if (!caller) return problem(401, "sign in first");
  if (request.method !== "GET" && request.headers["x-csrf-token"] !== caller.csrf)
    return problem(403, "the header X-CSRF-Token is missing or wrong");
  if (request.method !== "GET" && caller.role === "viewer" && where !== "/sign-out")
    return problem(403, `${caller.name} has the role viewer, and this needs operator`);
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
  const step = (fields) =>
    `event: step\ndata: ${JSON.stringify({ at: ago(1), shard: 0, client: "press-7", ...fields })}\n\n`;
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(
    step({
      step: "received",
      packet: "PUBLISH",
      packet_id: 7,
      topic: "plant/line1/press7/force",
      qos: 1,
      bytes: 4,
      payload_base64: "MjEuNQ==",
    }),
  );
  response.write(
    step({
      step: "matched",
      topic: "plant/line1/press7/force",
      access: "allowed",
      receivers: 1,
      receiver_names: ["historian"],
    }),
  );
  response.end("event: end\ndata: {}\n\n");
}

function stream(world, response, request) {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  response.write(`retry: 1000\n\nevent: snapshot\ndata: ${JSON.stringify(delivery.snapshot(world))}\n\n`);
  world.streams.add(response);
  request.on("close", () => world.streams.delete(response));
}

function read(world, [name, id, more], query) {
  const answer = delivery.answers[name] ?? broker.answers[name];
  return answer?.({ world, id, more, query });
}

function write(world, [name, id, more], query, body) {
  if (name === "demonstration" && id === undefined) world.demonstration = { from: Date.now(), faults: [] };
  if (name === "demonstration" && id === "fault")
    world.demonstration.faults.push({
      kind: body.kind,
      from: Date.now(),
      number: Math.floor((Date.now() - world.demonstration.from) / 20),
    });
  if (name === "access")
    return {
      allowed: body.topic !== "plant/line1/stop",
      reason: "no rule allows it",
      rule: null,
      role: "reader",
      mount: null,
      max_qos: 2,
      retain: true,
    };
  if (name === "config") return { changes: ["limits.queue_messages: 1000 → 2000 (applied)"] };
  if (name === "traces") return { id: 1, left_s: 60 };
  if (name === "tokens") return { id: "k2", name: body.name, secret: "unb_9f2c7d" };
  return {};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start({ port: Number(process.argv[2] ?? 0), state: process.argv[3] ?? "red" });
  console.log(url);
}
