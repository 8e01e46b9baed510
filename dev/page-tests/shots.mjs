// Pictures of each page, light and dark, wide and narrow:
//     node dev/page-tests/shots.mjs URL DIRECTORY [NAME PASSWORD]
import fs from "node:fs";
import path from "node:path";
import { launch, open } from "./browser.mjs";

export const PAGES = ["delivery", "incident/17", "incidents", "live", "topics?topic=plant/line1/temperature", "clients", "clients/sensor-000003", "sessions", "sessions/sensor-000003",
  "subscriptions", "subscriptions/groups", "access", "access/denied", "access/users", "access/roles", "access/bans", "try", "logs", "logs/traces",
  "settings", "settings/listeners", "settings/accounts", "settings/tokens", "settings/history"];

export async function signIn(tab, url, name, password) {
  await tab.goto(url);
  await tab.getByLabel("Name").fill(name);
  await tab.getByLabel("Password").fill(password);
  await tab.getByRole("button", { name: "Sign in" }).click();
  await tab.locator("#menu").waitFor({ state: "attached" });
}

async function all(url, directory, name, password, only) {
  fs.mkdirSync(directory, { recursive: true });
  const browser = await launch();
  for (const scheme of ["light", "dark"]) {
    for (const width of [1440, 360]) {
      const tab = await open(browser, { width, height: width === 360 ? 740 : 900, scheme });
      await signIn(tab, url, name, password);
      for (const page of PAGES.filter((page) => page.includes(only))) {
        await tab.goto(`${url}#/${page}`);
        await tab.waitForTimeout(900);
        const file = `${page.replace(/\?.*/, "").replaceAll("/", "-")}-${scheme}-${width}.png`;
        await tab.screenshot({ path: path.join(directory, file), fullPage: true });
      }
      await tab.context().close();
    }
  }
  await browser.close();
}

if (process.argv[1] === import.meta.filename) {
  const [url, directory, name = "admin", password = "password", only = ""] = process.argv.slice(2);
  await all(url, directory, name, password, only);
}
