// Sessions: what the broker keeps for client ids, also while they are away.
import { html } from "../lib/view.js";
import { may, pathOf, send } from "../lib/api.js";
import { useAnswer, usePage } from "../lib/data.js";
import { ask, notify } from "../lib/dialog.js";
import { Choice, Empty, Facts, Pager, Panel, Search, State, Table, Title, Waiting } from "../lib/parts.js";
import { TERMS } from "../lib/terms.js";
import { go, href, route, setQuery } from "../lib/route.js";
import { expiry } from "./clients.js";
import * as format from "../lib/format.js";

export default function Sessions() {
  const [, id] = route.value.path;
  return id === undefined ? html`<${List} />` : html`<${One} key=${id} id=${id} />`;
}

const CONNECTED = [
  ["", "All"],
  ["true", "Connected"],
  ["false", "Away"],
];

/** Messages from before the start of the broker may wait on disk, not counted yet. */
function queued(row) {
  return `${format.count(row.queued)}${row.is_counted ? "" : " or more"}`;
}

function Presence({ row }) {
  return row.is_connected ? html`<${State} tone="ok">connected<//>` : html`<${State} tone="idle">away<//>`;
}

function List() {
  const { search = "", connected = "", cursor } = route.value.query;
  const answer = usePage("/sessions", { query: { search, connected, cursor }, every: cursor ? 0 : 5000 });
  const columns = [
    {
      head: "Client id",
      isMain: true,
      cell: (row) => html`<a href=${href(["sessions", row.client_id])}>${row.client_id}</a>`,
    },
    { head: "Now", cell: (row) => html`<${Presence} row=${row} />` },
    {
      head: "Subscriptions",
      of: "subscriptions",
      isNumber: true,
      isWide: true,
      cell: (row) => format.count(row.subscriptions),
    },
    { head: "Queued", of: "queued", isNumber: true, cell: queued },
    { head: "In flight", of: "in flight", isNumber: true, isWide: true, cell: (row) => format.count(row.in_flight) },
    { head: "Expires", of: "expires", cell: (row) => html`<span class="nowrap">${expiry(row.expiry_s)}</span>` },
  ];
  return html`<${Title} lead=${TERMS.session}>Sessions<//>
    <div class="filters">
      <${Search} label="Client id" value=${search} onChange=${(search) => setQuery({ search, cursor: "" })} />
      <${Choice} label="Now" value=${connected} options=${CONNECTED}
        onChange=${(connected) => setQuery({ connected, cursor: "" })} />
    </div>
    <${Panel} title="Sessions" of="session" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<${Table} label="Sessions" columns=${columns} rows=${answer.items} keyOf=${(row) => row.client_id} />`
          : html`<${Empty} title=${search || connected ? "No session matches" : "No session"} />`
      }
      <${Pager} answer=${answer} />
    <//>`;
}

function One({ id }) {
  const path = `/sessions${pathOf(id)}`;
  const answer = useAnswer(path, { every: 2000 });
  const session = answer.data;
  if (!session) {
    return html`<${Title}>${id}<//><${Waiting} answer=${answer} />`;
  }
  const remove = () =>
    ask({
      title: "Remove this session",
      text: `Its subscriptions end, and ${format.plural(session.queued, "queued message")} count as dropped.`,
      button: "Remove",
      isDanger: true,
      run: () =>
        send("DELETE", path).then(() => {
          notify(`The session of ${id} was removed.`);
          go(["sessions"]);
        }),
    });
  const filters = session.subscription_list;
  const columns = [
    { head: "Filter", isMain: true, cell: (row) => html`<span class="mono">${row.filter}</span>` },
    { head: "QoS", isNumber: true, cell: (row) => row.qos },
    { head: "Options", isWide: true, cell: (row) => options(row) },
  ];
  const button = may("operator") && html`<button type="button" class="danger" onClick=${remove}>Remove</button>`;
  return html`<${Title} actions=${button} lead="Session">${id}<//>
    <div class="grid">
      <${Panel} title="State" answer=${answer}><${Facts} items=${[
        ["Now", html`<${Presence} row=${session} />`],
        ["Client", session.is_connected ? html`<a href=${href(["clients", id])}>Its connection</a>` : null],
        ["Queued", queued(session), "queued"],
        ["Queued bytes", format.bytes(session.queued_bytes)],
        ["In flight", format.count(session.in_flight), "in flight"],
        ["Expires", expiry(session.expiry_s), "expires"],
        ["Away since", session.away_since && format.time(session.away_since)],
        ["User", session.user],
        ["Will", session.will_topic],
        ["Mount point", session.mount],
      ]} /><//>
      <${Panel} title="Subscriptions" of="subscriptions" answer=${answer}>
        ${
          filters.length > 0
            ? html`<${Table} label="Subscriptions" columns=${columns} rows=${filters} keyOf=${(row) => row.filter} />`
            : html`<${Empty} title="No subscription" />`
        }
        ${
          session.subscriptions > filters.length &&
          html`<p class="quiet small"><a href=${href(["subscriptions"], { client: id })}>All
          ${format.count(session.subscriptions)}</a></p>`
        }
      <//>
    </div>`;
}

export function options(row) {
  const words = [
    row.no_local && "no local",
    row.retain_as_published && "retain as published",
    row.identifier !== null && `identifier ${row.identifier}`,
  ];
  return words.filter(Boolean).join(", ") || "–";
}
