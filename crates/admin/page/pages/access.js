// Access: may this client do that, what was denied, and users and roles.
import { html, useState } from "../lib/view.js";
import { may, pathOf, send } from "../lib/api.js";
import { usePage } from "../lib/data.js";
import { ask, notify } from "../lib/dialog.js";
import { Choice, Empty, Failure, Field, Pager, Panel, State, Table, Tabs, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

const VIEWS = [["explain", "Explain"], ["denied", "Denied"], ["users", "Users"], ["roles", "Roles"], ["bans", "Bans"]];
const PAGES = { explain: Explain, denied: Denied, users: Users, roles: Roles, bans: Bans };

export default function Access() {
  const [, view = "explain"] = route.value.path;
  const View = PAGES[view] ?? Explain;
  return html`<${Title} lead="Which MQTT clients may do what.">Access<//>
    <${Tabs} label="Views" value=${view} options=${VIEWS} hrefOf=${(key) => href(key === "explain" ? ["access"] : ["access", key])} />
    <${View} />`;
}

const ACTIONS = [["publish", "publish to"], ["subscribe", "subscribe to"], ["receive", "receive from"]];

function Explain() {
  const { user = "", client = "", action = "publish", topic = "" } = route.value.query;
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const question = Object.fromEntries(new FormData(event.target));
    setQuery(question);
    setError(null);
    try {
      setAnswer(await send("POST", "/access/explain", { ...question, user: question.user || null, client: question.client || null }));
    } catch (problem) {
      setAnswer(null);
      setError(problem);
    }
  };
  return html`<${Panel} title="May this client do that?">
    <form class="form" onSubmit=${submit}>
      <${Field} label="User" name="user" value=${user} hint="Empty: without a user name" data-search />
      <${Field} label="Client id" name="client" value=${client} />
      <${Field} label="Action">${(own) => html`<select ...${own} name="action">
        ${ACTIONS.map(([key, text]) => html`<option value=${key} selected=${key === action}>${text}</option>`)}</select>`}<//>
      <${Field} label="Topic or filter" name="topic" value=${topic} required />
      <button type="submit" class="primary">Explain</button>
    </form>
    <div aria-live="polite">
      ${error && html`<${Failure} error=${error} />`}
      ${answer && html`<${Verdict} answer=${answer} />`}
    </div>
  <//>`;
}

function Verdict({ answer }) {
  const isAllowed = answer.allowed ?? answer.verdict === "allowed";
  const steps = answer.steps ?? answer.rules ?? [];
  return html`<div class="stack explain">
    <p><${State} tone=${isAllowed ? "ok" : "bad"}><b>${isAllowed ? "Allowed" : "Denied"}</b><//>
      ${answer.because && html` <span>${answer.because}</span>`}</p>
    ${steps.length > 0 && html`<ol>${steps.map((step) => html`<li>${typeof step === "string" ? step : html`
      ${step.words ?? step.rule} <span class="quiet">${step.origin ?? step.from ?? ""}</span>`}</li>`)}</ol>`}
    ${answer.words && html`<pre>${answer.words}</pre>`}
  </div>`;
}

function Denied() {
  const { cursor } = route.value.query;
  const answer = usePage("/access/denied", { query: { cursor }, every: 3000 });
  const columns = [
    { head: "Time", cell: (row) => html`<time datetime=${row.at}>${format.time(row.at)}</time>` },
    { head: "Client", cell: (row) => row.client ?? "–" },
    { head: "User", isWide: true, cell: (row) => row.user ?? "–" },
    { head: "Action", cell: (row) => row.action ?? "–" },
    { head: "Topic", isMain: true, cell: (row) => html`<span class="mono">${row.topic ?? "–"}</span>` },
    { head: "Reason", isWide: true, cell: (row) => row.reason ?? "–" },
    { head: "Explain", cell: (row) => row.topic && html`<a href=${href(["access"],
      { user: row.user, client: row.client, action: row.action, topic: row.topic })}>Why?</a>` },
  ];
  return html`<${Panel} title="Denied attempts, newest first" answer=${answer}>
    ${answer.items.length > 0
      ? html`<${Table} label="Denied attempts" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id ?? `${row.at}${row.client}${row.topic}`} />`
      : html`<${Empty} title="Nothing was denied" />`}
    <${Pager} count=${answer.items.length} isFirst=${!cursor} next=${answer.next}
      onFirst=${() => setQuery({ cursor: "" }, { step: true })} onNext=${() => setQuery({ cursor: answer.next }, { step: true })} />
  <//>`;
}

