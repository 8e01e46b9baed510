// Signing in, and the first account by a one-time link.
import { html, useState } from "../lib/view.js";
import { ended, identify, send } from "../lib/api.js";
import { Failure, Field } from "../lib/parts.js";
import { linkToken } from "../lib/route.js";

export function SignIn() {
  const token = linkToken.value;
  const isFirst = token !== null;
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const { name, password, again } = Object.fromEntries(new FormData(event.target));
    if (isFirst && password !== again) return setError(new Error("The two passwords differ."));
    setBusy(true);
    setError(null);
    try {
      if (isFirst) await send("POST", "/sign-in/link", { token, name, password });
      else await send("POST", "/sign-in", { name, password });
      ended.value = "";
      linkToken.value = null;
      await identify();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
    return undefined;
  };
  return html`<main class="sign-in">
    <form onSubmit=${submit} aria-labelledby="sign-in">
      <p class="brand"><img src="page/icon.svg" alt="" width="24" height="24" />Unbroken</p>
      <h1 id="sign-in">${isFirst ? "Create the first account" : "Sign in"}</h1>
      <p class="quiet">${
        isFirst
          ? "It is an administrator of this page and its API. It is not an MQTT user."
          : ended.value || "With an account of this page. MQTT users cannot sign in here."
      }</p>
      <${Field} label="Name" name="name" autocomplete="username" required autofocus spellcheck=${false}
        autocapitalize="none" />
      <${Field} label="Password" name="password" type="password" required
        autocomplete=${isFirst ? "new-password" : "current-password"} />
      ${
        isFirst &&
        html`<${Field} label="Password again" name="again" type="password" required
        autocomplete="new-password" />`
      }
      ${error && html`<${Failure} error=${error} />`}
      <button type="submit" class="primary" disabled=${isBusy}>${isFirst ? "Create and sign in" : "Sign in"}</button>
      ${
        isFirst
          ? html`<button type="button" class="plain" onClick=${() => (linkToken.value = null)}>
            Sign in with an account instead</button>`
          : html`<p class="quiet small">No account yet? On the machine of the broker, <code>unbroken admin link</code>
            gives          a link that makes one.</p>`
      }
    </form>
  </main>`;
}
