// A small MQTT 5 client over WebSocket: publish and subscribe with QoS 0 and 1.
//
// A packet may come in pieces, and a frame may have several. Everything that comes in is bounded by `RECEIVED_MAX`;
// a packet that does not fit, or makes no sense, ends the connection with a reason.

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9, UNSUBSCRIBE = 10, UNSUBACK = 11;
const PINGREQ = 12, PINGRESP = 13, DISCONNECT = 14;
const RECEIVED_MAX = 1 << 20;
const KEEP_ALIVE_S = 30;
const ANSWER_MS = 10_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Properties whose values are not user properties: their types, to step over them. */
const TYPES = {
  1: "byte", 2: "four", 3: "text", 8: "text", 9: "text", 11: "varying", 17: "four", 18: "text", 19: "two", 21: "text",
  22: "text", 23: "byte", 24: "four", 25: "byte", 26: "text", 28: "text", 31: "text", 33: "two", 34: "two", 35: "two",
  36: "byte", 37: "byte", 38: "pair", 39: "four", 40: "byte", 41: "byte", 42: "byte",
};

export class Client {
  #socket;
  #bytes = new Uint8Array(0);
  #waiting = new Map();
  #nextId = 1;
  #timer;

  /** Called with `{topic, payload, qos, retain, properties}`. */
  onMessage = () => {};
  /** Called once, with the reason if it was not asked for. */
  onEnd = () => {};

  /** Resolves when the broker accepts the connection. */
  connect(url, { clientId, user, password }) {
    return new Promise((resolve, reject) => {
      this.#socket = new WebSocket(url, "mqtt");
      this.#socket.binaryType = "arraybuffer";
      this.#expect("connack", resolve, reject);
      this.#socket.onopen = () => this.#send(connectPacket(clientId, user, password));
      this.#socket.onmessage = ({ data }) => this.#receive(new Uint8Array(data));
      this.#socket.onclose = () => this.#end("The connection ended.");
    });
  }

  subscribe(filter, qos) {
    const id = this.#id();
    const body = [...two(id), 0, ...text(filter), qos];
    return this.#ask(`suback ${id}`, packet(SUBSCRIBE, 2, body));
  }

  unsubscribe(filter) {
    const id = this.#id();
    return this.#ask(`unsuback ${id}`, packet(UNSUBSCRIBE, 2, [...two(id), 0, ...text(filter)]));
  }

  /** With QoS 1, resolves when the broker has acknowledged it. */
  publish(topic, payload, { qos = 0, retain = false, properties = [] } = {}) {
    const pairs = properties.flatMap(([name, value]) => [38, ...text(name), ...text(value)]);
    const id = qos > 0 ? this.#id() : 0;
    const head = [...text(topic), ...(qos > 0 ? two(id) : []), ...varying(pairs.length), ...pairs];
    const bytes = packet(PUBLISH, (qos << 1) | Number(retain), [...head, ...encoder.encode(payload)]);
    if (qos === 0) return this.#send(bytes);
    return this.#ask(`puback ${id}`, bytes);
  }

  disconnect() {
    this.#send(packet(DISCONNECT, 0, []));
    this.#end(null);
  }

