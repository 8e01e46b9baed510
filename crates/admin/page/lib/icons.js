// Icons of 16 by 16 units, drawn with the colour of the text. They repeat a word beside them, so they are hidden from
// screen readers.
import { html } from "./view.js";

const PATHS = {
  ok: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.1 2.1L11.2 6",
  warn: "M8 2 1.6 13.5h12.8zM8 6.5v3.2M8 11.4v.6",
  bad: "M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8H5.3l-3.8-3.8V5.3zM8 4.8v4M8 10.8v.6",
  idle: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8h6",
  delivery: "M1.8 8.3l3.4 3.4L12 4.6M8.6 11.4l.4.3 5.4-6.2",
  live: "M1.5 9h3l2-5.5 3 9 2-3.5h3",
  topics: "M3 2v9.5h3M3 5.5h3M8 3.5h6v4H8zM8 9.5h6v4H8z",
  clients: "M2 3h12v8H2zM6 13.5h4M8 11v2.5",
  sessions: "M2.5 4h11M2.5 8h11M2.5 12h7",
  subscriptions: "M2 4h4v8H2zM6 8h4M10 4h4v3h-4zM10 9h4v3h-4zM8 5.5v5M8 5.5h2M8 10.5h2",
  access: "M4 7V5a4 4 0 0 1 8 0v2M3 7h10v7H3zM8 9.8v1.6",
  try: "M2 2.8h12v8H8L5 14v-3.2H2z",
  logs: "M3 2h10v12H3zM5.5 5h5M5.5 8h5M5.5 11h3",
  settings: "M2 4.5h6M11 4.5h3M2 11.5h3M8 11.5h6M9.5 3v3M6.5 10v3",
  menu: "M2 4h12M2 8h12M2 12h12",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  next: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  theme: "M8 1.5a6.5 6.5 0 1 0 0 13zM8 1.5a6.5 6.5 0 0 1 0 13",
  help: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M6 6.2a2 2 0 1 1 2.8 1.9c-.5.2-.8.6-.8 1.1M8 11.2v.5",
  out: "M6 2H2.5v12H6M7 8h7M11 5l3 3-3 3",
};

export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
