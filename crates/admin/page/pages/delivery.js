// Delivery: did every message arrive, and if not, which one?
import { html, useEffect, useState } from "../lib/view.js";
import { get } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { useAnswer, useLive, usePage } from "../lib/data.js";
import { Icon } from "../lib/icons.js";
import { live } from "../lib/live.js";
import { AsOf, Command, Empty, Failure, Panel, Search, Segments, State, Table, Term } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import { RANGES, useSeries } from "../lib/series.js";
import { Demonstration } from "./demonstration.js";
import { KINDS, toneOf } from "./incident.js";
import * as format from "../lib/format.js";

export default function Delivery() {
  const stream = useLive();
  const first = useAnswer("/delivery");
  const delivery = stream.data?.delivery ?? first.data;
  const answer = stream.data ? stream : first;
  const isEmpty = delivery?.state === "empty";
  return html`<h1 class="unseen">Delivery</h1>
    ${answer.error && html`<${Failure} error=${answer.error} />`}
    ${delivery ? html`<${Verdict} delivery=${delivery} answer=${answer} />` : html`<p class="quiet">Loading …</p>`}
    <div class="grid">
      ${isEmpty && html`<${NextStep} />`}
      ${delivery && html`<${Demonstration} isOffered=${isEmpty} />`}
      <${Incidents} />
      ${delivery && !isEmpty && html`<${Expected} /><${Checkpoints} /><${Lanes} />`}
    </div>`;
}

const STATES = {
  green: ["ok", "Every message is accounted for"],
  amber: ["warn", "Not everything is proven delivered"],
  red: ["bad", "Messages are missing"],
  empty: ["idle", "No messages yet"],
};

function Verdict({ delivery, answer }) {
  const [tone, word] = STATES[delivery.state] ?? STATES.amber;
  return html`<section class="verdict" aria-label="Verdict">
    <span class="tone-${tone}"><${Icon} name=${tone} size="28" /></span>
    <p class="verdict-word tone-${tone}">${word}</p>
    ${delivery.state !== "empty" && html`<p class="sentence">${parts(delivery)}</p>`}
    ${(delivery.not_seen ?? []).map((text) => html`<p class="sentence is-limits">${text}</p>`)}
    <${AsOf} answer=${answer} />
    <p class="unseen" role="status" aria-live="polite">${word}. ${faults(delivery)}</p>
  </section>`;
}

/** The sentence. All figures are of one snapshot; those that matter only if there are any are left out at 0. */
function parts(delivery) {
  const dropped = total(delivery.dropped);
  const figures = [
    ["published", delivery.published, "published", true],
    ["expected", delivery.expected, "expected deliveries", delivery.expected !== delivery.published],
    ["acknowledged", delivery.acknowledged, "delivered and acknowledged", true],
    ["handed", delivery.handed_to_network, "handed to the network (QoS 0)"],
    ["waiting", delivery.waiting, "waiting"],
    ["in flight", delivery.in_flight, "in flight"],
    ["dropped", dropped, `dropped (${reasons(delivery.dropped)})`],
    ["lost", delivery.lost, "lost", true],
    ["duplicated", delivery.duplicated, "duplicated"],
    ["reordered", delivery.reordered, "reordered"],
    ["altered", delivery.altered, "altered"],
  ];
  const shown = figures.filter(([, value, , isAlways]) => isAlways || value > 0);
  return html`${shown.map(([of, value, words], index) => html`${index > 0 && ", "}<${Term} of=${of}><b>${
    format.count(value)}</b><//> ${words}`)} since <${Term} of="since"><b>${format.since(delivery.since)}</b><//>${
    delivery.after_crash ? " (the broker started after a crash; what happened before is not known)" : ""}.`;
}

function total(dropped) {
  return Object.values(dropped ?? {}).reduce((sum, count) => sum + count, 0);
}

function reasons(dropped) {
  const known = Object.entries(dropped ?? {}).filter(([, count]) => count > 0);
  known.sort(([, a], [, b]) => b - a);
  return known.slice(0, 2).map(([reason]) => reason).join(", ") + (known.length > 2 ? " …" : "");
}

/** What a screen reader hears when it changes: not each figure, each second. */
function faults(delivery) {
  const names = ["lost", "duplicated", "reordered", "altered"];
  return names.filter((name) => delivery[name] > 0).map((name) => `${delivery[name]} ${name}`).join(", ");
}

function Expected() {
  const range = route.value.query.range ?? "1h";
  const series = useSeries(["expected", "delivered"], range);
  const lines = [
    { label: "Expected", values: series.values("expected"), color: "ink-2", isDashed: true },
    { label: "Delivered", values: series.values("delivered"), color: "accent", isFilled: true },
  ];
  const choose = html`<${Segments} label="Range" value=${range} options=${RANGES}
    onChange=${(range) => setQuery({ range })} />`;
  return html`<${Panel} title="Expected and delivered" of="expected" answer=${series} actions=${choose}>
    ${series.times.length > 1
      ? html`<${Chart} label="Deliveries each second" times=${series.times} lines=${lines} show=${format.rate} />`
      : html`<${Empty} title="No figures yet">The first appear a few seconds after the start.<//>`}
  <//>`;
}

const CELLS = { proven: ["ok", "proven"], unproven: ["warn", "unproven"], faulty: ["bad", "faulty"] };

