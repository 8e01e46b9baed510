// Settings: the configuration in force, listeners, certificates, and those who may use this page.
import { html, useState } from "../lib/view.js";
import { may, me, pathOf, send } from "../lib/api.js";
import { useAnswer, usePage } from "../lib/data.js";
import { ask, attempt, notify } from "../lib/dialog.js";
import { Choice, Copy, Empty, Facts, Pager, Panel, Search, State, Table, Tabs, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

const VIEWS = [
  ["config", "Configuration"],
  ["listeners", "Listeners"],
  ["accounts", "Accounts"],
  ["tokens", "Tokens"],
  ["history", "Admin history"],
];
const PAGES = { config: Config, listeners: Listeners, accounts: Accounts, tokens: Tokens, history: History };
const ROLES = ["viewer", "operator", "admin"];

export default function Settings() {
  const [, view = "config"] = route.value.path;
  const View = PAGES[view] ?? Config;
  const hrefOf = (key) => href(key === "config" ? ["settings"] : ["settings", key]);
  return html`<${Title}>Settings<//>
    <${Tabs} label="Views" value=${view} options=${VIEWS} hrefOf=${hrefOf} />
    <${View} />`;
}

const STORES = { ok: "ok", memory: "idle" };

function Config() {
  const { search = "", changed = "" } = route.value.query;
  const answer = usePage("/config", { query: { search, changed, limit: 1000 } });
  const node = useAnswer("/node");
  const reload = async () => {
    const reloaded = await attempt(() => send("POST", "/config/reload"));
    if (reloaded)
      done(
        answer,
        reloaded.changes.length > 0 ? `Reloaded: ${reloaded.changes.join("; ")}.` : "Reloaded; no value changed.",
      );
  };
  const columns = [
    { head: "Name", isMain: true, cell: (row) => html`<span class="mono">${row.name}</span>` },
    {
      head: "Value",
      cell: (row) =>
        html`<span class="mono">${row.value}</span>${
          row.after_restart !== null &&
          html`<br /><${State}
      tone="warn">after a restart: ${row.after_restart}<//>`
        }`,
    },
    {
      head: "From",
      of: "origin",
      cell: (row) => html`<span class=${row.source === "default" ? "quiet" : ""}>${row.origin || row.source}</span>`,
    },
  ];
  const button = may("admin") && html`<button type="button" onClick=${reload}>Reload from files</button>`;
  return html`<div class="stack">
    <${Panel} title="Broker" answer=${node}><${Facts} items=${[
      ["Version", node.data?.version],
      ["Started", node.data?.started && format.time(node.data.started)],
      ["Process id", node.data?.process_id],
      ["Running for", node.data && format.span(node.data.uptime_s)],
      ["Data directory", node.data && (node.data.data_directory ?? "none: everything is in memory")],
      [
        "Store",
        node.data && html`<${State} tone=${STORES[node.data.store] ?? "bad"}>${node.data.store.replace("_", " ")}<//>`,
      ],
      ["Shards", node.data?.shards],
    ]} /><//>
    <${Panel} title="Configuration in force" answer=${answer} actions=${button}>
      <div class="filters"><${Search} label="Name" value=${search} onChange=${(search) => setQuery({ search })} />
        <${Choice} label="Values" value=${changed} options=${[
          ["", "All"],
          ["true", "Not the default"],
        ]}
          onChange=${(changed) => setQuery({ changed })} /></div>
      <${Table} label="Configuration" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />
    <//>
  </div>`;
}

function Listeners() {
  const listeners = usePage("/listeners");
  const certificates = usePage("/certificates");
  const keyOf = (row) => `${row.file} ${row.what}`;
  const open = [
    { head: "Name", isMain: true, cell: (row) => row.name ?? row.number },
    { head: "Protocol", cell: (row) => row.protocol },
    { head: "Address", cell: (row) => html`<span class="mono">${row.address}</span>` },
    { head: "Admits", cell: (row) => row.admits },
    { head: "Mount point", isWide: true, cell: (row) => row.mount_point ?? "–" },
    { head: "Connections at most", isWide: true, isNumber: true, cell: (row) => format.count(row.max_connections) },
  ];
  const files = [
    { head: "File", isMain: true, cell: (row) => html`<span class="mono">${row.file}</span>` },
    { head: "What", cell: (row) => row.what },
    { head: "Expires", cell: (row) => html`<${State} tone=${expiryTone(row.days_left)}>${expiryText(row)}<//>` },
  ];
  return html`<div class="stack">
    <${Panel} title="Listeners" answer=${listeners}>
      <${Table} label="Listeners" columns=${open} rows=${listeners.items} keyOf=${(row) => row.number} />
    <//>
    <${Panel} title="Certificates" answer=${certificates}>
      ${
        certificates.items.length > 0
          ? html`<${Table} label="Certificates" columns=${files} rows=${certificates.items} keyOf=${keyOf} />`
          : html`<${Empty} title="No certificate is in use" />`
      }
    <//>
  </div>`;
}

function expiryTone(days) {
  return days < 0 ? "bad" : days < 14 ? "warn" : "ok";
}

function expiryText({ expires, days_left: days }) {
  const day = new Date(expires).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return days < 0 ? `expired on ${day}` : `${day}, in ${format.plural(days, "day")}`;
}

function Accounts() {
  const answer = usePage(may("admin") ? "/accounts" : null);
  const own = html`<button type="button" onClick=${changeOwn}>Change my password</button>`;
  if (!may("admin")) return html`<${ForAdmins} /><p>${me.value.csrf && own}</p>`;
  const add = () =>
    ask({
      title: "Add an account",
      button: "Add",
      fields: [
        { label: "Name", name: "name", required: true, autocomplete: "off" },
        { label: "Password", name: "password", type: "password", required: true, autocomplete: "new-password" },
        { label: "Role", name: "role", options: ROLES },
      ],
      run: (account) => send("POST", "/accounts", account).then(() => done(answer, `${account.name} was added.`)),
    });
  const change = (row) =>
    ask({
      title: `Change ${row.name}`,
      button: "Change",
      fields: [
        {
          label: "New password",
          name: "password",
          type: "password",
          autocomplete: "new-password",
          hint: "Empty: it stays",
        },
        { label: "Role", name: "role", options: [row.role, ...ROLES.filter((role) => role !== row.role)] },
      ],
      run: ({ password, role }) =>
        send("PATCH", `/accounts${pathOf(row.name)}`, { role, ...(password ? { password } : {}) }).then(() =>
          done(answer, `${row.name} was changed.`),
        ),
    });
  const remove = (row) =>
    ask({
      title: `Remove ${row.name}`,
      text: "It cannot sign in any more, and what it has open ends.",
      button: "Remove",
      isDanger: true,
      run: () => send("DELETE", `/accounts${pathOf(row.name)}`).then(() => done(answer, `${row.name} was removed.`)),
    });
  const columns = [
    {
      head: "Name",
      isMain: true,
      cell: (row) => html`${row.name}${row.name === me.value.name && html` <span class="quiet">(you)</span>`}`,
    },
    { head: "Role", cell: (row) => row.role },
    {
      head: "",
      cell: (row) => html`<span class="row-actions">
      <button type="button" onClick=${() => change(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove(row)}>Remove</button></span>`,
    },
  ];
  return html`<${Panel} title="Accounts of this page" answer=${answer}
    actions=${html`${own}<button type="button" onClick=${add}>Add an account</button>`}>
    <${Table} label="Accounts" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />
  <//>`;
}

function changeOwn() {
  ask({
    title: "Change my password",
    button: "Change",
    fields: [
      { label: "Old password", name: "old", type: "password", required: true, autocomplete: "current-password" },
      {
        label: "New password",
        name: "new",
        type: "password",
        required: true,
        minlength: 8,
        autocomplete: "new-password",
      },
    ],
    run: (passwords) => send("POST", "/me/password", passwords).then(() => notify("The password was changed.")),
  });
}

function Tokens() {
  const answer = usePage(may("admin") ? "/tokens" : null);
  const [made, setMade] = useState(null);
  if (!may("admin")) return html`<${ForAdmins} />`;
  const add = () =>
    ask({
      title: "Add a token",
      text: "For programs. It is shown once.",
      button: "Add",
      fields: [
        { label: "Name", name: "name", required: true },
        { label: "Role", name: "role", options: ROLES },
        { label: "Valid for days", name: "days", type: "number", min: 1, max: 3650, value: 90, required: true },
      ],
      run: ({ name, role, days }) =>
        send("POST", "/tokens", { name, role, expires: new Date(Date.now() + days * 86_400_000).toISOString() }).then(
          (token) => {
            setMade(token);
            answer.reload();
          },
        ),
    });
  const revoke = (row) =>
    ask({
      title: `Revoke ${row.name}`,
      button: "Revoke",
      isDanger: true,
      run: () => send("DELETE", `/tokens${pathOf(row.id)}`).then(() => done(answer, `${row.name} was revoked.`)),
    });
  const columns = [
    { head: "Name", isMain: true, cell: (row) => row.name },
    { head: "Role", cell: (row) => row.role },
    { head: "Expires", cell: (row) => (row.expires ? format.time(row.expires) : "never") },
    { head: "Last used", isWide: true, cell: (row) => (row.last_used ? format.time(row.last_used) : "never") },
    {
      head: "",
      cell: (row) =>
        html`<span class="row-actions">
          <button type="button" class="danger" onClick=${() => revoke(row)}>Revoke</button></span>`,
    },
  ];
  const button = html`<button type="button" onClick=${add}>Add a token</button>`;
  return html`<${Panel} title="Tokens" answer=${answer} actions=${button}>
    ${
      made &&
      html`<div class="stack made"><p>The token <b>${made.name}</b>. It is not shown again.</p>
      <div class="command"><code>${made.secret}</code><${Copy} text=${made.secret} /></div></div>`
    }
    ${
      answer.items.length > 0
        ? html`<${Table} label="Tokens" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />`
        : html`<${Empty} title="No token" />`
    }
  <//>`;
}

const OUTCOMES = { done: "ok", refused: "warn", failed: "bad" };

function History() {
  const { cursor } = route.value.query;
  const answer = usePage(may("admin") ? "/history" : null, { query: { cursor } });
  if (!may("admin")) return html`<${ForAdmins} />`;
  const columns = [
    { head: "Time", cell: (row) => html`<time datetime=${row.at}>${format.time(row.at)}</time>` },
    { head: "Caller", cell: (row) => row.caller },
    { head: "Action", cell: (row) => row.action },
    { head: "Target", isMain: true, cell: (row) => html`<span class="mono">${row.target}</span>` },
    { head: "Outcome", cell: (row) => html`<${State} tone=${OUTCOMES[row.outcome]}>${row.outcome}<//>` },
    { head: "From", isWide: true, cell: (row) => row.address ?? "unix socket" },
  ];
  return html`<${Panel} title="Changes through this page and its API, newest first" answer=${answer}>
    <${Table} label="Admin history" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />
    <${Pager} answer=${answer} />
  <//>`;
}

function ForAdmins() {
  return html`<${Empty} title="For administrators">Your role is ${me.value.role}.<//>`;
}

function done(answer, text) {
  notify(text);
  answer.reload();
}
