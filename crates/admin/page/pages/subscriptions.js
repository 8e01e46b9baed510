// Subscriptions, by client or by what they match, and shared groups with their members.
import { html } from "../lib/view.js";
import { usePage } from "../lib/data.js";
import { Empty, Field, Pager, Panel, Search, Table, Tabs, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import { options } from "./sessions.js";

export default function Subscriptions() {
  const [, view = "all"] = route.value.path;
  const hrefOf = (key) => href(key === "all" ? ["subscriptions"] : ["subscriptions", key]);
  return html`<${Title} lead="Which client gets which topics.">Subscriptions<//>
    <${Tabs} label="Views" value=${view} options=${[["all", "Subscriptions"], ["groups", "Shared groups"]]} hrefOf=${hrefOf} />
    ${view === "groups" ? html`<${Groups} />` : html`<${List} />`}`;
}

function List() {
  const { client = "", filter = "", cursor } = route.value.query;
  const answer = usePage("/subscriptions", { query: { client, filter, cursor } });
  const columns = [
    { head: "Filter", isMain: true, cell: (row) => html`<span class="mono">${row.filter}</span>` },
    { head: "Client", cell: (row) => html`<a href=${href(["sessions", row.client])}>${row.client}</a>` },
    { head: "QoS", isNumber: true, cell: (row) => row.qos },
    { head: "Options", isWide: true, cell: (row) => options(row) },
  ];
  return html`<div class="filters">
      <${Search} label="Topic or filter: who gets it?" value=${filter} placeholder="plant/line1/temperature"
        onChange=${(filter) => setQuery({ filter, cursor: "" })} />
      <${Field} label="Client id" value=${client} onChange=${(event) => setQuery({ client: event.target.value, cursor: "" })} />
    </div>
    <${Panel} title="Subscriptions" of="subscriptions" answer=${answer}>
      ${answer.items.length > 0
        ? html`<${Table} label="Subscriptions" columns=${columns} rows=${answer.items} keyOf=${(row) => `${row.client} ${row.filter}`} />`
        : html`<${Empty} title=${client || filter ? "No subscription matches" : "No subscription"} />`}
      <${Pager} count=${answer.items.length} isFirst=${!cursor} next=${answer.next}
        onFirst=${() => setQuery({ cursor: "" }, { step: true })}
        onNext=${() => setQuery({ cursor: answer.next }, { step: true })} />
    <//>`;
}

function Groups() {
  const { cursor } = route.value.query;
  const answer = usePage("/groups", { query: { cursor } });
  const member = (row) => (typeof row === "string" ? row : row.client);
  const columns = [
    { head: "Group", cell: (row) => row.group ?? row.name },
    { head: "Filter", isMain: true, cell: (row) => html`<span class="mono">${row.filter}</span>` },
    { head: "Members", cell: (row) => html`${(row.members ?? []).map((one, index) => html`${index > 0 && ", "}<a
      href=${href(["sessions", member(one)])}>${member(one)}</a>`)}` },
  ];
  return html`<${Panel} title="Shared groups" answer=${answer}>
    ${answer.items.length > 0
      ? html`<${Table} label="Shared groups" columns=${columns} rows=${answer.items} keyOf=${(row) => `${row.group ?? row.name} ${row.filter}`} />`
      : html`<${Empty} title="No shared group">A subscription to <code>$share/GROUP/FILTER</code> makes one.<//>`}
    <${Pager} count=${answer.items.length} isFirst=${!cursor} next=${answer.next}
      onFirst=${() => setQuery({ cursor: "" }, { step: true })}
      onNext=${() => setQuery({ cursor: answer.next }, { step: true })} />
  <//>`;
}
