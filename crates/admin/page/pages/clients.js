// Clients: a list in pages, which may be long, and one client.
import { html } from "../lib/view.js";
import { may, pathOf, send } from "../lib/api.js";
import { useAnswer, usePage } from "../lib/data.js";
import { ask, notify } from "../lib/dialog.js";
import { Empty, Facts, Field, Pager, Panel, Search, State, Table, Title, Waiting } from "../lib/parts.js";
import { go, href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

export default function Clients() {
  const [, id] = route.value.path;
  return id === undefined ? html`<${List} />` : html`<${One} key=${id} id=${id} />`;
}

function List() {
  const { search = "", user = "", listener = "", cursor } = route.value.query;
  const answer = usePage("/clients", { query: { search, user, listener, cursor }, every: cursor ? 0 : 5000 });
  const filter = (name) => (event) => setQuery({ [name]: event.target.value, cursor: "" });
  const columns = [
    {
      head: "Client",
      isMain: true,
      cell: (row) => html`<a href=${href(["clients", row.client_id])}>${row.client_id}</a>`,
    },
    { head: "User", cell: (row) => row.user ?? "–" },
    { head: "Address", isWide: true, cell: (row) => row.address ?? "–" },
    { head: "Listener", isWide: true, cell: (row) => row.listener_name ?? row.listener },
    { head: "MQTT", isWide: true, cell: (row) => row.protocol },
    { head: "Connected", cell: (row) => html`<span class="nowrap">${format.age(row.connected_since)}</span>` },
    { head: "Queued", of: "queued", isNumber: true, cell: (row) => format.count(row.queued) },
    { head: "In flight", of: "in flight", isNumber: true, isWide: true, cell: (row) => format.count(row.in_flight) },
  ];
  return html`<${Title} lead="Clients that are connected now.">Clients<//>
    <div class="filters">
      <${Search} label="Client id" value=${search} onChange=${(search) => setQuery({ search, cursor: "" })} />
      <${Field} label="User" value=${user} onChange=${filter("user")} />
      <${Field} label="Listener" value=${listener} onChange=${filter("listener")} />
    </div>
    <${Panel} title="Connected" of="clients" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<${Table} label="Clients" columns=${columns} rows=${answer.items} keyOf=${(row) => row.client_id} />`
          : html`<${Empty} title=${search || user || listener ? "No client matches" : "No client is connected"} />`
      }
      <${Pager} answer=${answer} />
    <//>`;
}

function One({ id }) {
  const answer = useAnswer(`/clients${pathOf(id)}`, { every: 2000 });
  const client = answer.data;
  if (!client) {
    return html`<${Title}>${id}<//><${Waiting} answer=${answer} />
      <p><a href=${href(["sessions", id])}>Look for its session</a></p>`;
  }
  return html`<${Title} actions=${html`<${Actions} client=${client} />`} lead="Client">${client.client_id}<//>
    <div class="grid">
      <${Panel} title="Connection" answer=${answer}><${Facts} items=${[
        ["User", client.user],
        ["Address", client.address],
        ["Listener", client.listener_name ?? client.listener],
        ["MQTT", client.is_bridge ? `${client.protocol}, a bridge` : client.protocol],
        ["Connected", `${format.age(client.connected_since)}, since ${format.time(client.connected_since)}`],
        ["Keep alive", client.keep_alive_s === null ? "off" : format.span(client.keep_alive_s)],
        ["Session expires", expiry(client.session_expiry_s), "expires"],
        ["Will", client.will_topic],
        ["Mount point", client.mount],
      ]} /><//>
      <${Panel} title="Messages" answer=${answer}><${Facts} items=${[
        ["Queued", format.count(client.queued), "queued"],
        ["In flight", format.count(client.in_flight), "in flight"],
        [
          "Subscriptions",
          html`<a href=${href(["subscriptions"], { client: client.client_id })}>
            ${format.count(client.subscriptions)}</a>`,
          "subscriptions",
        ],
        ["Queued bytes", format.bytes(client.queued_bytes)],
        ["For its socket", format.bytes(client.output_bytes)],
        ["Rate", client.is_over_rate ? html`<${State} tone="warn">over its rate<//>` : null],
        ["Session", html`<a href=${href(["sessions", client.client_id])}>Its session</a>`, "session"],
      ]} /><//>
    </div>`;
}

export function expiry(seconds) {
  if (seconds === null) return "never";
  return seconds === 0 ? "at disconnect" : format.span(seconds);
}

function Actions({ client }) {
  if (!may("operator")) return null;
  const ban = () => banClient(client.client_id);
  const disconnect = () =>
    ask({
      title: "Disconnect this client",
      text: `${client.client_id} may connect again at once.`,
      button: "Disconnect",
      isDanger: true,
      run: () =>
        send("POST", `/clients${pathOf(client.client_id)}/disconnect`, {}).then(() => {
          notify(`${client.client_id} was disconnected.`);
          go(["clients"]);
        }),
    });
  return html`<button type="button" onClick=${disconnect}>Disconnect</button>
    ${may("admin") && html`<button type="button" class="danger" onClick=${ban}>Ban</button>`}`;
}

/** Asks how long a client id is banned. */
function banClient(id) {
  ask({
    title: "Ban this client",
    text: `${id} is disconnected, and refused until the ban ends.`,
    button: "Ban",
    isDanger: true,
    fields: [
      { label: "For minutes", name: "minutes", type: "number", min: 1, value: 60, required: true },
      { label: "Reason", name: "reason", maxlength: 200 },
    ],
    run: ({ minutes, reason }) =>
      send("POST", "/bans", { client: id, for_s: Number(minutes) * 60, reason }).then(() => notify(`${id} is banned.`)),
  });
}