  #id() {
    const id = this.#nextId;
    this.#nextId = (id % 65_535) + 1;
    return id;
  }

  #send(bytes) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(bytes);
  }

  #ask(key, bytes) {
    return new Promise((resolve, reject) => {
      this.#expect(key, resolve, reject);
      this.#send(bytes);
    });
  }

  #expect(key, resolve, reject) {
    const timer = setTimeout(() => this.#answer(key, null, "The broker did not answer in time."), ANSWER_MS);
    this.#waiting.set(key, { resolve, reject, timer });
  }

  #answer(key, value, error) {
    const waiting = this.#waiting.get(key);
    if (!waiting) return;
    this.#waiting.delete(key);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(new Error(error));
    else waiting.resolve(value);
  }

  #end(reason) {
    if (!this.#socket) return;
    const socket = this.#socket;
    this.#socket = { readyState: WebSocket.CLOSED };
    clearInterval(this.#timer);
    socket.onclose = null;
    socket.onmessage = null;
    socket.close?.();
    for (const key of [...this.#waiting.keys()]) this.#answer(key, null, reason ?? "Disconnected.");
    if (!this.#hasEnded) this.onEnd(reason);
    this.#hasEnded = true;
  }

  #hasEnded = false;

  #receive(piece) {
    const bytes = new Uint8Array(this.#bytes.length + piece.length);
    bytes.set(this.#bytes);
    bytes.set(piece, this.#bytes.length);
    this.#bytes = bytes;
    try {
      for (let one = this.#next(); one; one = this.#next()) this.#handle(one);
    } catch (error) {
      this.#end(error.message);
    }
  }

  /** The next whole packet, if it is there. */
  #next() {
    const bytes = this.#bytes;
    const length = new Reader(bytes.subarray(1)).tryVarying();
    if (length === null) return null;
    if (length.value > RECEIVED_MAX) throw new Error("The broker sent a packet that is too large for this page.");
    const start = 1 + length.size;
    if (bytes.length < start + length.value) return null;
    this.#bytes = bytes.slice(start + length.value);
    return { kind: bytes[0] >> 4, flags: bytes[0] & 15, body: new Reader(bytes.subarray(start, start + length.value)) };
  }

  #handle({ kind, flags, body }) {
    switch (kind) {
      case CONNACK: return this.#connected(body);
      case PUBLISH: return this.#message(flags, body);
      case PUBACK: {
        const id = body.two();
        const reason = body.isEmpty() ? 0 : body.byte();
        return this.#answer(`puback ${id}`, reason, reason >= 0x80 ? refusal("publish", reason) : null);
      }
      case SUBACK: case UNSUBACK: {
        const id = body.two();
        body.properties();
        const reason = body.byte();
        const name = kind === SUBACK ? "suback" : "unsuback";
        return this.#answer(`${name} ${id}`, reason, reason >= 0x80 ? refusal("subscribe", reason) : null);
      }
      case PINGRESP: return undefined;
      case DISCONNECT: return this.#end(`The broker ended the connection (${code(body.isEmpty() ? 0 : body.byte())}).`);
      default: throw new Error(`The broker sent a packet of kind ${kind}, which does not belong here.`);
    }
  }

  #connected(body) {
    const session = body.byte();
    const reason = body.byte();
    if (reason !== 0) {
      this.#answer("connack", null, refusal("connect", reason));
      return this.#end(null);
    }
    this.#timer = setInterval(() => this.#send(packet(PINGREQ, 0, [])), KEEP_ALIVE_S * 1000);
    return this.#answer("connack", { session });
  }

  #message(flags, body) {
    const qos = (flags >> 1) & 3;
    const topic = body.text();
    const id = qos > 0 ? body.two() : null;
    const properties = body.properties();
    this.onMessage({ topic, payload: body.rest(), qos, retain: Boolean(flags & 1), properties });
    if (qos === 1) this.#send(packet(PUBACK, 0, two(id)));
  }
}

function connectPacket(clientId, user, password) {
  const flags = 2 | (password ? 0x40 : 0) | (user ? 0x80 : 0);
  // The session ends with the connection; packets are at most as large as this page takes.
  const properties = [17, 0, 0, 0, 0, 39, ...four(RECEIVED_MAX)];
  const credentials = [...(user ? text(user) : []), ...(password ? text(password) : [])];
  const head = [...text("MQTT"), 5, flags, ...two(KEEP_ALIVE_S * 2), ...varying(properties.length), ...properties];
  return packet(CONNECT, 0, [...head, ...text(clientId), ...credentials]);
}

function packet(kind, flags, body) {
  return Uint8Array.from([(kind << 4) | flags, ...varying(body.length), ...body]);
}

function two(value) {
  return [value >> 8, value & 255];
}

function four(value) {
  return [(value >>> 24) & 255, (value >> 16) & 255, (value >> 8) & 255, value & 255];
}

function text(value) {
  const bytes = encoder.encode(value);
  return [...two(bytes.length), ...bytes];
}

function varying(value) {
  const bytes = [];
  do {
    const rest = value >> 7;
    bytes.push((value & 127) | (rest > 0 ? 128 : 0));
    value = rest;
  } while (value > 0);
  return bytes;
}

function code(reason) {
  return `0x${reason.toString(16).padStart(2, "0")}`;
}

const REASONS = {
  0x86: "user name or password is wrong", 0x87: "not authorized", 0x8a: "banned", 0x90: "the topic name is invalid",
  0x8f: "the topic filter is invalid", 0x97: "a quota is exceeded", 0x85: "the client id is not valid",
};

function refusal(what, reason) {
  return `The broker refused to ${what}: ${REASONS[reason] ?? "reason"} (${code(reason)}).`;
}

/** Reads a packet from its beginning; what is missing is an error. */
class Reader {
  #bytes;
  #at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  isEmpty() {
    return this.#at >= this.#bytes.length;
  }

  byte() {
    return this.#take(1)[0];
  }

  two() {
    const [high, low] = this.#take(2);
    return (high << 8) | low;
  }

  text() {
    return decoder.decode(this.#take(this.two()));
  }

  rest() {
    return this.#take(this.#bytes.length - this.#at).slice();
  }

  /** A number of up to 4 bytes, or null if it is not whole yet. */
  tryVarying() {
    let value = 0;
    for (let size = 1; size <= 4; size += 1) {
      if (this.isEmpty()) return null;
      const byte = this.byte();
      value += (byte & 127) * 128 ** (size - 1);
      if (byte < 128) return { value, size };
    }
    throw new Error("The broker sent a packet with an invalid length.");
  }

  /** The user properties; others are stepped over. */
  properties() {
    const length = this.tryVarying();
    const inner = new Reader(this.#take(length?.value ?? 0));
    const pairs = [];
    while (!inner.isEmpty()) {
      const kind = inner.byte();
      const type = TYPES[kind];
      if (type === "pair") pairs.push([inner.text(), inner.text()]);
      else if (type === "text") inner.text();
      else if (type === "varying") inner.tryVarying();
      else if (type) inner.#take({ byte: 1, two: 2, four: 4 }[type]);
      else throw new Error(`The broker sent a property ${kind} that does not exist.`);
    }
    return pairs;
  }

  #take(count) {
    if (this.#at + count > this.#bytes.length) throw new Error("The broker sent a packet that is too short.");
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }
}
