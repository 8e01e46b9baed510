// Topics: the tree by level, and one topic with its last value.
import { html, useEffect, useRef, useState } from "../lib/view.js";
import { address, may, send } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { useAnswer, usePage } from "../lib/data.js";
import { ask, notify } from "../lib/dialog.js";
import { Icon } from "../lib/icons.js";
import { Empty, Facts, Failure, Panel, Search, Segments, Title } from "../lib/parts.js";
import { href, route, setQuery } from "../lib/route.js";
import * as format from "../lib/format.js";

export default function Topics() {
  const { search = "", topic } = route.value.query;
  return html`<${Title} lead="Topics with a retained message, and what they last held.">Topics<//>
    <div class="filters"><${Search} label="Search topics" value=${search} placeholder="plant/line1"
      onChange=${(search) => setQuery({ search })} /></div>
    <div class="grid">
      <${Tree} key=${search} search=${search} chosen=${topic} />
      ${
        topic
          ? html`<${Value} key=${topic} topic=${topic} />`
          : html`<${Panel} title="No topic chosen" kind="half"><p class="quiet">Choose one to see its value.</p><//>`
      }
    </div>`;
}

function Tree({ search, chosen }) {
  const answer = usePage("/topics", { query: { search, limit: 200 }, every: search ? 0 : 10_000 });
  return html`<${Panel} title="Tree" answer=${answer} kind="half">
    ${
      answer.items.length > 0
        ? html`<div class="tree"><${Level} first=${answer} chosen=${chosen} /></div>`
        : html`<${Empty} title=${search ? "No topic matches" : "No topic yet"}>
          ${search ? "" : "A topic appears here once a message to it is retained."}<//>`
    }
  <//>`;
}

/** Children of a topic. Deeper levels are asked for when they are opened. */
function Level({ first, parent, chosen }) {
  // The children of the empty first level have no parent to name.
  const query = parent === "" ? { empty_parent: true } : { parent };
  const own = usePage(first ? null : "/topics", { query: { ...query, limit: 200 } });
  const answer = first ?? own;
  if (answer.isLoading) return html`<p class="quiet">Loading …</p>`;
  if (answer.error) return html`<${Failure} error=${answer.error} />`;
  return html`<ul class=${first ? "is-root" : ""}>
    ${answer.items.map((node) => html`<${Node} key=${node.topic} node=${node} chosen=${chosen} />`)}
    ${answer.next && html`<li class="quiet">More topics follow: search to narrow them down.</li>`}
  </ul>`;
}

function Node({ node, chosen }) {
  const [isOpen, setOpen] = useState(Boolean(chosen?.startsWith(`${node.topic}/`)));
  return html`<li>
    <div class="tree-row ${node.topic === chosen ? "is-chosen" : ""}">
      ${
        node.children
          ? html`<button type="button" class="icon-only twist ${isOpen ? "is-open" : ""}" aria-expanded=${isOpen}
            aria-label=${`Topics below ${node.topic}`} onClick=${() => setOpen(!isOpen)}>
            <${Icon} name="next" size="12" /></button>`
          : html`<span class="twist"></span>`
      }
      <a href=${href(["topics"], { ...route.value.query, topic: node.topic })}
        aria-current=${node.topic === chosen ? "true" : undefined}>${node.name || "(empty level)"}</a>
      ${node.value && html`<span class="preview">${glance(node.value)}</span>`}
    </div>
    ${isOpen && html`<${Level} parent=${node.topic} chosen=${chosen} />`}
  </li>`;
}

function glance({ text, payload_bytes: size }) {
  return text ?? `${format.bytes(size)}, not text`;
}

const PLOTTED_MAX = 300;

function Value({ topic }) {
  const answer = useAnswer("/topics/value", { query: { topic }, every: 1000 });
  const [form, setForm] = useState("text");
  const plot = useNumbers(answer.data);
  const value = answer.data;
  const remove = () =>
    ask({
      title: "Delete the retained message",
      text: `${topic}: later subscribers will not get it.`,
      button: "Delete",
      isDanger: true,
      run: () =>
        send("DELETE", "/retained", undefined, { topic }).then(() => {
          notify("The retained message was deleted.");
          answer.reload();
        }),
    });
  const buttons =
    value &&
    may("operator") &&
    html`<button type="button" class="danger small-button" onClick=${remove}>Delete retained</button>`;
  const title = html`<span class="mono">${topic}</span>`;
  return html`<${Panel} title=${title} answer=${answer} actions=${buttons} kind="half">
    ${
      value &&
      html`<div class="stack">
      <${Facts} items=${[
        ["Size", format.bytes(value.payload_bytes)],
        ["QoS", value.qos],
        ["Expires", value.expires && format.time(value.expires)],
        ["Publisher", value.publisher ?? "the broker"],
        ["Retained", format.time(value.at), "retained"],
        ["Content type", value.content_type],
      ]} />
      <${Segments} label="View" value=${form} options=${[
        ["text", "Text"],
        ["json", "JSON"],
        ["hex", "Hex"],
      ]} onChange=${setForm} />
      <pre tabindex="0" aria-label="Value">${shown(value, form)}</pre>
      ${
        value.is_truncated &&
        html`<p><a href=${address("/topics/value", { topic, download: true })} download>Download all
        ${format.bytes(value.payload_bytes)}</a></p>`
      }
      ${
        plot.values.length > 1 &&
        html`<${Chart} label="Values while this page is open" times=${plot.times} height=${140}
        lines=${[{ label: "Value", values: plot.values, color: "accent" }]} show=${format.number} />`
      }
    </div>`
    }
  <//>`;
}

/** The numbers that the topic had while it was looked at. */
function useNumbers(value) {
  const seen = useRef({ times: [], values: [], last: null });
  const [shown, setShown] = useState({ times: [], values: [] });
  useEffect(() => {
    const text = value && textOf(value);
    const number = text?.trim() ? Number(text) : NaN;
    if (!Number.isFinite(number)) return;
    const { times, values } = seen.current;
    times.push(Date.now() / 1000);
    values.push(number);
    if (times.length > PLOTTED_MAX) {
      times.shift();
      values.shift();
    }
    setShown({ times: [...times], values: [...values] });
  }, [value]);
  return shown;
}

function bytesOf({ text, base64 }) {
  if (base64 === null) return new TextEncoder().encode(text);
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function textOf(value) {
  return value.text ?? new TextDecoder().decode(bytesOf(value));
}

function shown(value, form) {
  if (form === "hex") return hex(bytesOf(value));
  const text = textOf(value);
  if (form === "text") return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch (error) {
    return `Not JSON: ${error.message}`;
  }
}

/** As `hexdump -C` has it. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join(" ")
      .padEnd(48);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits} ${text}`);
  }
  return lines.join("\n") || "(empty)";
}
