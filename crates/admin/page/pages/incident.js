// One incident: which message or range, between whom, where, why, and what can be done.
import { html } from "../lib/view.js";
import { get, may, pathOf, send } from "../lib/api.js";
import { useAnswer } from "../lib/data.js";
import { ask, attempt } from "../lib/dialog.js";
import { Icon } from "../lib/icons.js";
import { Copy, Facts, Panel, State, Table, Title, Waiting } from "../lib/parts.js";
import { href, route } from "../lib/route.js";
import * as format from "../lib/format.js";

/** Kinds whose words are not their names with a capital letter. */
const WORDS = {
  "root-differs": "Root differs",
  "not-judged": "Not judged",
  "end-contradicted": "End contradicted",
  "two-producers": "Two producers",
  crash: "Crash before the start",
};
export const KINDS = [
  "dropped",
  "lost",
  "duplicated",
  "repeated",
  "reordered",
  "altered",
  "injected",
  "forged",
  "root-differs",
  "contradicted",
  "end-contradicted",
  "two-producers",
  "intruded",
  "unbalanced",
  "not-judged",
  "crash",
];

export function kindWord(kind) {
  return WORDS[kind] ?? kind.charAt(0).toUpperCase() + kind.slice(1);
}

function toneOf({ severity, state }) {
  if (state === "ignored") return "idle";
  if (state === "repaired") return "ok";
  return severity === "red" ? "bad" : "warn";
}

export function IncidentTable({ rows }) {
  const columns = [
    { head: "Last seen", cell: (row) => html`<time datetime=${row.last_at}>${format.time(row.last_at)}</time>` },
    {
      head: "What",
      cell: (row) => html`<a href=${href(["incident", String(row.id)])}><${State} tone=${toneOf(row)}>
      ${kindWord(row.kind)}${row.state === "open" ? "" : `, ${row.state}`}<//></a>`,
    },
    { head: "Messages", isNumber: true, isWide: true, cell: (row) => format.count(row.count) },
    { head: "Topic", isMain: true, cell: (row) => html`<span class="mono">${row.topic ?? "–"}</span>` },
    { head: "Publisher", isWide: true, cell: (row) => row.publisher ?? "–" },
    { head: "Subscriber", isWide: true, cell: (row) => row.subscriber ?? "–" },
    { head: "Reason", isWide: true, cell: (row) => html`<span class="nowrap">${row.reason}</span>` },
  ];
  return html`<${Table} label="Incidents" columns=${columns} rows=${rows} keyOf=${(row) => row.id} />`;
}

export default function Incident() {
  const [, id] = route.value.path;
  const path = id && `/incidents${pathOf(id)}`;
  const answer = useAnswer(path, { every: 5000 });
  if (!answer.data) {
    return html`<${Title}>Incident<//><${Waiting} answer=${answer} />`;
  }
  const { incident } = answer.data;
  const actions = html`<${Actions} detail=${answer.data} path=${path} reload=${answer.reload} />`;
  return html`<p class="back"><a href="#/incidents">Incidents</a></p>
    <${Title} lead=${incident.words} actions=${actions}>${kindWord(incident.kind)}${range(incident)}<//>
    <div class="grid">
      <${Summary} incident=${incident} why=${answer.data.not_repairable_because} answer=${answer} />
      <${Way} incident=${incident} />
      <${Neighbours} detail=${answer.data} />
    </div>`;
}

function range({ first, last, count }) {
  if (first === null) return count > 0 ? `: ${format.plural(count, "message")}` : "";
  return first === last
    ? `: number ${format.count(first)}`
    : `: numbers ${format.count(first)} to ${format.count(last)}`;
}

function Actions({ detail, path, reload }) {
  const { incident, is_repairable: isRepairable } = detail;
  const proof = async () => JSON.stringify(await get(`${path}/proof`), null, 2);
  const repair = () =>
    attempt(() => send("POST", `${path}/repair`, {}), "The publisher was asked to send it again.").then(reload);
  const note = (ignore) =>
    ask({
      title: ignore ? "Ignore this incident" : "Open this incident again",
      text: ignore
        ? "It stays in the list, and no longer counts for Delivery. The note says why, with your name."
        : undefined,
      button: ignore ? "Ignore" : "Open again",
      fields: [{ label: "Note", name: "text", required: ignore, maxlength: 1000 }],
      run: ({ text }) => send("POST", `${path}/note`, { text, ignore }).then(reload),
    });
  const isIgnored = incident.state === "ignored";
  return html`<${Copy} text=${proof} label="Copy the proof" />
    ${
      may("operator") &&
      html`
      <button type="button" onClick=${repair} disabled=${!isRepairable} aria-describedby="why-not">
        Ask for repair</button>
      <button type="button" onClick=${() => note(!isIgnored)}>
        ${isIgnored ? "Open again" : "Ignore with a note"}</button>`
    }`;
}

