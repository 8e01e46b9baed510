// MQTT.js in a page of Chromium, behind the streams described in ../README.md.
//
// The page is served from here, asks for commands, and posts events. Chromium ends when its pipe
// for debugging does, so it does not outlive this program. Its profile is a new directory of the
// working directory, and its home too: there is the authority that it trusts.
"use strict";

const { execFileSync, spawn } = require("node:child_process");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const readline = require("node:readline");

const PAGE = `<!doctype html><meta charset="utf-8"><title>MQTT.js</title>
<script src="/mqtt.js"></script><script src="/page.js"></script>`;

// Commands that the page has not asked for yet, or its question that waits for one.
const commands = [];
let waiting = null;

function give() {
  if (waiting !== null && commands.length > 0) {
    waiting.setHeader("Content-Type", "application/json");
    waiting.end(commands.shift());
    waiting = null;
  }
}

function serve(request, response) {
  const script = (file) => {
    response.setHeader("Content-Type", "text/javascript");
    fs.createReadStream(file).pipe(response);
  };
  switch (request.url) {
    case "/":
      response.setHeader("Content-Type", "text/html");
      response.end(PAGE);
      break;
    case "/mqtt.js":
      script(path.join(process.env.NODE_PATH, "mqtt/dist/mqtt.min.js"));
      break;
    case "/page.js":
      script(path.join(__dirname, "page.js"));
      break;
    case "/commands":
      waiting = response;
      give();
      break;
    case "/events": {
      const pieces = [];
      request.on("data", (piece) => pieces.push(piece));
      request.on("end", () => {
        process.stdout.write(Buffer.concat([...pieces, Buffer.from("\n")]));
        response.end();
      });
      break;
    }
    default:
      response.statusCode = 404;
      response.end();
  }
}

function browse(url, authority) {
  const profile = fs.mkdtempSync(path.join(process.cwd(), "profile-"));
  const flags = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    `--user-data-dir=${profile}`,
  ];
  const database = path.join(profile, ".pki/nssdb");
  const certutil = (...words) => execFileSync("certutil", ["-d", `sql:${database}`, ...words]);
  fs.mkdirSync(database, { recursive: true });
  certutil("-N", "--empty-password");
  if (authority !== undefined) {
    certutil("-A", "-n", "authority", "-t", "C,,", "-i", authority);
  }
  const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
  const env = { ...process.env, HOME: profile };
  const browser = spawn("chromium", [...flags, url], { stdio, env });
  browser.stdio[3].on("error", () => {});
  browser.stdio[4].resume();
  browser.on("exit", (code) => {
    process.stdout.write(JSON.stringify({ event: "error", text: `chromium ends: ${code}` }) + "\n");
  });
}

const server = http.createServer(serve);
server.listen(0, "127.0.0.1", () => {
  const url = `http://localhost:${server.address().port}/`;
  let isOpen = false;
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    if (!isOpen) {
      isOpen = true;
      browse(url, JSON.parse(line).ca);
    }
    commands.push(line);
    give();
  });
  lines.on("close", () => process.exit(0));
});
