// Access: may this client do that, what was denied, and users and roles.
import { html, useState } from "../lib/view.js";
import { may, pathOf, send } from "../lib/api.js";
import { usePage } from "../lib/data.js";
import { ask, notify } from "../lib/dialog.js";
import { Empty, Facts, Failure, Field, Pager, Panel, State, Table, Tabs, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

const VIEWS = [
  ["explain", "Explain"],
  ["denied", "Denied"],
  ["users", "Users"],
  ["roles", "Roles"],
  ["bans", "Bans"],
];
const PAGES = { explain: Explain, denied: Denied, users: Users, roles: Roles, bans: Bans };

export default function Access() {
  const [, view = "explain"] = route.value.path;
  const View = PAGES[view] ?? Explain;
  const hrefOf = (key) => href(key === "explain" ? ["access"] : ["access", key]);
  return html`<${Title} lead="Which MQTT clients may do what.">Access<//>
    <${Tabs} label="Views" value=${view} options=${VIEWS} hrefOf=${hrefOf} />
    <${View} />`;
}

const ACTIONS = [
  ["connect", "connect"],
  ["publish", "publish to"],
  ["subscribe", "subscribe to"],
  ["receive", "receive from"],
];

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
      setAnswer(await send("POST", "/access/explain", { ...question, user: question.user || null }));
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
        ${ACTIONS.map(([key, text]) => html`<option value=${key} selected=${key === action}>${text}</option>`)}
      </select>`}<//>
      <${Field} label="Topic or filter" name="topic" value=${topic} hint="Whole, with its mount point" />
      <button type="submit" class="primary">Explain</button>
    </form>
    <div aria-live="polite">
      ${error && html`<${Failure} error=${error} />`}
      ${answer && html`<${Verdict} answer=${answer} />`}
    </div>
  <//>`;
}

function Verdict({ answer }) {
  const { allowed: isAllowed, reason, rule, role, mount } = answer;
  return html`<div class="stack explain">
    <p>
      <${State} tone=${isAllowed ? "ok" : "bad"}><b>${isAllowed ? "Allowed" : "Denied"}</b><//> <span>${reason}</span>
    </p>
    <${Facts} items=${[
      ["Rule", rule && html`<span class="mono">${rule}</span>`],
      ["Role", role],
      ["Highest QoS", isAllowed ? answer.max_qos : null],
      ["May be retained", isAllowed ? (answer.retain ? "yes" : "no") : null],
      ["Mount point", mount],
    ]} />
  </div>`;
}

const DENIED = { connect: "connect", subscribe: "subscribe", message: "message", connection: "ended" };

function Denied() {
  const keyOf = (row) => `${row.at} ${row.client_id} ${row.topic}`;
  const { cursor } = route.value.query;
  const answer = usePage("/access/denied", { query: { cursor }, every: 3000 });
  const columns = [
    { head: "Time", cell: (row) => html`<time datetime=${row.at}>${format.time(row.at)}</time>` },
    { head: "What", cell: (row) => DENIED[row.what] ?? row.what },
    { head: "Client", cell: (row) => row.client_id ?? "–" },
    { head: "User", isWide: true, cell: (row) => row.user ?? "–" },
    { head: "Address", isWide: true, cell: (row) => row.address ?? "–" },
    { head: "Topic", isMain: true, cell: (row) => html`<span class="mono">${row.topic ?? "–"}</span>` },
    { head: "Reason", cell: (row) => row.reason },
    { head: "Times", isNumber: true, cell: (row) => format.count(row.count) },
  ];
  return html`<${Panel} title="Denied attempts, newest first" answer=${answer}>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Denied attempts" columns=${columns} rows=${answer.items} keyOf=${keyOf} />`
        : html`<${Empty} title="Nothing was denied" />`
    }
    <${Pager} answer=${answer} />
  <//>`;
}

function Users() {
  const answer = usePage("/users");
  const list = (value) => (value ?? []).join(", ") || "–";
  const edit = (user) =>
    ask({
      title: user ? `Change ${user.name}` : "Add a user",
      button: user ? "Change" : "Add",
      fields: [
        ...(user ? [] : [{ label: "Name", name: "name", required: true }]),
        {
          label: "Password",
          name: "password",
          type: "password",
          autocomplete: "new-password",
          required: !user,
          hint: user ? "Empty: it stays" : undefined,
        },
        { label: "Roles", name: "roles", value: (user?.roles ?? []).join(", "), hint: "With commas between them" },
      ],
      run: ({ name = user?.name, password, roles }) =>
        send("PUT", `/users${pathOf(name)}`, {
          ...(password ? { password } : {}),
          roles: roles
            .split(",")
            .map((role) => role.trim())
            .filter(Boolean),
        }).then(() => done(answer, `${name} was ${user ? "changed" : "added"}.`)),
    });
  const columns = [
    { head: "Name", isMain: true, cell: (row) => row.name },
    { head: "Roles", cell: (row) => list(row.roles) },
    {
      head: "",
      cell: (row) =>
        may("admin") &&
        html`<span class="row-actions">
      <button type="button" onClick=${() => edit(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove("/users", row.name, answer)}>Remove</button></span>`,
    },
  ];
  const add = may("admin") && html`<button type="button" onClick=${() => edit(null)}>Add a user</button>`;
  return html`<${Panel} title="Users of the store" answer=${answer} actions=${add}>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Users" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />`
        : html`<${Empty} title="No user">Clients connect as the listeners permit.<//>`
    }
  <//>`;
}

