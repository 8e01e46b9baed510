// Live: how much the broker does, and what it costs.
import { html } from "../lib/view.js";
import { Chart } from "../lib/chart.js";
import { useLive } from "../lib/data.js";
import { Empty, Failure, Panel, Segments, Table, Term, Title } from "../lib/parts.js";
import { route, setQuery } from "../lib/route.js";
import { RANGES, useSeries } from "../lib/series.js";
import * as format from "../lib/format.js";

const CHARTS = [
  {
    title: "Messages",
    of: "received",
    show: format.rate,
    lines: [
      ["received_per_s", "Received", "accent", { isFilled: true }],
      ["sent_per_s", "Sent", "ink-2"],
    ],
  },
  {
    title: "Network",
    of: "bytes in",
    show: (value) => `${format.bytes(value)}/s`,
    lines: [
      ["received_bytes_per_s", "In", "accent", { isFilled: true }],
      ["sent_bytes_per_s", "Out", "ink-2"],
    ],
  },
  {
    title: "Clients",
    of: "clients",
    show: format.compact,
    lines: [["clients", "Connected", "accent", { isFilled: true }]],
  },
  {
    title: "Latency",
    of: "latency",
    show: format.millis,
    lines: [
      ["latency_p50_ms", "p50", "accent"],
      ["latency_p95_ms", "p95", "ink-2"],
      ["latency_p99_ms", "p99", "warn", { isDashed: true }],
    ],
  },
  {
    title: "Dropped",
    of: "dropped",
    show: format.rate,
    lines: [["dropped_per_s", "Dropped", "warn", { isFilled: false }]],
  },
  {
    title: "Waiting",
    of: "waiting",
    show: format.compact,
    lines: [["waiting", "Messages", "accent", { isFilled: true }]],
  },
  { title: "CPU", of: "cpu", show: format.share, lines: [["cpu_ratio", "Process", "accent", { isFilled: true }]] },
  {
    title: "Memory",
    of: "rss",
    show: format.bytes,
    lines: [["resident_bytes", "Resident", "accent", { isFilled: true }]],
  },
  { title: "Disk", of: "store", show: format.bytes, lines: [["store_bytes", "Store", "accent", { isFilled: true }]] },
];

export default function Live() {
  const range = route.value.query.range ?? "5m";
  const names = CHARTS.flatMap(({ lines }) => lines.map(([name]) => name));
  const series = useSeries(names, range);
  const stream = useLive();
  const choose = html`<${Segments} label="Range" value=${range} options=${RANGES}
    onChange=${(range) => setQuery({ range })} />`;
  return html`<${Title} actions=${choose} lead="Kept inside the broker for 7 days.">Live<//>
    ${stream.error && html`<${Failure} error=${stream.error} />`}
    <${Now} answer=${stream} />
    <div class="grid">
      ${CHARTS.map((chart) => html`<${Figure} key=${chart.title} chart=${chart} series=${series} />`)}
      <${Drops} answer=${stream} />
    </div>`;
}

/** The newest values, in one line. */
function Now({ answer }) {
  const { rates = {}, node = {}, latency = {} } = answer.data ?? {};
  const figures = [
    ["received", "Received", format.rate(rates.received_per_s)],
    ["sent rate", "Sent", format.rate(rates.sent_per_s)],
    ["clients", "Clients", format.count(node.clients)],
    ["latency", "Latency p99", format.millis(latency.p99_ms)],
    ["cpu", "CPU", format.share(node.cpu)],
    ["rss", "Memory", format.bytes(node.rss)],
    ["store", "Store", format.bytes(node.store_bytes)],
  ];
  return html`<${Panel} title="Now" answer=${answer} kind="now"><dl class="facts figures">
    ${figures.map(([of, name, text]) => html`<div><dt><${Term} of=${of}>${name}<//></dt><dd>${text}</dd></div>`)}
  </dl><//>`;
}

function Figure({ chart, series }) {
  const lines = chart.lines.map(([name, label, color, more]) => ({
    label,
    color,
    values: series.values(name),
    ...more,
  }));
  const isKnown = lines.some((line) => line.values.some((value) => value !== null));
  return html`<${Panel} title=${chart.title} of=${chart.of} answer=${series} kind="third">
    ${
      isKnown
        ? html`<${Chart} label=${chart.title} times=${series.times} lines=${lines} show=${chart.show} height=${140} />`
        : html`<${Empty} title="No figures in this range" />`
    }
  <//>`;
}

function Drops({ answer }) {
  const drops = Object.entries(answer.data?.drops ?? {}).filter(([, count]) => count > 0);
  drops.sort(([, a], [, b]) => b - a);
  const columns = [
    { head: "Reason", isMain: true, cell: ([reason]) => html`<a href="#/incidents?kind=dropped">${reason}</a>` },
    { head: "Messages", of: "dropped", isNumber: true, cell: ([, count]) => format.count(count) },
  ];
  return html`<${Panel} title="Dropped by reason, since the start" of="dropped" answer=${answer}>
    ${
      drops.length > 0
        ? html`<${Table} label="Dropped by reason" columns=${columns} rows=${drops} keyOf=${([reason]) => reason} />`
        : html`<${Empty} title="Nothing was dropped" />`
    }
  <//>`;
}
