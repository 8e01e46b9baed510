// The one stream of the page: snapshots at most once a second, and incidents.
import { effect, signal } from "./view.js";
import { address, identify, me } from "./api.js";

/** How many snapshots are remembered: ten minutes of them. */
const REMEMBERED = 600;

export const live = {
  snapshot: signal(null),
  /** Newest last. */
  past: [],
  /** The newest incident that was reported while the page is open. */
  incident: signal(null),
  isConnected: signal(false),
  error: signal(""),
};

let source = null;

effect(() => {
  if (me.value) open();
  else close();
});

function open() {
  if (source) return;
  source = new EventSource(address("/live"));
  source.addEventListener("open", () => {
    live.isConnected.value = true;
    live.error.value = "";
  });
  source.addEventListener("snapshot", (event) => {
    const snapshot = JSON.parse(event.data);
    live.past.push(snapshot);
    if (live.past.length > REMEMBERED) live.past.shift();
    live.isConnected.value = true;
    live.snapshot.value = snapshot;
  });
  source.addEventListener("incident", (event) => {
    live.incident.value = JSON.parse(event.data);
  });
  source.addEventListener("error", () => {
    live.isConnected.value = false;
    if (source?.readyState !== EventSource.CLOSED) return; // the browser connects again
    source = null;
    live.error.value = "The live stream was refused. Figures are not updated.";
    setTimeout(retry, 5000);
  });
}

async function retry() {
  await identify();
  if (me.value) open();
}

function close() {
  source?.close();
  source = null;
  live.isConnected.value = false;
  live.snapshot.value = null;
  live.past.length = 0;
}
