// Pictures of each page, light and dark, wide and narrow.
import fs from "node:fs";
import path from "node:path";
import { open } from "./browser.mjs";
import { PAGES, firstAccount } from "./steps.mjs";

/** Long enough for the first answers and a chart. */
const SETTLE_MS = 900;

export async function takeAll(browser, target, directory, only = "") {
  fs.mkdirSync(directory, { recursive: true });
  const first = await open(browser);
  await first.goto(target.url);
  await first.screenshot({ path: path.join(directory, "sign-in-light-1440.png") });
  await firstAccount(first, target);
  const storageState = await first.context().storageState();
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1440, 360]) {
      const context = await browser.newContext({
        viewport: { width, height: width === 360 ? 740 : 900 },
        colorScheme,
        storageState,
        reducedMotion: "reduce",
      });
      const tab = await open(browser, { context });
      for (const page of PAGES.filter((page) => page.includes(only))) {
        await tab.goto(`${target.url}#/${page}`);
        await tab.waitForTimeout(SETTLE_MS);
        const file = `${page.replace(/\?.*/, "").replaceAll("/", "-")}-${colorScheme}-${width}.png`;
        await tab.screenshot({ path: path.join(directory, file), fullPage: true });
      }
      await context.close();
    }
  }
}