function Roles() {
  const answer = usePage("/roles");
  const edit = (role) =>
    ask({
      title: role ? `Change ${role.name}` : "Add a role",
      button: role ? "Change" : "Add",
      fields: [
        ...(role ? [] : [{ label: "Name", name: "name", required: true }]),
        {
          label: "Rules",
          name: "rules",
          value: (role?.rules ?? []).map(ruleText).join("; "),
          required: true,
          hint: "Such as: allow publish,subscribe plant/#; deny receive secret/#",
        },
      ],
      run: ({ name = role?.name, rules }) =>
        send("PUT", `/roles${pathOf(name)}`, { rules: readRules(rules) }).then(() =>
          done(answer, `${name} was ${role ? "changed" : "added"}.`),
        ),
    });
  const holders = (row) =>
    [
      row.everyone && "everyone",
      row.anonymous && "clients without a user",
      ...row.users.slice(0, 5),
      row.user_count > 5 && `${row.user_count - 5} more`,
    ]
      .filter(Boolean)
      .join(", ") || "–";
  const columns = [
    { head: "Name", cell: (row) => row.name },
    {
      head: "Rules",
      isMain: true,
      cell: (row) => html`<ul class="mono">${row.rules.map((rule) => html`<li>${ruleText(rule)}</li>`)}</ul>`,
    },
    { head: "Held by", cell: holders },
    {
      head: "",
      cell: (row) =>
        may("admin") &&
        html`<span class="row-actions">
      <button type="button" onClick=${() => edit(row)}>Change</button>
      <button type="button" class="danger" onClick=${() => remove("/roles", row.name, answer)}>Remove</button></span>`,
    },
  ];
  const add = may("admin") && html`<button type="button" onClick=${() => edit(null)}>Add a role</button>`;
  return html`<${Panel} title="Roles of the store" answer=${answer} actions=${add}>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Roles" columns=${columns} rows=${answer.items} keyOf=${(row) => row.name} />`
        : html`<${Empty} title="No role" />`
    }
  <//>`;
}

function ruleText({ effect, rule }) {
  return `${effect} ${rule}`;
}

function readRules(text) {
  const lines = text
    .split(";")
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.map((line) => {
    const [effect, ...rest] = line.split(" ");
    return { effect, rule: rest.join(" ") };
  });
}

function Bans() {
  const answer = usePage("/bans");
  const what = (row) => `${row.kind} ${row.target}`;
  const add = () =>
    ask({
      title: "Ban",
      button: "Ban",
      isDanger: true,
      fields: [
        { label: "What", name: "kind", options: ["client", "user", "address"] },
        { label: "Name or address", name: "value", required: true },
        { label: "For minutes", name: "minutes", type: "number", min: 1, hint: "Empty: until it is removed" },
        { label: "Reason", name: "reason", maxlength: 200 },
      ],
      run: ({ kind, value, minutes, reason }) =>
        send("POST", "/bans", {
          [kind]: value,
          ...(minutes ? { for_s: Number(minutes) * 60 } : {}),
          ...(reason ? { reason } : {}),
        }).then(() => done(answer, `${kind} ${value} is banned.`)),
    });
  const lift = (row) =>
    ask({
      title: "Remove this ban",
      text: what(row),
      button: "Remove",
      run: () =>
        send("DELETE", "/bans", undefined, { [row.kind]: row.target }).then(() => done(answer, "The ban was removed.")),
    });
  const columns = [
    { head: "Banned", isMain: true, cell: what },
    { head: "Until", cell: (row) => (row.until ? format.time(row.until) : "it is removed") },
    {
      head: "Reason",
      isWide: true,
      cell: (row) => (row.is_automatic ? `${row.reason} (automatic)` : row.reason || "–"),
    },
    {
      head: "",
      cell: (row) =>
        may("admin") &&
        html`<span class="row-actions"><button type="button" onClick=${() => lift(row)}>Remove</button></span>`,
    },
  ];
  const button = may("admin") && html`<button type="button" onClick=${add}>Ban</button>`;
  return html`<${Panel} title="Bans" answer=${answer} actions=${button}>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Bans" columns=${columns} rows=${answer.items} keyOf=${what} />`
        : html`<${Empty} title="Nothing is banned" />`
    }
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
