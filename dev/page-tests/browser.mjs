// Debian's Chromium, driven by playwright-core, which downloads nothing.
import { createRequire } from "node:module";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

const modules = process.env.UNBROKEN_PAGE_TOOLS ?? import.meta.dirname;
const require = createRequire(path.join(path.resolve(modules), "package.json"));
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-dev-shm-usage",
];

export async function launch() {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "unbroken-page-"));
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: FLAGS,
    env: { ...process.env, HOME: home },
  });
  browser.on("disconnected", () => fs.rmSync(home, { recursive: true, force: true }));
  return browser;
}

/** A tab that remembers what went wrong: errors of scripts, in the console, and violations of the policy. */
export async function open(
  browser,
  { width = 1440, height = 900, scheme = "light", bypassCSP = false, context: given } = {},
) {
  const context =
    given ??
    (await browser.newContext({
      viewport: { width, height },
      colorScheme: scheme,
      bypassCSP,
      reducedMotion: "reduce",
    }));
  const tab = await context.newPage();
  tab.setDefaultTimeout(10_000);
  tab.wrong = [];
  tab.on("pageerror", (error) => tab.wrong.push(`error: ${error.message}`));
  tab.on(
    "console",
    (message) => message.type() === "error" && tab.wrong.push(`console: ${message.text()} ${message.location().url}`),
  );
  await tab.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI}`),
    );
  });
  return tab;
}

/** What axe finds, one line each. */
export async function findings(tab) {
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() =>
    globalThis.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }),
  );
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary.split("\n").slice(1).join(" ")}`,
    ),
  );
}
