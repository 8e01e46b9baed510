// The one stream of the page: snapshots, at most once a second.
import { effect, signal } from "./view.js";
import { address, identify, me } from "./api.js";

export const live = {
  snapshot: signal(null),
  isConnected: signal(false),
  /** The newest incident that is new or not as before. */
  incident: signal(null),
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
    live.isConnected.value = true;
    live.snapshot.value = JSON.parse(event.data);
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
}
