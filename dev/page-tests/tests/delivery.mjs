// Delivery, the demonstration and incidents: a fault is injected, named and repaired.
import assert from "node:assert/strict";
import { go, nothingWrong, opened } from "../steps.mjs";

export const tests = {
  "a broker without traffic shows the next step, with its own port": {
    state: "empty",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.getByText("No messages yet").first().waitFor();
      const command = tab.getByText(/mosquitto_pub .*-t plant/);
      await command.waitFor();
      const text = await command.textContent();
      assert.ok(target.isMock || / -p \d+ /.test(text), text);
      await nothingWrong(tab, "an empty broker");
    },
  },

  "a fault of the demonstration is injected, named and repaired": {
    state: "empty",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.getByRole("button", { name: "Start the demonstration" }).click();
      await tab.getByRole("button", { name: "Lose a message" }).click();
      const row = tab.getByRole("row").filter({ hasText: "Message lost" });
      await row.getByText(/lost.*number [\d,]+/i).waitFor({ timeout: 15_000 });
      await row
        .getByText(/later$/)
        .last()
        .waitFor({ timeout: 15_000 });
      await tab.getByRole("button", { name: "End the demonstration" }).click();
      await nothingWrong(tab, "the demonstration");
    },
  },

  "the sentence has its figures with their definitions": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.getByText("Messages are missing").first().waitFor();
      const verdict = tab.getByRole("region", { name: "Verdict" });
      const text = await verdict.locator(".sentence").first().innerText();
      assert.match(text, /[\d,]+ published, .*delivered and acknowledged, .*1 lost since 09:00/);
      await verdict.locator(".term-word").first().focus();
      await verdict.getByRole("tooltip").filter({ hasText: "accepted from clients" }).waitFor();
    },
  },

  "the strip leads by keyboard to the incident": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab
        .getByRole("button", { name: /faulty/ })
        .first()
        .focus();
      await tab.keyboard.press("ArrowRight");
      await tab.keyboard.press("ArrowLeft");
      await tab.keyboard.press("Enter");
      await tab.getByRole("heading", { name: "Lost: number 1,204,118" }).waitFor();
      await tab.getByText("between publisher and broker").waitFor();
      await tab.context().grantPermissions(["clipboard-read", "clipboard-write"]);
      await tab.getByRole("button", { name: "Copy the proof" }).click();
      await tab.getByText("Copied").waitFor();
      const proof = JSON.parse(await tab.evaluate(() => navigator.clipboard.readText()));
      assert.equal(proof.evidence.incident.lane, "0f4b9736d6a423ad");
      await nothingWrong(tab, "an incident");
    },
  },

  "an incident is ignored with a note": {
    needs: "mock",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "incident/16");
      assert.ok(await tab.getByRole("button", { name: "Ask for repair" }).isDisabled());
      await tab.getByRole("button", { name: "Ignore with a note" }).click();
      await tab.getByLabel("Note").fill("The phone is off.");
      const sent = tab.waitForRequest((request) => request.url().endsWith("/incidents/16/note"));
      await tab.getByRole("button", { name: "Ignore", exact: true }).click();
      assert.deepEqual((await sent).postDataJSON(), { text: "The phone is off.", ignore: true });
    },
  },
};
