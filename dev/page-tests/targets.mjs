// Servers of the page under test: the real broker, or the server of invented figures.
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { start } from "./mock.mjs";

const START_MS = 20_000;

/** A mock in a state; `accounts` sign in with any password. */
export async function mock(state = "red") {
  const { server, url } = await start({ state });
  return {
    url,
    link: `${url}#link=TOKEN`,
    isMock: true,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** The real binary, in a directory of its own, on free ports. Its first link makes the account. */
export async function broker(binary) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "unbroken-page-"));
  const config = path.join(directory, "unbroken.toml");
  const listener = (protocol) => `[[listeners]]\nprotocol = "${protocol}"\nport = 0\n`;
  fs.writeFileSync(config, `${listener("mqtt")}${listener("ws")}`);
  const words = ["serve", "--config", config, "--data", path.join(directory, "data"), "--admin", "127.0.0.1:0"];
  const child = spawn(binary, words, { cwd: directory, stdio: ["ignore", "pipe", "pipe"] });
  const stop = () => {
    child.kill("SIGKILL");
    fs.rmSync(directory, { recursive: true, force: true });
  };
  try {
    const { url, link } = await addresses(child);
    return { url, link, isMock: false, stop };
  } catch (error) {
    stop();
    throw error;
  }
}

/** Reads the lines of the start until the page and the link are known. */
function addresses(child) {
  return new Promise((resolve, reject) => {
    const lines = [];
    const fail = (why) => reject(new Error(`${why}:\n${lines.join("\n")}`));
    const timer = setTimeout(() => fail("the broker did not say where its page is"), START_MS);
    const found = {};
    const read = (line) => {
      lines.push(line);
      found.url ??= /admin server on (https?:\/\/\S+)/.exec(line)?.[1];
      found.link ??= /(https?:\/\/\S+#link=\S+)/.exec(line)?.[1];
      if (!found.url || !found.link) return;
      clearTimeout(timer);
      resolve({ url: `${found.url}/`, link: found.link });
    };
    readline.createInterface({ input: child.stdout }).on("line", read);
    readline.createInterface({ input: child.stderr }).on("line", read);
    child.on("exit", (code) => fail(`the broker ended with ${code}`));
  });
}
