// The demonstration: a producer and a consumer inside the broker, and faults on request.
import { html, useState } from "../lib/view.js";
import { may, send } from "../lib/api.js";
import { useAnswer } from "../lib/data.js";
import { attempt } from "../lib/dialog.js";
import { Panel, State, Table } from "../lib/parts.js";
import { href } from "../lib/route.js";
import * as format from "../lib/format.js";

const FAULTS = [
  ["drop", "Lose a message", "Message lost"],
  ["duplicate", "Duplicate a message", "Message duplicated"],
  ["reorder", "Swap two messages", "Messages swapped"],
  ["alter", "Change a payload", "Payload changed"],
];

/** `isFirst` if the broker has no traffic: then the page proposes it. */
export function Demonstration({ isFirst }) {
  const [isRunning, setRunning] = useState(false);
  const answer = useAnswer("/demonstration", { every: isRunning ? 1000 : 0 });
  const state = answer.data;
  const runs = state?.state === "running";
  if (runs !== isRunning && state) setRunning(runs);
  const change = (method, path, body) => attempt(() => send(method, path, body)).then(answer.reload);
  const start = () => change("POST", "/demonstration", {}).then(() => setRunning(true));
  if (!state || state.state === "none") return isFirst ? html`<${Offer} start=${start} />` : null;
  const button =
    may("operator") &&
    (runs
      ? html`<button type="button" onClick=${() => change("DELETE", "/demonstration")}>End the demonstration</button>`
      : html`<button type="button" onClick=${start}>Start it again</button>`);
  return html`<${Panel} title="Demonstration" actions=${button}>
    <${Line} state=${state} />
    ${runs && html`<${Buttons} inject=${(kind) => change("POST", "/demonstration/fault", { kind })} />`}
    ${!runs && html`<p class="quiet">It has ended${state.error ? `: ${state.error}` : "."}</p>`}
    <div aria-live="polite"><${Faults} faults=${state.faults} /></div>
  <//>`;
}

/** Producer, broker and consumer; the line is broken while a fault is not named. */
function Line({ state }) {
  const isDamaged = state.faults.some((fault) => !fault.named_at);
  return html`<div class="line" role="group" aria-label="Producer, broker, consumer">
    <${Stop} name="Producer" value=${state.sent} text="messages numbered and sent" />
    <span class="wire ${isDamaged ? "is-broken" : ""}"></span>
    <${Stop} name="Broker" value=${state.received} text="passed on to the consumer" />
    <span class="wire"></span>
    <${Stop} name="Consumer" value=${state.verified} text="verified, each once" />
  </div>`;
}

function Stop({ name, value, text }) {
  return html`<div class="stop"><h3>${name}</h3><b>${format.count(value)}</b><p>${text}</p></div>`;
}

function Buttons({ inject }) {
  if (!may("operator")) return html`<p class="quiet">Operators can inject faults here.</p>`;
  return html`<div class="faults" role="group" aria-label="Inject a fault"><span class="quiet">Break something:</span>
    ${FAULTS.map(([kind, text]) => html`<button type="button" onClick=${() => inject(kind)}>${text}</button>`)}
  </div>`;
}

function Faults({ faults }) {
  if (faults.length === 0) return html`<p class="quiet">No fault was injected yet.</p>`;
  const took = (fault, at) => `${format.millis(new Date(at) - new Date(fault.injected_at ?? fault.asked_at))} later`;
  const number = (fault) => (fault.number === null ? "" : `number ${format.count(fault.number)}, `);
  const pending = html`<${State} tone="idle">not yet<//>`;
  const columns = [
    {
      head: "Injected",
      cell: (fault) => (fault.injected_at ? format.time(fault.injected_at) : "with the next message"),
    },
    { head: "Fault", cell: (fault) => FAULTS.find(([kind]) => kind === fault.kind)?.[2] ?? fault.kind },
    {
      head: "Named",
      isMain: true,
      cell: (fault) =>
        fault.named_at
          ? html`<${State} tone="bad">${fault.named}: ${number(fault)}${took(fault, fault.named_at)}<//>
        ${fault.incident !== null && html` <a href=${href(["incident", String(fault.incident)])}>Incident</a>`}`
          : pending,
    },
    {
      head: "Repaired",
      cell: (fault) => (fault.repaired_at ? html`<${State} tone="ok">${took(fault, fault.repaired_at)}<//>` : pending),
    },
  ];
  const keyOf = (fault) => fault.asked_at;
  return html`<${Table} label="Injected faults" columns=${columns} rows=${faults.toReversed()} keyOf=${keyOf} />`;
}

function Offer({ start }) {
  return html`<${Panel} title="Or watch a fault being found">
    <p class="quiet">A producer and a consumer run inside the broker. You lose, duplicate, swap or change a message
      on its way, and see it named and repaired.</p>
    <p class="buttons-left">${
      may("operator")
        ? html`<button type="button" class="primary" onClick=${start}>Start the demonstration</button>`
        : "It can be started by operators."
    }</p>
  <//>`;
}
