// Pages about the broker itself, with a client that is connected by the page.
import { go, nothingWrong, opened, PASSWORD } from "../steps.mjs";

const CLIENT = "walker/1";

/** Another tab, in which a client is connected, has subscriptions, and has published a retained message. */
async function connected(tab, target) {
  const other = await tab.context().newPage();
  await go(other, target, "try");
  await other.getByLabel("Client id").fill(CLIENT);
  await other.getByRole("button", { name: "Connect", exact: true }).click();
  await other.getByText("connected", { exact: true }).waitFor();
  for (const filter of ["$share/workers/jobs/#", "plant/#"]) {
    await other.getByLabel("Filter").fill(filter);
    await other.getByRole("button", { name: "Subscribe" }).click();
  }
  await other.getByLabel("Retain").check();
  await other.getByRole("button", { name: "Publish" }).click();
  await other.getByText("1 sent, 1 acknowledged, 1 received, 0 wrong").waitFor();
  return other;
}

/** Presses the button of the page, fills in the dialog, and waits until it is done. */
async function change(tab, button, fields = {}, done = button) {
  await tab.getByRole("main").getByRole("button", { name: button, exact: true }).click();
  const dialog = tab.getByRole("dialog");
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label).fill(value);
  await dialog.getByRole("button", { name: done, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

export const tests = {
  "a client is found, described, and disconnected": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      const other = await connected(tab, target);
      await go(tab, target, "clients?search=walk");
      await tab.getByRole("link", { name: CLIENT }).click();
      await tab.getByRole("heading", { name: CLIENT }).waitFor();
      await tab.getByRole("link", { name: "Its session" }).click();
      await tab.getByRole("cell", { name: "plant/#" }).waitFor();
      await nothingWrong(tab, "a client");
      await go(tab, target, `clients/${encodeURIComponent(CLIENT)}`);
      await change(tab, "Disconnect");
      await tab.getByText("was disconnected").waitFor();
      await other.getByText("The broker ended the connection (0x98)").waitFor();
    },
  },

  "subscriptions are found by topic, and groups have their members": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await connected(tab, target);
      await go(tab, target, "subscriptions?topic=plant/any");
      await tab.getByRole("cell", { name: "plant/#" }).waitFor();
      await go(tab, target, "subscriptions/groups");
      await tab.getByRole("row").filter({ hasText: "workers" }).getByText(CLIENT).waitFor();
      await nothingWrong(tab, "subscriptions");
    },
  },

  "a retained message is found, shown and deleted": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await connected(tab, target);
      await go(tab, target, "topics?search=temper");
      await tab.getByRole("link", { name: "plant/line1/temperature" }).click();
      await tab.getByRole("button", { name: "JSON" }).click();
      await tab.getByLabel("Value", { exact: true }).filter({ hasText: '"celsius": 21.5' }).waitFor();
      await nothingWrong(tab, "a topic");
      await change(tab, "Delete retained", {}, "Delete");
      await tab.getByText("was deleted").waitFor();
    },
  },

  "roles, users and bans are added and removed": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "access/roles");
      const rules = "allow publish plant/{user}/#; deny subscribe secret/#";
      await change(tab, "Add a role", { Name: "sensor", Rules: rules }, "Add");
      await tab.getByText("allow publish plant/{user}/#").waitFor();
      await go(tab, target, "access/users");
      await change(tab, "Add a user", { Name: "ann", Password: PASSWORD, Roles: "sensor" }, "Add");
      await tab.getByRole("row").filter({ hasText: "ann" }).getByText("sensor").waitFor();
      await change(tab, "Change", { Roles: "" });
      await change(tab, "Remove");
      await tab.getByText("No user", { exact: true }).waitFor();
      await go(tab, target, "access/bans");
      await change(tab, "Ban", { "Name or address": "noisy", "For minutes": "5" });
      await tab.getByRole("cell", { name: "client noisy" }).waitFor();
      await change(tab, "Remove");
      await tab.getByText("Nothing is banned").waitFor();
      await nothingWrong(tab, "access");
    },
  },

  "access is explained": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "access");
      await tab.getByLabel("Topic or filter").fill("plant/1");
      await tab.getByRole("button", { name: "Explain" }).click();
      await tab.getByText("Allowed").waitFor();
      await tab.waitForURL(/topic=plant%2F1/);
      await nothingWrong(tab, "explaining");
    },
  },

  "the configuration has its origins, and is reloaded": {
    needs: "binary",
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "settings?search=listeners.1&changed=true");
      await tab.getByRole("row").filter({ hasText: "listeners.1.protocol" }).getByText("unbroken.toml:").waitFor();
      await tab.getByRole("button", { name: "Reload from files" }).click();
      await tab.getByText(/^Reloaded/).waitFor();
      await nothingWrong(tab, "the configuration");
    },
  },
};