function Users() {
  const answer = usePage("/users");
  const list = (value) => (value ?? []).join(", ") || "–";
  const edit = (user) => ask({
    title: user ? `Change ${user.name}` : "Add a user",
    button: user ? "Change" : "Add",
    fields: [
      ...(user ? [] : [{ label: "Name", name: "name", required: true }]),
      { label: "Password", name: "password", type: "password", autocomplete: "new-password", required: !user,
        hint: user ? "Empty: it stays" : undefined },
      { label: "Roles", name: "roles", value: (user?.roles ?? []).join(", "), hint: "With commas between them" },
    ],
    run: ({ name = user?.name, password, roles }) => send("PUT", `/users${pathOf(name)}`,
      { ...(password ? { password } : {}), roles: roles.split(",").map((role) => role.trim()).filter(Boolean) })
      .then(() => done(answer, `${name} was ${user ? "changed" : "added"}.`)),
  });
  const columns = [
    { head: "Name", isMain: true, cell: (row) => row.name },
    { head: "Roles", cell: (row) => list(row.roles) },
    { head: "From", isWide: true, cell: (row) => row.origin ?? "–" },
    { head: "", cell: (row) => may("admin") && row.origin !== "file" && html`<span class="row-actions">
      <button type="button" onClick=${() => edit(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove("/users", row.name, answer)}>Remove</button></span>` },
  ];
  const add = may("admin") && html`<button type="button" onClick=${() => edit(null)}>Add a user</button>`;
  return html`<${Panel} title="Users" answer=${answer} actions=${add}>
    ${answer.items.length > 0
      ? html`<${Table} label="Users" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />`
      : html`<${Empty} title="No user">Clients connect as the listeners permit.<//>`}
  <//>`;
}

function Roles() {
  const answer = usePage("/roles");
  const edit = (role) => ask({
    title: role ? `Change ${role.name}` : "Add a role",
    button: role ? "Change" : "Add",
    fields: [
      ...(role ? [] : [{ label: "Name", name: "name", required: true }]),
      { label: "Rules", name: "rules", value: (role?.rules ?? []).map(ruleText).join("; "), required: true,
        hint: "Such as: allow publish plant/#; deny subscribe secret/#" },
    ],
    run: ({ name = role?.name, rules }) => send("PUT", `/roles${pathOf(name)}`,
      { rules: rules.split(";").map((rule) => rule.trim()).filter(Boolean) })
      .then(() => done(answer, `${name} was ${role ? "changed" : "added"}.`)),
  });
  const columns = [
    { head: "Name", cell: (row) => row.name },
    { head: "Rules", isMain: true, cell: (row) => html`<ul class="mono">${(row.rules ?? []).map((rule) => html`<li>${ruleText(rule)}</li>`)}</ul>` },
    { head: "", cell: (row) => may("admin") && row.origin !== "file" && html`<span class="row-actions">
      <button type="button" onClick=${() => edit(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove("/roles", row.name, answer)}>Remove</button></span>` },
  ];
  const add = may("admin") && html`<button type="button" onClick=${() => edit(null)}>Add a role</button>`;
  return html`<${Panel} title="Roles" answer=${answer} actions=${add}>
    ${answer.items.length > 0
      ? html`<${Table} label="Roles" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />`
      : html`<${Empty} title="No role" />`}
  <//>`;
}

function ruleText(rule) {
  if (typeof rule === "string") return rule;
  return [rule.verdict ?? (rule.allow ? "allow" : "deny"), rule.action, rule.topic ?? rule.filter].filter(Boolean).join(" ");
}

function Bans() {
  const answer = usePage("/bans");
  const what = (row) => ["client", "user", "address"].filter((kind) => row[kind]).map((kind) => `${kind} ${row[kind]}`).join(", ");
  const add = () => ask({
    title: "Ban",
    button: "Ban",
    isDanger: true,
    fields: [
      { label: "What", name: "kind", options: ["client", "user", "address"] },
      { label: "Name or address", name: "value", required: true },
      { label: "For minutes", name: "minutes", type: "number", min: 1, hint: "Empty: until it is removed" },
      { label: "Reason", name: "reason", maxlength: 200 },
    ],
    run: ({ kind, value, minutes, reason }) => send("POST", "/bans",
      { [kind]: value, ...(minutes ? { for_s: Number(minutes) * 60 } : {}), ...(reason ? { reason } : {}) })
      .then(() => done(answer, `${kind} ${value} is banned.`)),
  });
  const lift = (row) => ask({
    title: "Remove this ban",
    text: what(row),
    button: "Remove",
    run: () => send("DELETE", "/bans", undefined, { client: row.client, user: row.user, address: row.address })
      .then(() => done(answer, "The ban was removed.")),
  });
  const columns = [
    { head: "Banned", isMain: true, cell: what },
    { head: "Until", cell: (row) => (row.until ? format.time(row.until) : "removed") },
    { head: "Reason", isWide: true, cell: (row) => row.reason ?? (row.automatic ? "automatic" : "–") },
    { head: "", cell: (row) => may("admin") && html`<span class="row-actions"><button type="button" onClick=${() => lift(row)}>Remove</button></span>` },
  ];
  const button = may("admin") && html`<button type="button" onClick=${add}>Ban</button>`;
  return html`<${Panel} title="Bans" answer=${answer} actions=${button}>
    ${answer.items.length > 0
      ? html`<${Table} label="Bans" columns=${columns} rows=${answer.items} keyOf=${what} />`
      : html`<${Empty} title="Nothing is banned" />`}
  <//>`;
}

function remove(kind, name, answer) {
  ask({
    title: `Remove ${name}`,
    button: "Remove",
    isDanger: true,
    run: () => send("DELETE", `${kind}${pathOf(name)}`).then(() => done(answer, `${name} was removed.`)),
  });
}

function done(answer, text) {
  notify(text);
  answer.reload();
}
