// Numbers of received messages, checked: those of this page, and stamps of publishers that take part in the audit
// (docs/audit.md, section 3).
//
// This shows gaps, repetitions and, for SHA-256 stamps, altered payloads while one watches; the judgement of whole
// lanes is the broker's.

/** The user property in which this page numbers what it publishes. */
export const NUMBER = "number";
const SHA_256 = 3;

export class Numbers {
  #next = new Map();

  /** What is to be said of a message: `{text, tone, key, number}`, or null if it has no number. */
  async judge({ topic, payload, properties, retain }) {
    const stamp = properties.find(([name]) => name === "audit");
    const own = properties.find(([name]) => name === NUMBER);
    const found = stamp ? readStamp(stamp[1]) : own && readOwn(own[1]);
    if (!found) return null;
    if (found.algorithm === SHA_256 && !(await isIntact(found, topic, payload))) {
      return { text: `${found.number} is altered`, tone: "bad" };
    }
    // A retained message is an old one: the next live one follows others.
    return retain ? { text: `${found.number}, retained`, tone: "idle" } : this.#follow(found);
  }

  #follow({ key, number, algorithm }) {
    const expected = this.#next.get(key);
    if (expected === undefined || number >= expected) this.#next.set(key, number + 1);
    if (expected === undefined || number === expected) {
      return { text: `${number} ${algorithm === SHA_256 ? "verified" : "in order"}`, tone: "ok" };
    }
    if (number < expected) return { text: `${number} again or late`, tone: "warn" };
    const last = number - 1;
    return {
      text: `${number}: ${expected === last ? `${last} is` : `${expected} to ${last} are`} missing`,
      tone: "bad",
    };
  }
}

function readOwn(text) {
  const [key, number] = text.split("/");
  return Number.isSafeInteger(Number(number)) ? { key, number: Number(number) } : null;
}

function readStamp(text) {
  let bytes;
  try {
    const base64 = text.replace(/-/g, "+").replace(/_/g, "/");
    bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
  if (bytes.length < 40 || bytes[0] >> 4 !== 1) return null;
  const view = new DataView(bytes.buffer);
  return {
    algorithm: bytes[0] & 15,
    key: [...bytes.subarray(4, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join(""),
    number: Number(view.getBigUint64(16)),
    covered: bytes.subarray(4, 24),
    digest: bytes.subarray(24),
  };
}

/** Browsers hash only for pages that came over TLS or from this machine; without, nothing is said against it. */
async function isIntact({ covered, digest }, topic, payload) {
  if (!globalThis.crypto?.subtle) return true;
  const name = new TextEncoder().encode(topic);
  const data = new Uint8Array(1 + covered.length + 4 + name.length + payload.length);
  data.set(covered, 1);
  new DataView(data.buffer).setUint32(1 + covered.length, name.length);
  data.set(name, 5 + covered.length);
  data.set(payload, 5 + covered.length + name.length);
  const leaf = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return leaf.every((byte, index) => byte === digest[index]);
}
