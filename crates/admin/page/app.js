// The page: sign-in, the frame around all pages, and the choice of the one that is shown.
import { html, render, effect, useEffect, useRef, useState } from "./lib/view.js";
import { identify, me, signOut } from "./lib/api.js";
import { href, route } from "./lib/route.js";
import { Keys, listen, showKeys } from "./lib/keys.js";
import { Dialogs } from "./lib/dialog.js";
import { Failure } from "./lib/parts.js";
import { Icon } from "./lib/icons.js";
import { live } from "./lib/live.js";
import { scheme } from "./lib/chart.js";
import { SignIn } from "./pages/sign-in.js";

const PAGES = [
  { path: "delivery", name: "Delivery", key: "d", icon: "delivery" },
  { path: "live", name: "Live", key: "l", icon: "live" },
  { path: "topics", name: "Topics", key: "t", icon: "topics" },
  { path: "clients", name: "Clients", key: "c", icon: "clients" },
  { path: "sessions", name: "Sessions", key: "s", icon: "sessions" },
  { path: "subscriptions", name: "Subscriptions", key: "u", icon: "subscriptions" },
  { path: "access", name: "Access", key: "a", icon: "access" },
  { path: "try", name: "Try it", key: "y", icon: "try" },
  { path: "logs", name: "Logs and traces", key: "o", icon: "logs" },
  { path: "settings", name: "Settings", key: "e", icon: "settings" },
];

/** Modules of pages that have no entry of their own in the list. */
const MODULES = { incident: "incident", incidents: "incidents" };

function App() {
  if (me.value === null) return html`<p class="starting quiet" role="status">Loading …</p>`;
  if (!me.value) return html`<${SignIn} />`;
  return html`<${Frame} />`;
}

function Frame() {
  const { path } = route.value;
  const [current = "delivery"] = path;
  const [isOpen, setOpen] = useState(false);
  const main = useRef();
  const isFirst = useRef(true);
  useEffect(() => {
    setOpen(false);
    // Screen readers and the keyboard go on at the new content.
    if (!isFirst.current) main.current.focus();
    isFirst.current = false;
  }, [path.join("/")]);
  useEffect(() => {
    const page = PAGES.find((page) => page.path === current);
    document.title = `${page?.name ?? "Incident"} · Unbroken`;
  }, [current]);
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="bar">
      <${Brand} />
      <button type="button" class="with-icon" aria-expanded=${isOpen} aria-controls="menu"
        onClick=${() => setOpen(!isOpen)}><${Icon} name="menu" /><span>Menu</span></button>
    </header>
    <div class="frame">
      <nav id="menu" class="side ${isOpen ? "is-open" : ""}" aria-label="Pages">
        <${Brand} />
        <ul>${PAGES.map(
          (page) => html`<li><a href=${href([page.path])}
          aria-current=${isCurrent(page.path, current) ? "page" : undefined}>
          <${Icon} name=${page.icon} />${page.name}${page.path === "delivery" && html`<${Light} />`}</a></li>`,
        )}</ul>
        <${Account} />
      </nav>
      <main id="main" ref=${main} tabindex="-1"><${Page} name=${current} /></main>
    </div>
    <${Keys} pages=${PAGES} /><${Dialogs} />`;
}

function isCurrent(page, current) {
  return page === current || (page === "delivery" && current in MODULES);
}

function Brand() {
  return html`<a class="brand" href="#/delivery"><img src="page/icon.svg" alt="" width="20" height="20" />Unbroken</a>`;
}

/** Whether all is well, on every page. */
function Light() {
  const state = live.snapshot.value?.delivery?.state;
  const tone = { green: "ok", amber: "warn", red: "bad" }[state];
  if (!tone) return null;
  const word = { ok: "no fault", warn: "not all known", bad: "fault" }[tone];
  return html`<span class="light tone-${tone}"><${Icon} name=${tone} size="14" />
    <span class="unseen">${word}</span></span>`;
}

function Account() {
  const leave = me.value.csrf ? "Sign out" : "Sign in";
  return html`<div class="account">
    <p><b>${me.value.name}</b><span class="quiet">${me.value.role}</span></p>
    <div class="account-buttons">
      <button type="button" class="icon-only" title="Light or dark" aria-label="Light or dark" onClick=${turnScheme}>
        <${Icon} name="theme" /></button>
      <button type="button" class="icon-only" title="Keyboard" aria-label="Keyboard" onClick=${showKeys}>
        <${Icon} name="help" /></button>
      <button type="button" class="icon-only" title=${leave} aria-label=${leave} onClick=${signOut}>
        <${Icon} name="out" /></button>
    </div>
  </div>`;
}

/** A page is loaded when it is first shown. */
function Page({ name }) {
  const [state, setState] = useState({ name: null });
  useEffect(() => {
    let isWanted = true;
    // Another page may be asked for before this one is there.
    const show = (found) => isWanted && setState({ name, ...found });
    const file = PAGES.some((page) => page.path === name) ? name : MODULES[name];
    if (file) {
      import(`./pages/${file}.js`).then(
        (module) => show({ View: module.default }),
        () => show({ error: new Error("The page was not loaded. Reload it to try again.") }),
      );
    } else show({ error: new Error(`There is no page “${name}”.`) });
    return () => {
      isWanted = false;
    };
  }, [name]);
  if (state.name !== name) return html`<p class="quiet" role="status">Loading …</p>`;
  return state.error ? html`<${Failure} error=${state.error} />` : html`<${state.View} />`;
}

function turnScheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const current = document.documentElement.dataset.scheme ?? (isDark ? "dark" : "light");
  setScheme(current === "dark" ? "light" : "dark");
}

function setScheme(name) {
  document.documentElement.dataset.scheme = name;
  localStorage.setItem("scheme", name);
  scheme.value += 1;
}

const chosen = localStorage.getItem("scheme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
listen(PAGES);
render(html`<${App} />`, document.getElementById("app"));
identify();
// The page that was asked for is shown after signing in, too.
effect(() => {
  if (me.value && route.value.path.length === 0) history.replaceState(null, "", "#/delivery");
});
