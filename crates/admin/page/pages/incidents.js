// All incidents that the broker remembers, newest first.
import { html } from "../lib/view.js";
import { usePage } from "../lib/data.js";
import { Choice, Empty, Pager, Panel, Title } from "../lib/parts.js";
import { route, setQuery } from "../lib/route.js";
import { IncidentTable, KINDS, kindWord } from "./incident.js";
import * as format from "../lib/format.js";

const STATES = [
  ["", "All"],
  ["open", "Open"],
  ["repaired", "Repaired"],
  ["ignored", "Ignored"],
];

export default function Incidents() {
  const { kind = "", state = "", cursor } = route.value.query;
  const answer = usePage("/incidents", { query: { kind, state, cursor } });
  const { evicted = 0, missed = 0 } = answer.data?.counts ?? {};
  return html`<${Title} lead="Messages that did not arrive as they were sent, and why.">Incidents<//>
    <div class="filters">
      <${Choice} label="Kind" value=${kind} options=${[["", "All"], ...KINDS.map((kind) => [kind, kindWord(kind)])]}
        onChange=${(kind) => setQuery({ kind, cursor: "" })} />
      <${Choice} label="State" value=${state} options=${STATES}
        onChange=${(state) => setQuery({ state, cursor: "" })} />
    </div>
    <${Panel} title="Incidents" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<${IncidentTable} rows=${answer.items} />`
          : html`<${Empty} title="No incident" />`
      }
      ${
        evicted + missed > 0 &&
        html`<p class="quiet small">${format.count(evicted)} older ones are forgotten; ${format.plural(
          missed,
          "event",
        )} came too fast to be looked at.</p>`
      }
      <${Pager} answer=${answer} />
    <//>`;
}
