// Steps of several tests: sign in, go to a page, look for errors.
import assert from "node:assert/strict";
import { open } from "./browser.mjs";

export const PASSWORD = "correct horse 7";

/** Addresses of all pages that need no object. */
export const PAGES = [
  "delivery",
  "incidents",
  "live",
  "topics",
  "clients",
  "sessions",
  "subscriptions",
  "subscriptions/groups",
  "access",
  "access/denied",
  "access/users",
  "access/roles",
  "access/bans",
  "try",
  "logs",
  "logs/traces",
  "settings",
  "settings/listeners",
  "settings/accounts",
  "settings/tokens",
  "settings/history",
];

/** Makes the first account by the one-time link, and is signed in as it. */
export async function firstAccount(tab, target, name = "admin") {
  await tab.goto("about:blank");
  await tab.goto(target.link);
  await tab.getByRole("heading", { name: "Create the first account" }).waitFor();
  await tab.getByLabel("Name").fill(name);
  await tab.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await tab.getByLabel("Password again").fill(PASSWORD);
  await tab.getByRole("button", { name: "Create and sign in" }).click();
  await isSignedIn(tab);
}

export async function signIn(tab, name, password = PASSWORD) {
  await tab.getByRole("heading", { name: "Sign in" }).waitFor();
  await tab.getByLabel("Name").fill(name);
  await tab.getByLabel("Password").fill(password);
  await tab.getByRole("button", { name: "Sign in" }).click();
}

export function isSignedIn(tab) {
  return tab.locator("#menu").waitFor({ state: "attached" });
}

/** A tab that is signed in as an admin. */
export async function opened(browser, target, options) {
  const tab = await open(browser, options);
  await firstAccount(tab, target);
  return tab;
}

export async function go(tab, target, page) {
  await tab.goto(`${target.url}#/${page}`);
  await tab.locator("main h1").first().waitFor();
}

/** Answers that browsers report as errors, and that are none: there is no session yet, no demonstration was started. */
const EXPECTED = [/401 .*\/api\/v1\/me$/, /404 .*\/api\/v1\/demonstration$/];

export async function nothingWrong(tab, where) {
  const wrong = tab.wrong.filter((text) => !EXPECTED.some((expected) => expected.test(text)));
  assert.deepEqual(wrong, [], `${where} reports errors`);
  assert.deepEqual(await tab.evaluate(() => globalThis.violations), [], `${where} violates the policy`);
}
