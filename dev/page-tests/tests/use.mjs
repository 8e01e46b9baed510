// How the page is used: keyboard, addresses, long lists, MQTT in the browser.
import assert from "node:assert/strict";
import { go, nothingWrong, opened } from "../steps.mjs";

/** Targets, in milliseconds. They are shown beside what was measured; a loaded machine fails no test. */
const FIRST_ROW_MS = 200;
const FIRST_PAINT_MS = 300;

export const tests = {
  "the keyboard searches, lists keys and opens pages": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.keyboard.press("g");
      await tab.keyboard.press("c");
      await tab.getByRole("heading", { name: "Clients", level: 1 }).waitFor();
      assert.equal(await tab.evaluate(() => document.activeElement.id), "main");
      await tab.keyboard.press("/");
      await tab.keyboard.type("pump");
      await tab.waitForURL(/search=pump/);
      await tab.locator("h1").click();
      await tab.keyboard.press("?");
      await tab.getByRole("dialog", { name: "Keyboard" }).waitFor();
      await tab.keyboard.press("Escape");
      await tab.getByRole("dialog").waitFor({ state: "detached" });
    },
  },

  "an address with its state shows the same again": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "live?range=6h");
      const pressed = tab.getByRole("button", { name: "6 h", pressed: true });
      await pressed.waitFor();
      await tab.getByRole("button", { name: "1 day" }).click();
      await tab.waitForURL(/range=1d/);
      await tab.reload();
      await tab.getByRole("button", { name: "1 day", pressed: true }).waitFor();
    },
  },

  "the page that was asked for last is shown, even if its file comes first": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.route("**/pages/topics.js", async (route) => {
        await new Promise((resolve) => setTimeout(resolve, 500));
        await route.continue();
      });
      await tab.evaluate(() => {
        location.hash = "#/topics";
      });
      await tab.waitForTimeout(100);
      await go(tab, target, "clients");
      await tab.waitForTimeout(800);
      await tab.getByRole("heading", { name: "Clients", level: 1 }).waitFor();
    },
  },

  "light and dark are switched and remembered": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      const ground = () => tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await ground();
      await tab.getByRole("button", { name: "Light or dark" }).click();
      const dark = await ground();
      assert.notEqual(dark, light);
      await tab.reload();
      await tab.locator("#menu").waitFor();
      assert.equal(await ground(), dark);
    },
  },

  "the first row of 100,000 clients is there at once": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "clients");
      await tab.getByRole("link", { name: "sensor-000000" }).waitFor();
      await go(tab, target, "delivery");
      const took = await tab.evaluate(async () => {
        const began = performance.now();
        location.hash = "#/clients";
        while (!document.querySelector("a[href='#/clients/sensor-000000']")) await new Promise(requestAnimationFrame);
        return performance.now() - began;
      });
      console.log(`first row of 100,000: ${Math.round(took)} ms, target ${FIRST_ROW_MS}`);
      await tab.getByRole("button", { name: "Next page" }).click();
      await tab.getByRole("link", { name: "sensor-000100" }).waitFor();
      await tab.goBack();
      await tab.getByRole("link", { name: "sensor-000000" }).waitFor();
      assert.equal(await tab.getByRole("row").count(), 101);
    },
  },

  "a message is published and received in the browser, and its number verified": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "try");
      await tab.getByRole("button", { name: "Connect", exact: true }).click();
      await tab.getByText("connected", { exact: true }).waitFor();
      await tab.getByRole("button", { name: "Subscribe" }).click();
      await tab.getByLabel("How many").fill("5");
      await tab.getByRole("button", { name: "Publish" }).click();
      await tab.getByText("5 sent, 5 acknowledged, 5 received, 0 wrong").waitFor();
      assert.equal(await tab.getByText("in order").count(), 5);
      await nothingWrong(tab, "trying it");
    },
  },

  "figures that cannot be refreshed say so and are grey": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "logs");
      await tab.getByText("client connected").waitFor();
      target.stop();
      await tab.locator(".panel.is-stale").getByText("stale, as of").waitFor();
      await tab.getByText("The broker does not answer").waitFor();
      await tab.getByText("client connected").waitFor();
    },
  },

  "Delivery is painted at once": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.reload();
      await tab.locator(".verdict").waitFor();
      const painted = await tab.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
      console.log(`first paint: ${Math.round(painted)} ms, target ${FIRST_PAINT_MS}`);
    },
  },

  "a trace shows its steps until it ends": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "logs/traces");
      await tab.getByLabel("Client id").fill("press-7");
      await tab.getByRole("button", { name: "Start" }).click();
      await tab.getByText("press-7 · PUBLISH · plant/line1/press7/force").waitFor();
      await tab.getByText("payload=21.5").waitFor();
      await tab.getByText("ended").waitFor();
      await nothingWrong(tab, "a trace");
    },
  },

  "a topic shows its value as text, JSON and bytes": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "topics");
      await tab.getByRole("button", { name: "Topics below plant", exact: true }).click();
      await tab.getByRole("button", { name: "Topics below plant/line1" }).click();
      await tab.getByRole("link", { name: "temperature" }).click();
      const value = tab.getByLabel("Value", { exact: true });
      await value.filter({ hasText: /^2\d\.\d\d$/ }).waitFor();
      await tab.getByRole("button", { name: "Hex" }).click();
      await value.filter({ hasText: /^000000 {2}32/ }).waitFor();
      await tab.getByRole("img", { name: /Values while this page is open/ }).waitFor();
    },
  },
};