const HOPS = {
  publisher_to_broker: "between publisher and broker",
  in_broker: "inside the broker",
  broker_to_subscriber: "between broker and subscriber",
};

function Summary({ incident, why, answer }) {
  const client = (id) => id && html`<a href=${href(["clients", id])}>${id}</a>`;
  return html`<${Panel} title="What happened" answer=${answer}>
    <${Facts} items=${[
      ["State", html`<${State} tone=${toneOf(incident)}>${incident.state}<//>`],
      ["Messages", format.count(incident.count)],
      ["Publisher", client(incident.publisher)],
      ["Subscriber", client(incident.subscriber)],
      [
        "Topic",
        incident.topic &&
          html`<a class="mono" href=${href(["topics"], { topic: incident.topic })}>${incident.topic}</a>`,
      ],
      ["QoS", incident.qos],
      ["Lane", incident.lane && html`<span class="mono">${incident.lane}</span>`, "lane"],
      ["Epoch", incident.epoch, "epoch"],
      ["Numbered by", incident.lane && (incident.is_stamped ? "the publisher" : "the broker")],
      ["Where", HOPS[incident.hop] ?? incident.hop],
      ["Reason", incident.reason_code === null ? incident.reason : `${incident.reason} (code ${incident.reason_code})`],
      ["Sent again", incident.sent_again > 0 ? format.count(incident.sent_again) : null],
    ]} />
    ${why && html`<p id="why-not" class="quiet small why-not">No repair: ${why}.</p>`}
    ${incident.note && html`<p class="note">“${incident.note}” <span class="quiet">${incident.note_by}</span></p>`}
  <//>`;
}

/** From the publisher to the subscriber: times of packets, and the hop at which it ended. */
function Way({ incident }) {
  const order = ["publisher_to_broker", "in_broker", "broker_to_subscriber"];
  const failed = order.indexOf(incident.hop);
  const hops = [
    ["From the publisher", incident.publisher, null],
    ["Received by the broker", null, incident.received_at],
    ["Inside the broker", null, null],
    ["To the subscriber", incident.subscriber, null],
  ];
  const tone = (index) => (index <= failed ? "ok" : index === failed + 1 ? toneOf(incident) : "idle");
  const word = (index, at) =>
    at ? format.precise(at) : index <= failed ? "passed" : index === failed + 1 ? "ended here" : "not reached";
  return html`<${Panel} title="Its way" kind="half">
    <ol class="hops">${hops.map(
      ([name, detail, at], index) => html`<li>
      <span class="tone-${tone(index)}"><${Icon} name=${tone(index)} /></span>
      <span class="quiet">${word(index, at)}</span>
      <span>${name}${detail && html`<span class="quiet"> · ${detail}</span>`}</span>
    </li>`,
    )}</ol>
    <${Facts} items=${[
      ["First named", format.precise(incident.first_at)],
      ["Last named", format.precise(incident.last_at)],
      ["Repaired", incident.repaired_at && format.precise(incident.repaired_at)],
    ]} />
  <//>`;
}

const OUTCOMES = {
  named: ["warn", "named by an incident"],
  arrived: ["ok", "arrived"],
  not_named: ["ok", "numbered, and no incident names it"],
  unknown: ["idle", "not known"],
};

function Neighbours({ detail: { incident, previous, next } }) {
  if (incident.first === null) return null;
  const own = {
    number: incident.first,
    tone: toneOf(incident),
    text: kindWord(incident.kind).toLowerCase(),
    isOwn: true,
  };
  const of = (neighbour) =>
    neighbour && {
      ...neighbour,
      tone: OUTCOMES[neighbour.outcome]?.[0] ?? "idle",
      text: OUTCOMES[neighbour.outcome]?.[1] ?? neighbour.outcome,
    };
  const rows = [of(previous), own, of(next)].filter(Boolean);
  const number = (row) =>
    row.isOwn && incident.last !== incident.first
      ? `${format.count(row.number)} – ${format.count(incident.last)}`
      : format.count(row.number);
  const columns = [
    { head: "Number", isNumber: true, cell: number },
    { head: "Outcome", isMain: true, cell: (row) => html`<${State} tone=${row.tone}>${row.text}<//>` },
    {
      head: "Incident",
      cell: (row) =>
        typeof row.incident === "number"
          ? html`<a href=${href(["incident", String(row.incident)])}>${row.incident}</a>`
          : "",
    },
  ];
  return html`<${Panel} title="Neighbours in the lane" of="lane" kind="half">
    <${Table} label="Neighbours" columns=${columns} rows=${rows} keyOf=${(row) => row.number}
      selected=${incident.first} />
  <//>`;
}
