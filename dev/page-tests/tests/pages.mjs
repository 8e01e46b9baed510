// Every page: no errors, no violations of the policy, nothing that axe finds, nothing wider than the screen.
import assert from "node:assert/strict";
import { findings } from "../browser.mjs";
import { PAGES, go, nothingWrong, opened } from "../steps.mjs";

/** Pages of things that the invented figures have. */
const OF_THINGS = [
  "incident/17",
  "incident/16",
  "clients/sensor-000003",
  "sessions/sensor-000003",
  "topics?topic=plant/line1/temperature",
  "logs/traces/1",
];

function all(target) {
  return target.isMock ? [...PAGES, ...OF_THINGS] : PAGES;
}

export const tests = {
  "every page loads without errors and violations": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      for (const page of all(target)) {
        await go(tab, target, page);
        await tab.locator("main .panel").first().waitFor();
        await tab.waitForLoadState("networkidle").catch(() => {});
        await nothingWrong(tab, page);
        const stale = await tab.locator(".failure").allTextContents();
        assert.deepEqual(stale, [], `${page} shows a failure`);
      }
    },
  },

  "axe finds nothing, light and dark": {
    run: async ({ browser, target }) => {
      for (const scheme of ["light", "dark"]) {
        const tab = await opened(browser, target, { scheme, bypassCSP: true });
        for (const page of all(target)) {
          await go(tab, target, page);
          await tab.locator("main .panel").first().waitFor();
          await tab.waitForTimeout(300);
          assert.deepEqual(await findings(tab), [], `${page}, ${scheme}`);
        }
        await tab.context().close();
        if (!target.isMock) return; // its link is good once
      }
    },
  },

  "axe finds nothing on the sign-in page": {
    run: async ({ browser, target }) => {
      const context = await browser.newContext({ bypassCSP: true });
      const tab = await context.newPage();
      await tab.goto(target.url);
      await tab.getByRole("heading", { name: "Sign in" }).waitFor();
      assert.deepEqual(await findings(tab), []);
    },
  },

  "no page is wider than a screen of 360 pixels": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target, { width: 360, height: 740 });
      for (const page of all(target)) {
        await go(tab, target, page);
        await tab.locator("main .panel").first().waitFor();
        const width = await tab.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= 360, `${page} is ${width} wide`);
      }
    },
  },

  "the page works below another path": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const below = { ...target, url: `${target.url}broker/`, link: `${target.url}broker/#link=TOKEN` };
      const tab = await opened(browser, below);
      await go(tab, below, "clients");
      await tab.getByRole("link", { name: "sensor-000001" }).waitFor();
      await nothingWrong(tab, "below a path");
    },
  },
};
