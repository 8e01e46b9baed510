// The address: `#/topics/plant?search=pump`. The address holds all state that a link should keep.
import { signal } from "./view.js";

/** The token of a one-time link, until it is used. It leaves the address at once. */
export const linkToken = signal(takeLinkToken());
export const route = signal(parse());

addEventListener("hashchange", () => {
  route.value = parse();
});

function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export function href(path, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(words).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(path, query) {
  location.hash = href(path, query).slice(1);
}

/** Changes the query and stays; typing into a search makes no steps in the history. */
export function setQuery(changes, { step = false } = {}) {
  const { path, query } = route.value;
  const target = href(path, { ...query, ...changes });
  if (target === location.hash) return;
  if (step) location.hash = target.slice(1);
  else {
    history.replaceState(null, "", target);
    route.value = parse();
  }
}

function takeLinkToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("link");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}
