// Delivery: did every message arrive, and if not, which one?
import { html, useEffect, useState } from "../lib/view.js";
import { get } from "../lib/api.js";
import { useAnswer, useLive, usePage } from "../lib/data.js";
import { Icon } from "../lib/icons.js";
import { live } from "../lib/live.js";
import { AsOf, Command, Failure, Panel, Term } from "../lib/parts.js";
import { Demonstration } from "./demonstration.js";
import { IncidentTable } from "./incident.js";
import { Checkpoints, Expected, Lanes } from "./lanes.js";
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
    ${
      delivery &&
      html`<div class="grid">
      ${isEmpty && html`<${NextStep} />`}
      <${Demonstration} isFirst=${isEmpty} />
      <${Incidents} counts=${delivery.incidents} />
      ${!isEmpty && html`<${Expected} /><${Checkpoints} /><${Lanes} />`}
    </div>`
    }`;
}

const STATES = {
  green: ["ok", "Every message is accounted for"],
  amber: ["warn", "Not everything is proven delivered"],
  red: ["bad", "Messages are missing"],
  empty: ["idle", "No messages yet"],
};

function Verdict({ delivery, answer }) {
  const [tone, word] = STATES[delivery.state] ?? STATES.amber;
  const isEmpty = delivery.state === "empty";
  const { reasons = [], not_seen: limits = [] } = delivery;
  return html`<section class="verdict" aria-label="Verdict">
    <div class="verdict-said">
      <p class="verdict-word tone-${tone}"><${Icon} name=${tone} size="24" />${word}</p>
      ${
        isEmpty
          ? html`<p class="sentence">Publish a message, and this page says what became of it.</p>`
          : html`<p class="sentence">${parts(delivery)}</p>`
      }
      ${reasons.length > 0 && html`<ul class="reasons">${reasons.map((reason) => html`<li>${reason}</li>`)}</ul>`}
      <${AsOf} answer=${answer} />
    </div>
    ${
      !isEmpty &&
      limits.length > 0 &&
      html`<div class="verdict-limits">
      <p class="verdict-word">What the broker cannot see</p>
      <p class="sentence">${limits.join(" ").replaceAll("`", "")}</p>
    </div>`
    }
    <p class="unseen" role="status" aria-live="polite">${[word, ...reasons].join(". ")}</p>
  </section>`;
}

/** The sentence. All figures are of one snapshot; those that matter only if there are any are left out at 0. */
function parts(delivery) {
  const figures = [
    ["published", delivery.published, "published", true],
    ["unrouted", delivery.unrouted, "without a subscriber"],
    ["expected", delivery.expected, "expected deliveries", delivery.expected !== delivery.published],
    ["acknowledged", delivery.acknowledged, "delivered and acknowledged", true],
    ["processed", delivery.processed, "processed"],
    ["handed", delivery.handed_to_network, "handed to the network (QoS 0)"],
    ["waiting", delivery.waiting, "waiting"],
    ["in flight", delivery.in_flight, "in flight"],
    ["given up", delivery.given_up, "given up"],
    ["dropped", delivery.dropped, `dropped (${names(delivery.dropped_by_reason)})`],
    ["lost", delivery.lost, "lost", true],
    ["duplicated", delivery.duplicated, "duplicated"],
    ["reordered", delivery.reordered, "reordered"],
    ["altered", delivery.altered, "altered"],
    ["before", before(delivery.publishers), "faults before the broker"],
  ];
  const shown = figures.filter(([, value, , isAlways]) => isAlways || value > 0);
  return html`${shown.map(
    ([of, value, words], index) =>
      html`${index > 0 && ", "}<${Term} of=${of}><b>${format.count(value)}</b><//> ${words}`,
  )} since <${Term} of="since"><b>${format.since(delivery.since)}</b><//>${
    delivery.after_crash ? ", when the broker started after a crash" : ""
  }.`;
}

/** The two reasons that most messages were dropped for. */
function names(reasons) {
  const known = Object.entries(reasons ?? {}).sort(([, a], [, b]) => b - a);
  return (
    known
      .slice(0, 2)
      .map(([reason]) => reason)
      .join(", ") + (known.length > 2 ? " …" : "")
  );
}

function before(publishers) {
  const kinds = ["lost", "duplicated", "reordered", "altered", "injected", "forged"];
  return kinds.reduce((sum, kind) => sum + (publishers?.[kind] ?? 0), 0);
}

/** Loaded again when the stream has an incident, or the counts of the snapshot say that there is something new. */
function Incidents({ counts }) {
  const answer = usePage("/incidents", { query: { limit: 8 } });
  useEffect(answer.reload, [JSON.stringify(counts), live.incident.value]);
  if (!answer.error && answer.items.length === 0) return null;
  return html`<${Panel} title="Incidents" answer=${answer} actions=${html`<a href="#/incidents">All incidents</a>`}>
    <${IncidentTable} rows=${answer.items} />
  <//>`;
}

/** A broker without traffic: what to type. */
function NextStep() {
  const [port, setPort] = useState(null);
  useEffect(() => {
    get("/listeners").then(
      ({ items }) => setPort(plainPort(items)),
      () => setPort(1883),
    );
  }, []);
  if (port === null) return null;
  const host = location.hostname.replace(/^\[|\]$/g, "");
  const isHere = host === "localhost" || host === "127.0.0.1" || host === "::1";
  const where = `${isHere ? "" : ` -h ${host}`}${port === 1883 ? "" : ` -p ${port}`}`;
  return html`<${Panel} title="Send the first message">
    <div class="steps">
      <div><h3>Listen in one terminal</h3><p>Anything that speaks MQTT will do.</p>
        <${Command} text=${`mosquitto_sub${where} -q 1 -t 'plant/#' -v`} /></div>
      <div><h3>Publish in another</h3><p>This page then says whether it arrived.</p>
        <${Command} text=${`mosquitto_pub${where} -q 1 -t plant/line1/temperature -m 21.5`} /></div>
    </div>
  <//>`;
}

/** Of the first listener without TLS that is not a unix socket. */
function plainPort(listeners) {
  const plain = listeners.find(({ protocol, address }) => protocol === "mqtt" && /:\d+$/.test(address));
  return Number(plain?.address.split(":").pop()) || 1883;
}
