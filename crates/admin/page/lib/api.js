// The API: requests, and the caller.
//
// All addresses are relative to the page, which a proxy may serve below another path.
import { signal } from "./view.js";

/** The answer of /me; null before that, and `false` without a session. */
export const me = signal(null);
/** Why the sign-in page is shown, if there is a reason to give. */
export const ended = signal("");

const RANKS = { viewer: 0, operator: 1, admin: 2 };

/** Whether the caller may do what needs this role. */
export function may(role) {
  return Boolean(me.value) && RANKS[me.value.role] >= RANKS[role];
}

/** A failed request, with the words of the broker. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function address(path, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(words).toString();
  return new URL(`api/v1${path}${text ? `?${text}` : ""}`, document.baseURI);
}

/** A path of these segments, each encoded as one. */
export function pathOf(...segments) {
  return segments.map((segment) => `/${encodeURIComponent(segment)}`).join("");
}

export function get(path, { query, signal: aborted } = {}) {
  return ask("GET", path, { query, aborted });
}

export function send(method, path, body, query) {
  return ask(method, path, { body, query });
}

async function ask(method, path, { body, query, aborted, csrf = me.value?.csrf }) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: aborted,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The broker does not answer. It may have stopped, or the network is interrupted.");
  }
  const answer = await read(response);
  if (response.ok) return answer;
  if (response.status === 401 && me.value) {
    ended.value = "Your session has ended. Sign in again to go on.";
    me.value = false;
  }
  throw new Problem(response.status, answer?.detail ?? `${method} ${path} was answered with ${response.status}`);
}

async function read(response) {
  const text = await response.text();
  if (!text || !/json/.test(response.headers.get("content-type") ?? "")) return text || null;
  return JSON.parse(text);
}

/** Asks for the caller. */
export async function identify() {
  try {
    me.value = await get("/me");
  } catch (problem) {
    if (problem.status !== 401) ended.value = problem.message;
    me.value = false;
  }
}

/** Everything that asks ends before the session does. */
export async function signOut() {
  const { csrf } = me.value;
  me.value = null;
  ended.value = "";
  try {
    if (csrf) await ask("POST", "/sign-out", { csrf });
  } finally {
    me.value = false;
  }
}
