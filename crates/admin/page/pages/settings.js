// Settings: the configuration in force, listeners, certificates, and those who may use this page.
import { html, useState } from "../lib/view.js";
import { may, me, pathOf, send } from "../lib/api.js";
import { useAnswer, usePage } from "../lib/data.js";
import { ask, attempt, notify } from "../lib/dialog.js";
import { Copy, Empty, Facts, Pager, Panel, Search, State, Table, Tabs, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

const VIEWS = [["config", "Configuration"], ["listeners", "Listeners"], ["accounts", "Accounts"], ["tokens", "Tokens"], ["history", "Admin history"]];
const PAGES = { config: Config, listeners: Listeners, accounts: Accounts, tokens: Tokens, history: History };
const ROLES = ["viewer", "operator", "admin"];

export default function Settings() {
  const [, view = "config"] = route.value.path;
  const View = PAGES[view] ?? Config;
  return html`<${Title}>Settings<//>
    <${Tabs} label="Views" value=${view} options=${VIEWS} hrefOf=${(key) => href(key === "config" ? ["settings"] : ["settings", key])} />
    <${View} />`;
}

function Config() {
  const { search = "" } = route.value.query;
  const answer = useAnswer("/config");
  const node = useAnswer("/node");
  const items = (answer.data?.items ?? []).filter(({ key }) => key.includes(search));
  const reload = () => attempt(() => send("POST", "/config/reload", {}), "The configuration was reloaded.").then(answer.reload);
  const value = (row) => (row.secret ? "(secret)" : typeof row.value === "string" ? row.value : JSON.stringify(row.value));
  const columns = [
    { head: "Key", isMain: true, cell: (row) => html`<span class="mono">${row.key}</span>` },
    { head: "Value", cell: (row) => html`<span class="mono">${value(row)}</span>` },
    { head: "From", of: "origin", cell: (row) => html`<span class=${row.origin === "default" ? "quiet" : ""}>${row.origin}</span>` },
  ];
  const button = may("admin") && html`<button type="button" onClick=${reload}>Reload from files</button>`;
  return html`<div class="stack">
    <${Panel} title="Broker" answer=${node}><${Facts} items=${[
      ["Version", node.data?.version],
      ["Started", node.data?.started && format.time(node.data.started)],
      ["Process", node.data?.process_id],
      ["Data", node.data?.data_directory],
      ["Shards", node.data?.shards],
    ]} /><//>
    <${Panel} title="Configuration in force" answer=${answer} actions=${button}>
      <div class="filters"><${Search} label="Key" value=${search} onChange=${(search) => setQuery({ search })} /></div>
      <${Table} label="Configuration" columns=${columns} rows=${items} keyOf=${(row) => row.key} />
    <//>
  </div>`;
}

function Listeners() {
  const listeners = usePage("/listeners");
  const certificates = usePage("/certificates");
  const open = [
    { head: "Name", isMain: true, cell: (row) => row.name ?? row.address },
    { head: "Protocol", cell: (row) => row.protocol },
    { head: "Address", cell: (row) => html`<span class="mono">${row.address}</span>` },
    { head: "TLS", cell: (row) => (row.tls ? "yes" : "no") },
    { head: "Connections", of: "connections", isNumber: true, cell: (row) => format.count(row.connections) },
  ];
  const files = [
    { head: "File", isMain: true, cell: (row) => html`<span class="mono">${row.file}</span>` },
    { head: "What", cell: (row) => row.what ?? row.kind },
    { head: "Expires", cell: (row) => html`<${State} tone=${expiryTone(row.not_after)}>${expiryText(row.not_after)}<//>` },
  ];
  return html`<div class="stack">
    <${Panel} title="Listeners" answer=${listeners}>
      <${Table} label="Listeners" columns=${open} rows=${listeners.items} keyOf=${(row) => row.address} />
    <//>
    <${Panel} title="Certificates" answer=${certificates}>
      ${certificates.items.length > 0
        ? html`<${Table} label="Certificates" columns=${files} rows=${certificates.items} keyOf=${(row) => row.file} />`
        : html`<${Empty} title="No certificate is in use" />`}
    <//>
  </div>`;
}

function daysLeft(text) {
  return Math.floor((new Date(text) - Date.now()) / 86_400_000);
}

function expiryTone(text) {
  const days = daysLeft(text);
  return days < 0 ? "bad" : days < 14 ? "warn" : "ok";
}

function expiryText(text) {
  const days = daysLeft(text);
  const day = new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return days < 0 ? `expired on ${day}` : `${day}, in ${format.plural(days, "day")}`;
}

function Accounts() {
  const answer = usePage(may("admin") ? "/accounts" : null);
  if (!may("admin")) return html`<${ForAdmins} />`;
  const add = () => ask({
    title: "Add an account",
    button: "Add",
    fields: [
      { label: "Name", name: "name", required: true, autocomplete: "off" },
      { label: "Password", name: "password", type: "password", required: true, autocomplete: "new-password" },
      { label: "Role", name: "role", options: ROLES },
    ],
    run: (account) => send("POST", "/accounts", account).then(() => done(answer, `${account.name} was added.`)),
  });
  const change = (row) => ask({
    title: `Change ${row.name}`,
    button: "Change",
    fields: [
      { label: "New password", name: "password", type: "password", autocomplete: "new-password", hint: "Empty: it stays" },
      { label: "Role", name: "role", options: [row.role, ...ROLES.filter((role) => role !== row.role)] },
    ],
    run: ({ password, role }) => send("PATCH", `/accounts${pathOf(row.name)}`, { role, ...(password ? { password } : {}) })
      .then(() => done(answer, `${row.name} was changed.`)),
  });
  const remove = (row) => ask({
    title: `Remove ${row.name}`,
    text: "It cannot sign in any more, and what it has open ends.",
    button: "Remove",
    isDanger: true,
    run: () => send("DELETE", `/accounts${pathOf(row.name)}`).then(() => done(answer, `${row.name} was removed.`)),
  });
  const columns = [
    { head: "Name", isMain: true, cell: (row) => html`${row.name}${row.name === me.value.name && html` <span class="quiet">(you)</span>`}` },
    { head: "Role", cell: (row) => row.role },
    { head: "", cell: (row) => html`<span class="row-actions">
      <button type="button" onClick=${() => change(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove(row)}>Remove</button></span>` },
  ];
  return html`<${Panel} title="Accounts of this page" answer=${answer}
    actions=${html`<button type="button" onClick=${add}>Add an account</button>`}>
    <${Table} label="Accounts" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />
  <//>`;
}

function Tokens() {
  const answer = usePage(may("admin") ? "/tokens" : null);
  const [made, setMade] = useState(null);
  if (!may("admin")) return html`<${ForAdmins} />`;
  const add = () => ask({
    title: "Add a token",
    text: "For programs. It is shown once.",
    button: "Add",
    fields: [
      { label: "Name", name: "name", required: true },
      { label: "Role", name: "role", options: ROLES },
      { label: "Valid for days", name: "days", type: "number", min: 1, max: 3650, value: 90, required: true },
    ],
    run: ({ name, role, days }) => send("POST", "/tokens", { name, role, expires_s: Number(days) * 86_400 }).then((token) => {
      setMade(token);
      answer.reload();
    }),
  });
  const revoke = (row) => ask({
    title: `Revoke ${row.name}`,
    button: "Revoke",
    isDanger: true,
    run: () => send("DELETE", `/tokens${pathOf(row.id)}`).then(() => done(answer, `${row.name} was revoked.`)),
  });
  const columns = [
    { head: "Name", isMain: true, cell: (row) => row.name },
    { head: "Role", cell: (row) => row.role },
    { head: "Expires", cell: (row) => format.time(row.expires) },
    { head: "Last used", isWide: true, cell: (row) => (row.last_used ? format.time(row.last_used) : "never") },
    { head: "", cell: (row) => html`<span class="row-actions"><button type="button" class="danger" onClick=${() => revoke(row)}>Revoke</button></span>` },
  ];
  return html`<${Panel} title="Tokens" answer=${answer} actions=${html`<button type="button" onClick=${add}>Add a token</button>`}>
    ${made && html`<div class="stack made"><p>The token <b>${made.name}</b>. It is not shown again.</p>
      <div class="command"><code>${made.token ?? made.secret}</code><${Copy} text=${made.token ?? made.secret} /></div></div>`}
    ${answer.items.length > 0
      ? html`<${Table} label="Tokens" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />`
      : html`<${Empty} title="No token" />`}
  <//>`;
}

function History() {
  const { cursor } = route.value.query;
  const answer = usePage(may("admin") ? "/history" : null, { query: { cursor } });
  if (!may("admin")) return html`<${ForAdmins} />`;
  const columns = [
    { head: "Time", cell: (row) => html`<time datetime=${row.at}>${format.time(row.at)}</time>` },
    { head: "Caller", cell: (row) => row.caller ?? row.name },
    { head: "Action", cell: (row) => row.action ?? row.method },
    { head: "Target", isMain: true, cell: (row) => html`<span class="mono">${row.target ?? row.path ?? "–"}</span>` },
    { head: "Outcome", cell: (row) => row.outcome ?? row.status },
    { head: "From", isWide: true, cell: (row) => row.address ?? "–" },
  ];
  return html`<${Panel} title="Changes through this page and its API, newest first" answer=${answer}>
    <${Table} label="Admin history" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id ?? `${row.at}${row.action}${row.target}`} />
    <${Pager} count=${answer.items.length} isFirst=${!cursor} next=${answer.next}
      onFirst=${() => setQuery({ cursor: "" }, { step: true })} onNext=${() => setQuery({ cursor: answer.next }, { step: true })} />
  <//>`;
}

function ForAdmins() {
  return html`<${Empty} title="For administrators">Your role is ${me.value.role}.<//>`;
}

function done(answer, text) {
  notify(text);
  answer.reload();
}
