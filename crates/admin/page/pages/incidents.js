// All incidents that the broker remembers, newest first.
import { html } from "../lib/view.js";
import { usePage } from "../lib/data.js";
import { Choice, Empty, Pager, Panel, State, Table, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import { KINDS, toneOf } from "./incident.js";
import * as format from "../lib/format.js";

export default function Incidents() {
  const { kind = "", cursor } = route.value.query;
  const answer = usePage("/incidents", { query: { kind, cursor } });
  const columns = [
    { head: "Last seen", cell: (row) => html`<time datetime=${row.last}>${format.time(row.last)}</time>` },
    { head: "What", cell: (row) => html`<a href=${href(["incident", row.id])}><${State} tone=${toneOf(row)}>
      ${KINDS[row.kind] ?? row.kind}<//></a>` },
    { head: "Messages", isNumber: true, cell: (row) => format.count(row.count) },
    { head: "Topic", isMain: true, cell: (row) => html`<span class="mono">${row.topic ?? "–"}</span>` },
    { head: "Publisher", isWide: true, cell: (row) => row.publisher ?? "–" },
    { head: "Subscriber", isWide: true, cell: (row) => row.subscriber ?? "–" },
    { head: "Reason", isWide: true, cell: (row) => row.reason ?? "–" },
  ];
  return html`<${Title} lead="Messages that did not arrive as they were sent, and why.">Incidents<//>
    <div class="filters"><${Choice} label="Kind" value=${kind} options=${[["", "All"], ...Object.entries(KINDS)]}
      onChange=${(kind) => setQuery({ kind, cursor: "" })} /></div>
    <${Panel} title="Incidents" answer=${answer}>
      ${answer.items.length > 0
        ? html`<${Table} label="Incidents" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />`
        : html`<${Empty} title="No incident" />`}
      <${Pager} count=${answer.items.length} isFirst=${!cursor} next=${answer.next}
        onFirst=${() => setQuery({ cursor: "" }, { step: true })}
        onNext=${() => setQuery({ cursor: answer.next }, { step: true })} />
    <//>`;
}
