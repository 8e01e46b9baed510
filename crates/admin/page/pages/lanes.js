// Parts of Delivery over time: expected against delivered, the strip of checkpoints, and lanes.
import { html, useState } from "../lib/view.js";
import { Chart } from "../lib/chart.js";
import { useAnswer, usePage } from "../lib/data.js";
import { Empty, Panel, Search, Segments, State, Table } from "../lib/parts.js";
import { go, href, route, setQuery } from "../lib/route.js";
import { RANGES, useSeries } from "../lib/series.js";
import * as format from "../lib/format.js";

export function Expected() {
  const range = route.value.query.range ?? "5m";
  const series = useSeries(["expected_per_s", "delivered_per_s"], range);
  const lines = [
    { label: "Expected", values: series.values("expected_per_s"), color: "ink-2", isDashed: true },
    { label: "Delivered", values: series.values("delivered_per_s"), color: "accent", isFilled: true },
  ];
  const choose = html`<${Segments} label="Range" value=${range} options=${RANGES}
    onChange=${(range) => setQuery({ range })} />`;
  return html`<${Panel} title="Expected and delivered" of="expected" answer=${series} actions=${choose}>
    ${
      series.times.length > 1
        ? html`<${Chart} label="Deliveries each second" times=${series.times} lines=${lines} show=${format.rate} />`
        : html`<${Empty} title="No figures yet">The first appear a few seconds after the start.<//>`
    }
  <//>`;
}

const HINT = "One cell for each second with traffic, the newest last.";
const CELLS = ["proven", "open", "unproven", "faulty", "unknown"];

/** The strip: arrow keys go from cell to cell, Enter opens what a red one is about. */
export function Checkpoints() {
  const answer = useAnswer("/delivery/checkpoints", { query: { limit: 120 }, every: 2000 });
  const [chosen, choose] = useState(null);
  const cells = answer.data?.items ?? [];
  const move = (event) => {
    const step = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[event.key];
    if (!step) return;
    event.preventDefault();
    event.target[step]?.focus();
  };
  const open = (cell) => {
    choose(cell.at);
    if (cell.incident !== null) go(["incident", String(cell.incident)]);
  };
  const shown = cells.find((cell) => cell.at === chosen);
  const present = CELLS.filter((state) => cells.some((cell) => cell.state === state));
  return html`<${Panel} title="Checkpoints" of="cell" answer=${answer}>
    ${
      cells.length === 0
        ? html`<${Empty} title="No second with traffic yet" />`
        : html`<div class="strip" role="group" aria-label="Checkpoints, newest last" onKeyDown=${move}>
          ${cells.map(
            (cell, index) => html`<button type="button" key=${cell.at}
            class="cell is-${cell.state} ${cell.at === chosen ? "is-chosen" : ""}"
            tabindex=${index === cells.length - 1 ? 0 : -1} aria-label=${cellText(cell)} title=${cellText(cell)}
            onFocus=${() => choose(cell.at)} onClick=${() => open(cell)}></button>`,
          )}
        </div>
        <div class="strip-text">
          <span aria-live="polite">${shown ? cellText(shown) : HINT}</span>
          <span class="strip-key">
            ${present.map((state) => html`<span><i class="cell is-${state}"></i>${state}</span>`)}
          </span>
        </div>`
    }
  <//>`;
}

function cellText(cell) {
  const counts = [
    [cell.expected, "expected"],
    [cell.delivered, "delivered"],
    [cell.dropped, "dropped"],
    [cell.faults, cell.faults === 1 ? "fault" : "faults"],
  ];
  const known = counts.filter(([count], index) => count > 0 || index === 0);
  const words = known.map(([count, word]) => `${format.count(count)} ${word}`).join(", ");
  return `${format.time(cell.at)} ${cell.state}: ${words}${cell.incident === null ? "" : "; Enter opens the incident"}`;
}

const LANE_STATES = { proven: "ok", counted: "ok", open: "idle", faulty: "bad" };

export function Lanes() {
  const keyOf = (row) => `${row.id} ${row.epoch}`;
  const { lanes: search = "" } = route.value.query;
  const answer = usePage("/lanes", { query: { search, limit: 20 }, every: 3000 });
  const columns = [
    {
      head: "Publisher",
      isMain: true,
      cell: (row) => html`<a href=${href(["clients", row.publisher])}>${row.publisher}</a>`,
    },
    { head: "Lane", of: "lane", cell: (row) => html`<span class="mono">${row.id}</span>` },
    { head: "Numbered by", isWide: true, cell: (row) => (row.is_stamped ? "publisher" : "broker") },
    {
      head: "State",
      of: "lane state",
      cell: (row) => html`<${State} tone=${LANE_STATES[row.state] ?? "idle"}>${row.state}<//>`,
    },
    { head: "Messages", isNumber: true, cell: (row) => format.count(row.next) },
    {
      head: "Windows proven",
      of: "window",
      isNumber: true,
      isWide: true,
      cell: (row) => format.count(row.windows.proven),
    },
    {
      head: "Last checkpoint",
      of: "checkpoint",
      isWide: true,
      isNumber: true,
      cell: (row) => (row.checkpoint ? `${format.age(row.checkpoint.at)} ago` : "–"),
    },
    { head: "Time to proof", of: "proof", isNumber: true, cell: (row) => format.millis(row.time_to_proof_ms) },
  ];
  return html`<${Panel} title="Lanes" of="lane" answer=${answer}>
    <div class="filters"><${Search} label="Publisher, user or lane" value=${search}
      onChange=${(lanes) => setQuery({ lanes })} /></div>
    ${
      answer.items.length > 0
        ? html`<${Table} label="Lanes" columns=${columns} rows=${answer.items} keyOf=${keyOf} />`
        : html`<${Empty} title=${search ? "No lane matches" : "No lane yet"} />`
    }
    ${answer.next && html`<p class="quiet small">More lanes follow: search to narrow them down.</p>`}
  <//>`;
}
