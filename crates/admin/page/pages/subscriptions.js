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
    <${Tabs} label="Views" value=${view} options=${[
      ["all", "Subscriptions"],
      ["groups", "Shared groups"],
    ]} hrefOf=${hrefOf} />
    ${view === "groups" ? html`<${Groups} />` : html`<${List} />`}`;
}

function List() {
  const keyOf = (row) => `${row.client_id} ${row.filter}`;
  const { client = "", topic = "", cursor } = route.value.query;
  const answer = usePage("/subscriptions", { query: { client, topic, cursor } });
  const columns = [
    { head: "Filter", isMain: true, cell: (row) => html`<span class="mono">${row.filter}</span>` },
    { head: "Client", cell: (row) => html`<a href=${href(["sessions", row.client_id])}>${row.client_id}</a>` },
    { head: "QoS", isNumber: true, cell: (row) => row.qos },
    { head: "Options", isWide: true, cell: (row) => options(row) },
  ];
  return html`<div class="filters">
      <${Search} label="Topic: who gets it?" value=${topic} placeholder="plant/line1/temperature"
        onChange=${(topic) => setQuery({ topic, cursor: "" })} />
      <${Field} label="Client id" value=${client}
        onChange=${(event) => setQuery({ client: event.target.value, cursor: "" })} />
    </div>
    <${Panel} title="Subscriptions" of="subscriptions" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<${Table} label="Subscriptions" columns=${columns} rows=${answer.items} keyOf=${keyOf} />`
          : html`<${Empty} title=${client || topic ? "No subscription matches" : "No subscription"} />`
      }
      <${Pager} answer=${answer} />
    <//>`;
}

function Groups() {
  const keyOf = (row) => `${row.group} ${row.filter}`;
  const { cursor } = route.value.query;
  const answer = usePage("/groups", { query: { cursor } });
  const columns = [
    { head: "Group", cell: (row) => row.group },
    { head: "Filter", isMain: true, cell: (row) => html`<span class="mono">${row.filter}</span>` },
    {
      head: "Members",
      cell: (row) => html`<ul>${row.member_list.map(
        (member) => html`<li><a
      href=${href(["sessions", member.client_id])}>${member.client_id}</a>
              <span class="quiet"> ${member.state}</span></li>`,
      )}
      ${
        row.members > row.member_list.length &&
        html`<li class="quiet">
          and ${row.members - row.member_list.length} more</li>`
      }</ul>`,
    },
  ];
  return html`<${Panel} title="Shared groups" answer=${answer}>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Shared groups" columns=${columns} rows=${answer.items} keyOf=${keyOf} />`
        : html`<${Empty} title="No shared group">A subscription to <code>$share/GROUP/FILTER</code> makes one.<//>`
    }
    <${Pager} answer=${answer} />
  <//>`;
}
