// Parts that pages are made of.
import { html, useEffect, useId, useRef, useState } from "./view.js";
import { Icon } from "./icons.js";
import { TERMS } from "./terms.js";
import { route, setQuery } from "./route.js";
import * as format from "./format.js";

/** A figure or a word with its definition, shown on hover and on focus. */
export function Term({ of, children }) {
  const id = useId();
  const text = TERMS[of];
  if (!text) return html`<span>${children ?? of}</span>`;
  return html`<span class="term">
    <span class="term-word" tabindex="0" aria-describedby=${id}>${children ?? of}</span>
    <span role="tooltip" id=${id} class="term-text">${text}</span>
  </span>`;
}

/** A titled part of a page with the time that its figures are of. */
export function Panel({ title, of, answer, actions, children, kind = "" }) {
  const id = useId();
  const isStale = answer?.isStale;
  return html`<section class="panel ${kind} ${isStale ? "is-stale" : ""}" aria-labelledby=${id}>
    <header class="panel-head">
      <h2 id=${id}>${of ? html`<${Term} of=${of}>${title}<//>` : title}</h2>
      <div class="panel-side">${actions}${answer && html`<${AsOf} answer=${answer} />`}</div>
    </header>
    ${answer?.error && html`<${Failure} error=${answer.error} />`}
    ${answer?.isLoading ? html`<p class="quiet">Loading …</p>` : children}
  </section>`;
}

export function AsOf({ answer }) {
  if (!answer.asOf) return null;
  const word = answer.isStale ? "stale, as of" : "as of";
  return html`<span class="as-of ${answer.isStale ? "tone-warn" : ""}">${word} <time datetime=${answer.asOf}>
    ${format.time(answer.asOf)}</time></span>`;
}

export function Failure({ error }) {
  return html`<p class="failure" role="alert"><${Icon} name="warn" /><span>${error.message}</span></p>`;
}

/** A state in words, with an icon and a colour. */
export function State({ tone, children }) {
  const icon = { ok: "ok", warn: "warn", bad: "bad" }[tone] ?? "idle";
  return html`<span class="state tone-${tone}"><${Icon} name=${icon} /><span>${children}</span></span>`;
}

/** Nothing to show, and why or what to do. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

/**
 * A table. Columns have `head`, `cell(row)`, and may be `of` a term, `isNumber`, `isWide` (left out on small screens)
 * and `isMain` (takes the space that is left).
 */
export function Table({ label, columns, rows, keyOf, selected }) {
  const style = (column) =>
    [column.isNumber && "is-number", column.isWide && "is-wide", column.isMain && "is-main"].filter(Boolean).join(" ");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${columns.map(
        (column) => html`<th scope="col" class=${style(column)}>
        ${column.of ? html`<${Term} of=${column.of}>${column.head}<//>` : column.head}
      </th>`,
      )}</tr></thead>
      <tbody>${rows.map(
        (row) => html`<tr key=${keyOf(row)} class=${selected === keyOf(row) ? "is-selected" : ""}>
        ${columns.map((column) => html`<td class=${style(column)}>${column.cell(row)}</td>`)}
      </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

/** Names and values. */
export function Facts({ items }) {
  const known = items.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return html`<dl class="facts">${known.map(
    ([name, value, of]) => html`<div>
    <dt>${of ? html`<${Term} of=${of}>${name}<//>` : name}</dt><dd>${value}</dd>
  </div>`,
  )}</dl>`;
}

/** Steps through a list whose pages are found by cursors. The address has the cursor: the browser goes back. */
export function Pager({ answer }) {
  const isFirst = !route.value.query.cursor;
  if (isFirst && !answer.next) return null;
  const show = (cursor) => () => setQuery({ cursor }, { step: true });
  return html`<nav class="pager" aria-label="Pages">
    <span class="quiet">${format.plural(answer.items.length, "row")} on this page</span>
    <button type="button" disabled=${isFirst} onClick=${show("")}>First page</button>
    <button type="button" disabled=${!answer.next} onClick=${show(answer.next)}>Next page</button>
  </nav>`;
}

/** In place of a thing that is not there, or not yet. */
export function Waiting({ answer }) {
  if (answer.error) return html`<${Failure} error=${answer.error} />`;
  return html`<p class="quiet" role="status">Loading …</p>`;
}

export function Copy({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await copyText(typeof text === "function" ? await text() : text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button type="button" class="with-icon" onClick=${copy}>
    <${Icon} name=${isDone ? "ok" : "copy"} /><span aria-live="polite">${isDone ? "Copied" : label}</span>
  </button>`;
}

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Over plain HTTP from another machine there is no clipboard; a selection can still be copied.
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}

/** A command for a terminal, to copy. */
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} /></div>`;
}

/** A field with its label. `hint` says what is expected. */
export function Field({ label, hint, children, kind = "", ...input }) {
  const id = useId();
  const own = { id, "aria-describedby": hint ? `${id}-hint` : undefined, ...input };
  return html`<div class="field ${kind}">
    <label for=${id}>${label}</label>
    ${children ? children(own) : html`<input ...${own} />`}
    ${hint && html`<span class="hint" id="${id}-hint">${hint}</span>`}
  </div>`;
}

export function Choice({ label, value, options, onChange, kind = "" }) {
  return html`<${Field} label=${label} kind=${kind}>${(own) => html`<select ...${own} value=${value}
    onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}
  </select>`}<//>`;
}

/** One of a few, side by side. */
export function Segments({ label, value, options, onChange }) {
  return html`<div class="segments" role="group" aria-label=${label}>
    ${options.map(
      ([key, text]) => html`<button type="button" aria-pressed=${key === value}
      onClick=${() => onChange(key)}>${text}</button>`,
    )}
  </div>`;
}

/** The search of a page: `/` puts the cursor here. Waits until typing pauses. */
export function Search({ label, value, onChange, placeholder }) {
  const [text, setText] = useState(value ?? "");
  const timer = useRef();
  useEffect(() => setText(value ?? ""), [value]);
  const change = (event) => {
    const wanted = event.target.value;
    setText(wanted);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(wanted), 200);
  };
  return html`<${Field} kind="search" label=${label} type="search" value=${text} onInput=${change}
    placeholder=${placeholder} data-search autocomplete="off" spellcheck=${false} />`;
}

/** The title of a page, with what it is for. */
export function Title({ children, lead, actions }) {
  return html`<header class="title">
    <div><h1 tabindex="-1">${children}</h1>${lead && html`<p class="lead">${lead}</p>`}</div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </header>`;
}

/** Views of one page. */
export function Tabs({ label, value, options, hrefOf }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${options.map(
      ([key, text]) => html`<a href=${hrefOf(key)} aria-current=${key === value ? "page" : undefined}>${text}</a>`,
    )}
  </nav>`;
}