/** The strip: arrow keys go from cell to cell, Enter opens what a red one is about. */
function Checkpoints() {
  const answer = useAnswer("/delivery/checkpoints", { every: 2000 });
  const [chosen, choose] = useState(null);
  const cells = answer.data?.items ?? [];
  const move = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = step < 0 ? event.target.previousElementSibling : event.target.nextElementSibling;
    next?.focus();
  };
  const shown = cells.find((cell) => cell.at === chosen);
  return html`<${Panel} title="Checkpoints" of="cell" answer=${answer}>
    ${cells.length === 0
      ? html`<${Empty} title="No checkpoint yet">A window is judged after 1,024 messages, or when its session ends.<//>`
      : html`<div class="strip" role="group" aria-label="Checkpoints, newest last" onKeyDown=${move}>
          ${cells.map((cell, index) => html`<button type="button" key=${cell.at}
            class="cell is-${cell.state} ${cell.at === chosen ? "is-chosen" : ""}"
            tabindex=${index === cells.length - 1 ? 0 : -1} aria-label=${cellText(cell)} title=${cellText(cell)}
            onFocus=${() => choose(cell.at)} onClick=${() => openCell(cell, choose)}></button>`)}
        </div>
        <div class="strip-text">
          <span aria-live="polite">${shown ? cellText(shown) : ""}</span>
          <span class="strip-key">${Object.entries(CELLS).map(([state, [, word]]) => html`<span>
            <i class="cell is-${state}"></i>${word}</span>`)}</span>
        </div>`}
  <//>`;
}

function cellText(cell) {
  const counts = ["proven", "unproven", "faulty"].filter((state) => cell[state] > 0);
  const words = counts.map((state) => `${cell[state]} ${state}`).join(", ") || CELLS[cell.state]?.[1] || cell.state;
  return `${format.time(cell.at)}: ${words}${cell.incident ? "; Enter opens the incident" : ""}`;
}

function openCell(cell, choose) {
  choose(cell.at);
  if (cell.incident) location.hash = href(["incident", cell.incident]).slice(1);
}

function Incidents() {
  const answer = usePage("/incidents", { query: { limit: 8 } });
  const newest = live.incident.value;
  useEffect(() => {
    if (newest) answer.reload();
  }, [newest]);
  const columns = [
    { head: "Time", cell: (row) => html`<time datetime=${row.last}>${format.time(row.last)}</time>` },
    { head: "What", cell: (row) => html`<a href=${href(["incident", row.id])}><${State} tone=${toneOf(row)}>
      ${KINDS[row.kind] ?? row.kind}<//></a>` },
    { head: "Messages", isNumber: true, cell: (row) => format.count(row.count) },
    { head: "Topic", isMain: true, cell: (row) => html`<span class="mono">${row.topic ?? "–"}</span>` },
    { head: "Publisher", isWide: true, cell: (row) => row.publisher ?? "–" },
    { head: "Subscriber", isWide: true, cell: (row) => row.subscriber ?? "–" },
    { head: "Reason", isWide: true, cell: (row) => row.reason ?? "–" },
  ];
  if (!answer.error && answer.items.length === 0) return null;
  const more = answer.next && html`<a href="#/incidents">All incidents</a>`;
  return html`<${Panel} title="Incidents" answer=${answer} actions=${more}>
    <${Table} label="Incidents" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />
  <//>`;
}

const LANE_STATES = { proven: "ok", unproven: "warn", faulty: "bad" };

function Lanes() {
  const { lanes: search = "" } = route.value.query;
  const answer = usePage("/lanes", { query: { search, limit: 20 }, every: 3000 });
  const columns = [
    { head: "Publisher", isMain: true, cell: (row) => row.publisher ?? "–" },
    { head: "Lane", of: "lane", cell: (row) => html`<span class="mono">${row.id}</span>` },
    { head: "State", cell: (row) => html`<${State} tone=${LANE_STATES[row.state] ?? "idle"}>${row.state}<//>` },
    { head: "Messages", isNumber: true, cell: (row) => format.count(row.messages) },
    { head: "Last checkpoint", of: "checkpoint", isWide: true, cell: (row) => row.checkpoint
      ? `${format.age(row.checkpoint.at)} ago` : "–" },
    { head: "Time to proof", of: "proof", isNumber: true, cell: (row) => format.millis(row.time_to_proof_ms) },
  ];
  const find = html`<${Search} label="Publisher or lane" value=${search}
    onChange=${(lanes) => setQuery({ lanes })} />`;
  return html`<${Panel} title="Lanes" of="lane" answer=${answer}>
    <div class="filters">${find}</div>
    ${answer.items.length > 0
      ? html`<${Table} label="Lanes" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />`
      : html`<${Empty} title=${search ? "No lane matches" : "No lane yet"} />`}
  <//>`;
}

/** A broker without traffic: what to type. */
function NextStep() {
  const [port, setPort] = useState(null);
  useEffect(() => {
    get("/listeners").then(({ items }) => setPort(plainPort(items)), () => setPort(1883));
  }, []);
  if (port === null) return null;
  const host = location.hostname.replace(/^\[|\]$/g, "");
  const where = `${host === "localhost" || host === "127.0.0.1" ? "" : ` -h ${host}`}${port === 1883 ? "" : ` -p ${port}`}`;
  return html`<${Panel} title="Send the first message">
    <div class="steps">
      <div><h3>Listen in one terminal</h3><p>Anything that speaks MQTT will do.</p>
        <${Command} text=${`mosquitto_sub${where} -q 1 -t 'plant/#' -v`} /></div>
      <div><h3>Publish in another</h3><p>This page then says whether it arrived.</p>
        <${Command} text=${`mosquitto_pub${where} -q 1 -t plant/line1/temperature -m 21.5`} /></div>
    </div>
  <//>`;
}

function plainPort(listeners) {
  const plain = listeners.find(({ protocol }) => protocol === "mqtt" || protocol === "tcp") ?? listeners[0];
  return Number(plain?.address?.split(":").pop()) || 1883;
}
