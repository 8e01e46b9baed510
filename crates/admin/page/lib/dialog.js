// Questions before a change, and short notices after it.
import { html, signal, useEffect, useRef, useState } from "./view.js";
import { Failure, Field } from "./parts.js";

const question = signal(null);
const notice = signal(null);

/**
 * Asks before something is done. `fields` are inputs with a `name`; `run(values)` does it, and its error stays in the
 * dialog, where it can be corrected.
 */
export function ask({ title, text, button, isDanger = false, fields = [], run }) {
  question.value = { title, text, button, isDanger, fields, run };
}

export function notify(text) {
  notice.value = { text, at: Date.now() };
}

/** Does something without a question, and says how it went. */
export async function attempt(run, done) {
  try {
    const result = await run();
    if (done) notify(done);
    return result;
  } catch (error) {
    notify(error.message);
    return undefined;
  }
}

export function Dialogs() {
  return html`${question.value && html`<${Question} key=${question.value.title} ...${question.value} />`}<${Notice} />`;
}

function Question({ title, text, button, isDanger, fields, run }) {
  const dialog = useRef();
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const close = () => {
    question.value = null;
  };
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await run(Object.fromEntries(new FormData(event.target)));
      close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="question">
    <form onSubmit=${submit}>
      <h2 id="question">${title}</h2>
      ${text && html`<p>${text}</p>`}
      ${fields.map((field) => html`<${Input} ...${field} />`)}
      ${error && html`<${Failure} error=${error} />`}
      <div class="buttons">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class=${isDanger ? "danger" : "primary"} disabled=${isBusy}>${button}</button>
      </div>
    </form>
  </dialog>`;
}

function Input({ options, ...field }) {
  if (!options) return html`<${Field} ...${field} />`;
  return html`<${Field} label=${field.label} hint=${field.hint}>${(own) => html`<select ...${own} name=${field.name}>
    ${options.map((option) => html`<option>${option}</option>`)}
  </select>`}<//>`;
}

function Notice() {
  const shown = notice.value;
  useEffect(() => {
    const timer = setTimeout(() => {
      notice.value = null;
    }, 6000);
    return () => clearTimeout(timer);
  }, [shown]);
  return html`<div class="notice-place" role="status" aria-live="polite">
    ${shown && html`<p class="notice">${shown.text}</p>`}
  </div>`;
}
