// The demonstration: a producer and a consumer inside the broker, and faults on request.
import { html } from "../lib/view.js";
import { may, send } from "../lib/api.js";
import { useAnswer } from "../lib/data.js";
import { attempt } from "../lib/dialog.js";
import { Panel, State, Table } from "../lib/parts.js";
import * as format from "../lib/format.js";

const FAULTS = [
  ["drop", "Lose a message"],
  ["duplicate", "Duplicate a message"],
  ["reorder", "Swap two messages"],
  ["alter", "Change a payload"],
];
const INJECTED = { drop: "Message lost", duplicate: "Message duplicated", reorder: "Messages swapped", alter: "Payload changed" };

/** `isOffered` if the broker has no traffic: then the page proposes it. */
export function Demonstration({ isOffered }) {
  const answer = useAnswer("/demonstration", { every: 1000 });
  const state = answer.data;
  if (!state?.running) return isOffered ? html`<${Offer} answer=${answer} />` : null;
  const stop = () => attempt(() => send("DELETE", "/demonstration"), "The demonstration has ended.").then(answer.reload);
  const inject = (kind) => attempt(() => send("POST", "/demonstration/fault", { kind })).then(answer.reload);
  const isDamaged = state.faults.some((fault) => !fault.named_at);
  const button = may("operator") && html`<button type="button" onClick=${stop}>End the demonstration</button>`;
  return html`<${Panel} title="Demonstration" answer=${answer} actions=${button}>
    <div class="line" role="img" aria-label=${`Producer sent ${state.sent}, consumer received ${state.received}`}>
      <${Stop} name="Producer" value=${state.sent} text="messages numbered and sent" />
      <span class="wire"></span>
      <${Stop} name="Broker" value=${state.sent} text="routed" />
      <span class="wire ${isDamaged ? "is-broken" : ""}"></span>
      <${Stop} name="Consumer" value=${state.verified} text=${`verified of ${format.count(state.received)} received`} />
    </div>
    ${may("operator")
      ? html`<div class="faults" role="group" aria-label="Inject a fault"><span class="quiet">Break the line to the consumer:</span>
          ${FAULTS.map(([kind, text]) => html`<button type="button" onClick=${() => inject(kind)}>${text}</button>`)}
        </div>`
      : html`<p class="quiet">Operators can inject faults here.</p>`}
    <div aria-live="polite"><${Faults} faults=${state.faults} /></div>
  <//>`;
}

function Stop({ name, value, text }) {
  return html`<div class="stop"><h3>${name}</h3><b>${format.count(value)}</b><p>${text}</p></div>`;
}

function Faults({ faults }) {
  if (faults.length === 0) return html`<p class="quiet">No fault was injected yet.</p>`;
  const took = (fault, at) => `${format.millis(new Date(at) - new Date(fault.injected_at))} later`;
  const columns = [
    { head: "Injected", cell: (fault) => html`<time datetime=${fault.injected_at}>${format.time(fault.injected_at)}</time>` },
    { head: "Fault", cell: (fault) => INJECTED[fault.kind] ?? fault.kind },
    { head: "Named", isMain: true, cell: (fault) => fault.named_at
      ? html`<${State} tone="bad">${fault.name ?? `number ${fault.number}`}, ${took(fault, fault.named_at)}<//>`
      : html`<${State} tone="idle">not yet<//>` },
    { head: "Repaired", cell: (fault) => fault.repaired_at
      ? html`<${State} tone="ok">${took(fault, fault.repaired_at)}<//>`
      : html`<${State} tone="idle">not yet<//>` },
  ];
  return html`<${Table} label="Injected faults" columns=${columns} rows=${faults.toReversed()}
    keyOf=${(fault) => fault.id ?? fault.injected_at} />`;
}

function Offer({ answer }) {
  const start = () => attempt(() => send("POST", "/demonstration", {})).then(answer.reload);
  return html`<${Panel} title="Or watch a fault being found">
    <p class="quiet">A producer and a consumer run inside the broker. You lose, duplicate, swap or change a message on its
      way, and see it named and repaired.</p>
    <p class="buttons-left">${may("operator")
      ? html`<button type="button" class="primary" onClick=${start}>Start the demonstration</button>`
      : "It can be started by operators."}</p>
  <//>`;
}
