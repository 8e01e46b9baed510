// Sign-in and roles.
import assert from "node:assert/strict";
import { open } from "../browser.mjs";
import { PASSWORD, firstAccount, go, isSignedIn, nothingWrong, opened, signIn } from "../steps.mjs";

export const tests = {
  "the first account is made by the link, signs out, and signs in again": {
    run: async ({ browser, target }) => {
      const tab = await open(browser);
      await firstAccount(tab, target);
      assert.ok(!tab.url().includes("link="), "the token stays in the address");
      await tab.getByRole("button", { name: "Sign out" }).click();
      await signIn(tab, "admin");
      await isSignedIn(tab);
      await nothingWrong(tab, "signing in");
    },
  },

  "a wrong password is refused with words": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await tab.getByRole("button", { name: "Sign out" }).click();
      await signIn(tab, "admin", "wrong");
      await tab
        .getByRole("alert")
        .filter({ hasText: /password/i })
        .waitFor();
    },
  },

  "two passwords that differ make no account": {
    run: async ({ browser, target }) => {
      const tab = await open(browser);
      await tab.goto(target.link);
      await tab.getByLabel("Name").fill("admin");
      await tab.getByLabel("Password", { exact: true }).fill(PASSWORD);
      await tab.getByLabel("Password again").fill("another");
      await tab.getByRole("button", { name: "Create and sign in" }).click();
      await tab.getByRole("alert").filter({ hasText: "differ" }).waitFor();
    },
  },

  "a session that ends leads to the sign-in page, and back": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      await go(tab, target, "clients");
      await tab.context().clearCookies();
      await tab.getByRole("link", { name: "Sessions" }).click();
      await tab.getByText("Your session has ended").waitFor();
      await signIn(tab, "admin");
      await tab.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
    },
  },

  "a viewer has no buttons that change something": {
    run: async ({ browser, target }) => {
      const tab = await opened(browser, target);
      if (!target.isMock) await addAccount(tab, target, "viewer", "viewer");
      await tab.getByRole("button", { name: "Sign out" }).click();
      await signIn(tab, "viewer");
      await isSignedIn(tab);
      for (const [page, button] of [
        ["access/users", "Add a user"],
        ["access/bans", "Ban"],
        ["logs/traces", "Start"],
        ["settings", "Reload from files"],
      ]) {
        await go(tab, target, page);
        await tab.locator("main .panel").first().waitFor();
        assert.equal(await tab.getByRole("button", { name: button, exact: true }).count(), 0, `${page}: ${button}`);
      }
      await go(tab, target, "settings/accounts");
      await tab.getByText("Your role is viewer").waitFor();
      await nothingWrong(tab, "as a viewer");
    },
  },
};

async function addAccount(tab, target, name, role) {
  await go(tab, target, "settings/accounts");
  await tab.getByRole("button", { name: "Add an account" }).click();
  const dialog = tab.getByRole("dialog");
  await dialog.getByLabel("Name").fill(name);
  await dialog.getByLabel("Password").fill(PASSWORD);
  await dialog.getByLabel("Role").selectOption(role);
  await dialog.getByRole("button", { name: "Add" }).click();
  await dialog.waitFor({ state: "detached" });
}
