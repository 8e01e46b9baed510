// The keyboard: `/` searches, `?` shows this list, `g` and a letter opens a page.
import { html, signal, useEffect, useRef } from "./view.js";
import { go } from "./route.js";

const isOpen = signal(false);

export function showKeys() {
  isOpen.value = true;
}

/** Listens for the whole page. `pages` have a `key`, a `path` and a `name`. */
export function listen(pages) {
  let wasG = false;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    if (isTyping) return;
    if (wasG) {
      wasG = false;
      const page = pages.find(({ key }) => key === event.key);
      if (page) go([page.path]);
      return;
    }
    if (event.key === "g") wasG = true;
    else if (event.key === "?") isOpen.value = true;
    else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    }
  });
}

export function Keys({ pages }) {
  return isOpen.value ? html`<${List} pages=${pages} />` : null;
}

function List({ pages }) {
  const dialog = useRef();
  useEffect(() => dialog.current.showModal(), []);
  const close = () => {
    isOpen.value = false;
  };
  const rows = [
    ["/", "Search on this page"],
    ["?", "This list"],
    ["Esc", "Close a dialog"],
  ];
  const opens = pages.map(({ key, name }) => [`g ${key}`, name]);
  const list = (items) =>
    html`<dl class="keys">${items.map(
      ([keys, text]) => html`<div>
    <dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${text}</dd></div>`,
    )}</dl>`;
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="keys">
    <h2 id="keys">Keyboard</h2>
    ${list(rows)}${list(opens)}
    <div class="buttons"><button type="button" onClick=${close}>Close</button></div>
  </dialog>`;
}
