// Logs of the broker, and traces: packets and decisions of one client, user or topic, as they happen.
import { html, useEffect, useRef, useState } from "../lib/view.js";
import { address, may, pathOf, send } from "../lib/api.js";
import { usePage } from "../lib/data.js";
import { attempt } from "../lib/dialog.js";
import { Choice, Empty, Field, Panel, Search, State, Table, Tabs, Title } from "../lib/parts.js";
import { go, href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

const EVENTS_MAX = 1000;

export default function Logs() {
  const [, view = "log", id] = route.value.path;
  const hrefOf = (key) => href(key === "log" ? ["logs"] : ["logs", key]);
  return html`<${Title}>Logs and traces<//>
    <${Tabs} label="Views" value=${view === "log" ? "log" : "traces"} options=${[
      ["log", "Log"],
      ["traces", "Traces"],
    ]} hrefOf=${hrefOf} />
    ${view === "log" ? html`<${Log} />` : id ? html`<${Trace} key=${id} id=${id} />` : html`<${Traces} />`}`;
}

const LEVELS = [
  ["", "All"],
  ["error", "Errors"],
  ["warn", "Warnings and above"],
  ["info", "Info and above"],
];
const TONES = { error: "bad", warn: "warn", info: "idle", debug: "idle", trace: "idle" };

function Log() {
  const { level = "", search = "" } = route.value.query;
  const answer = usePage("/logs", { query: { level, search, limit: 200 }, every: 2000 });
  return html`<div class="filters">
      <${Search} label="Search" value=${search} onChange=${(search) => setQuery({ search })} />
      <${Choice} label="Level" value=${level} options=${LEVELS} onChange=${(level) => setQuery({ level })} />
    </div>
    <${Panel} title="Newest first" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<ul class="log" tabindex="0" aria-label="Log">${answer.items.map(
              (line) => html`<li>
            <time class="quiet">${format.time(line.at)}</time>
            <span class="tone-${TONES[line.level] ?? "idle"}">${line.level.toUpperCase()}</span>
            <span>${line.message} <span class="fields">${fields(line.fields)}</span></span></li>`,
            )}</ul>`
          : html`<${Empty} title=${level || search ? "Nothing matches" : "Nothing was logged yet"} />`
      }
    <//>`;
}

function fields(map) {
  return Object.entries(map ?? {})
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
}

const KINDS = [
  ["client", "Client id"],
  ["user", "User"],
  ["topic", "Topic filter"],
];

function Traces() {
  const answer = usePage("/traces", { every: 3000 });
  const [kind, setKind] = useState("client");
  const start = async (event) => {
    event.preventDefault();
    const { value, seconds, bytes } = Object.fromEntries(new FormData(event.target));
    const asked = { [kind]: value, for_s: Number(seconds), payload_bytes: Number(bytes) };
    const trace = await attempt(() => send("POST", "/traces", asked));
    if (trace) go(["logs", "traces", trace.id]);
  };
  const columns = [
    {
      head: "Trace",
      isMain: true,
      cell: (row) =>
        may("operator") ? html`<a href=${href(["logs", "traces", row.id])}>${subject(row)}</a>` : subject(row),
    },
    { head: "Ends in", isNumber: true, cell: (row) => format.span(row.left_s) },
  ];
  return html`<div class="stack">
    ${
      may("operator") &&
      html`<${Panel} title="Start a trace"><form class="form" onSubmit=${start}>
      <${Choice} label="Of a" value=${kind} options=${KINDS} onChange=${setKind} />
      <${Field} label=${KINDS.find(([key]) => key === kind)[1]} name="value" required data-search />
      <${Field} label="For seconds" name="seconds" type="number" min="1" max="3600" value="60" required />
      <${Field} label="Payload bytes" name="bytes" type="number" min="0" max="1024" value="0" required />
      <button type="submit" class="primary">Start</button>
    </form><//>`
    }
    <${Panel} title="Traces" answer=${answer}>
      ${
        answer.items.length > 0
          ? html`<${Table} label="Traces" columns=${columns} rows=${answer.items} keyOf=${(row) => row.id} />`
          : html`<${Empty} title="No trace goes on">A trace shows packets and decisions: access, matched
            subscriptions, queue, reason of a drop.<//>`
      }
    <//>
  </div>`;
}

function subject(row) {
  return KINDS.filter(([key]) => row[key])
    .map(([key]) => `${key} ${row[key]}`)
    .join(", ");
}

/** Events of one trace. It has a stream of its own, which ends when the page is left. */
function Trace({ id }) {
  const [events, setEvents] = useState([]);
  const [isOpen, setOpen] = useState(true);
  const pending = useRef([]);
  useEffect(() => {
    const source = new EventSource(address(`/traces${pathOf(id)}/events`));
    const end = () => {
      source.close();
      setOpen(false);
    };
    const take = (event) => pending.current.push(JSON.parse(event.data));
    source.addEventListener("step", take);
    source.addEventListener("end", end);
    source.addEventListener("error", () => source.readyState === EventSource.CLOSED && end());
    // Drawn a few times a second, however many there are.
    const timer = setInterval(() => {
      const arrived = pending.current.splice(0);
      if (arrived.length > 0) setEvents((old) => [...arrived.reverse(), ...old].slice(0, EVENTS_MAX));
    }, 250);
    return () => {
      source.close();
      clearInterval(timer);
    };
  }, [id]);
  const stop = () =>
    attempt(() => send("DELETE", `/traces${pathOf(id)}`), "The trace has ended.").then(() => go(["logs", "traces"]));
  const button = may("operator") && html`<button type="button" onClick=${stop}>End the trace</button>`;
  return html`<${Panel} title="Trace" actions=${button}>
    <p class="status" role="status"><${State} tone=${isOpen ? "ok" : "idle"}>${isOpen ? "running" : "ended"}<//>
      <span class="quiet"> ${format.plural(events.length, "event")}, newest first</span></p>
    ${
      events.length > 0
        ? html`<ul class="log is-trace" tabindex="0" aria-label="Events">${events.map(
            (event) => html`<li>
          <time class="quiet">${format.precise(event.at)}</time>
          <span>${event.step}</span><${Step} event=${event} /></li>`,
          )}</ul>`
        : html`<${Empty} title="Nothing happened yet" />`
    }
  <//>`;
}

/** Whose packet, which topic, and then all else that is known. */
function Step({ event: { at, step, client, packet, topic, payload_base64: payload, ...rest } }) {
  const text = [client, packet, topic].filter(Boolean).join(" · ");
  const shown = payload === undefined ? rest : { ...rest, payload: preview(payload) };
  return html`<span>${text} <span class="fields">${fields(shown)}</span></span>`;
}

function preview(base64) {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)));
}
