// One incident: which message or range, between whom, where, why, and what can be done.
import { html } from "../lib/view.js";
import { get, may, pathOf, send } from "../lib/api.js";
import { useAnswer } from "../lib/data.js";
import { ask, attempt } from "../lib/dialog.js";
import { Icon } from "../lib/icons.js";
import { Copy, Facts, Failure, Panel, State, Table, Title } from "../lib/parts.js";
import { href, route } from "../lib/route.js";
import * as format from "../lib/format.js";

export const KINDS = {
  lost: "Lost",
  duplicated: "Duplicated",
  reordered: "Reordered",
  altered: "Altered",
  dropped: "Dropped",
  forged: "Forged",
  injected: "Injected",
  unproven: "Unproven",
};

export function toneOf({ kind, ignored, repaired_at: repaired }) {
  if (ignored) return "idle";
  if (repaired) return "ok";
  return kind === "dropped" || kind === "unproven" ? "warn" : "bad";
}

export default function Incident() {
  const [, id] = route.value.path;
  const path = id && `/incidents${pathOf(id)}`;
  const answer = useAnswer(path, { every: 5000 });
  const incident = answer.data;
  if (!incident) {
    return html`<${Title}>Incident<//>${answer.error
      ? html`<${Failure} error=${answer.error} />` : html`<p class="quiet" role="status">Loading …</p>`}`;
  }
  return html`<${Title} lead=${incident.words} actions=${html`<${Actions} incident=${incident} path=${path} reload=${answer.reload} />`}>
      ${KINDS[incident.kind] ?? incident.kind}: ${range(incident)}
    <//>
    <div class="grid">
      <${Summary} incident=${incident} answer=${answer} />
      <${Way} incident=${incident} />
      <${Neighbours} incident=${incident} />
    </div>`;
}

function range({ first, last_number: last, count }) {
  if (first === undefined || first === null) return format.plural(count, "message");
  return count > 1 ? `numbers ${format.count(first)} to ${format.count(last ?? first + count - 1)}` : `number ${format.count(first)}`;
}

function Actions({ incident, path, reload }) {
  const proof = async () => JSON.stringify(await get(`${path}/proof`), null, 2);
  const repair = () => attempt(() => send("POST", `${path}/repair`, {}), "The publisher was asked to send it again.").then(reload);
  const ignore = () => ask({
    title: "Ignore this incident",
    text: "It stays in the list, and no longer makes Delivery red. The note says why, with your name.",
    button: "Ignore",
    fields: [{ label: "Note", name: "text", required: true, maxlength: 1000 }],
    run: ({ text }) => send("POST", `${path}/note`, { text, ignore: true }).then(reload),
  });
  return html`<${Copy} text=${proof} label="Copy the proof" />
    ${may("operator") && html`
      <button type="button" onClick=${repair}>Ask for repair</button>
      ${!incident.ignored && html`<button type="button" onClick=${ignore}>Ignore with a note</button>`}`}`;
}

function Summary({ incident, answer }) {
  const client = (id) => id && html`<a href=${href(["clients", id])}>${id}</a>`;
  return html`<${Panel} title="What happened" answer=${answer}>
    <${Facts} items=${[
      ["State", html`<${State} tone=${toneOf(incident)}>${stateOf(incident)}<//>`],
      ["Messages", format.count(incident.count)],
      ["Publisher", client(incident.publisher)],
      ["Subscriber", client(incident.subscriber)],
      ["Topic", incident.topic && html`<a class="mono" href=${href(["topics"], { topic: incident.topic })}>${incident.topic}</a>`],
      ["QoS", incident.qos],
      ["Lane", incident.lane && html`<span class="mono">${incident.lane}</span>`, "lane"],
      ["Epoch", incident.epoch, "epoch"],
      ["Where", incident.place],
      ["Reason", incident.reason],
      ["First seen", format.precise(incident.first_seen ?? incident.first_at)],
      ["Last seen", format.precise(incident.last)],
    ]} />
    ${(incident.notes ?? []).map((note) => html`<p class="note">“${note.text}” <span class="quiet">
      ${note.by}, ${format.time(note.at)}</span></p>`)}
  <//>`;
}

function stateOf({ ignored, repaired_at: repaired, repair_asked_at: asked }) {
  if (ignored) return "ignored";
  if (repaired) return `repaired at ${format.time(repaired)}`;
  return asked ? `repair asked for at ${format.time(asked)}` : "open";
}

/** The way of the message, with times of its packets, and the hop where it ended. */
function Way({ incident }) {
  const hops = incident.hops ?? [];
  if (hops.length === 0) return null;
  return html`<${Panel} title="Its way" kind="half">
    <ol class="hops">${hops.map((hop) => html`<li>
      <span class="tone-${hop.reached === false ? "bad" : hop.reached ? "ok" : "idle"}">
        <${Icon} name=${hop.reached === false ? "bad" : hop.reached ? "ok" : "idle"} /></span>
      <span class="quiet">${hop.at ? format.precise(hop.at) : hop.reached === false ? "not reached" : "not known"}</span>
      <span>${hop.name}${hop.detail && html`<span class="quiet"> · ${hop.detail}</span>`}</span>
    </li>`)}</ol>
  <//>`;
}

function Neighbours({ incident }) {
  const rows = incident.neighbours ?? [];
  if (rows.length === 0) return null;
  const columns = [
    { head: "Number", isNumber: true, cell: (row) => format.count(row.number) },
    { head: "Outcome", isMain: true, cell: (row) => html`<${State} tone=${row.tone ?? outcomeTone(row.outcome)}>${row.outcome}<//>` },
    { head: "Time", cell: (row) => format.precise(row.at) },
  ];
  return html`<${Panel} title="Neighbours in the lane" of="lane" kind="half">
    <${Table} label="Neighbours" columns=${columns} rows=${rows} keyOf=${(row) => row.number}
      selected=${incident.first} />
  <//>`;
}

function outcomeTone(outcome) {
  if (/acknowledged|delivered|processed|handed/.test(outcome)) return "ok";
  return /lost|altered|dup|reorder/.test(outcome) ? "bad" : "idle";
}
