// Invented figures of delivery: what arrived, incidents, lanes, figures over time, the demonstration.
import { ago, listOf } from "./base.mjs";

function delivery(world) {
  const isEmpty = world.state === "empty" && !world.demonstration;
  const published = isEmpty ? 0 : world.published;
  const lost = world.state === "red" ? 1 : 0;
  const byReason = world.state === "green" || isEmpty ? {} : { "queue-full": 214, "session-ended": 3 };
  const dropped = Object.values(byReason).reduce((a, b) => a + b, 0);
  const acknowledged = Math.max(0, published - lost - dropped - (isEmpty ? 0 : 4181));
  const none = { lost: 0, duplicated: 0, reordered: 0, altered: 0 };
  return {
    state: isEmpty ? "empty" : world.state,
    sentence: "",
    reasons: lost ? ["1 message was lost inside the broker", "214 messages found the queue of their session full"] : [],
    as_of: new Date().toISOString(),
    since: new Date(new Date().setHours(9, 0, 0, 0)).toISOString(),
    after_crash: false,
    published,
    unrouted: 12,
    expected: published,
    handed_to_network: isEmpty ? 0 : 4181,
    sent: acknowledged,
    acknowledged,
    processed: 0,
    delivered: acknowledged,
    waiting: 0,
    in_flight: 0,
    given_up: 0,
    dropped,
    dropped_by_reason: byReason,
    ...none,
    lost,
    unbalanced: 0,
    publishers: { verified: 0, unaudited: 0, ...none, injected: 0, forged: 0 },
    windows: { proven: 1176, faulty: lost, unproven: 2 },
    incidents: { red: lost, amber: 1, repaired: 0, ignored: 1, evicted: 0, missed: 0 },
    not_seen: [
      "QoS 0 counts as delivered once the kernel takes it: if the connection breaks after that, only the receiver knows.",
      "Messages that a publisher does not stamp are counted from the broker on: what is lost before it comes here is not seen.",
      "An acknowledgement says that the receiver has the message. Only one that reports `processed` says what it did with it.",
      "Counters begin with each start of the broker; incidents of earlier runs are kept.",
    ],
  };
}

export function snapshot(world) {
  const now = delivery(world);
  return {
    id: Date.now(),
    as_of: now.as_of,
    delivery: now,
    rates: {
      received_per_s: 1180 + Math.random() * 40,
      sent_per_s: 3520 + Math.random() * 80,
      received_bytes_per_s: 181_000,
      sent_bytes_per_s: 552_000,
    },
    node: {
      version: "0.1.0",
      uptime_s: 8000,
      clients: 1204,
      connections: 1210,
      cpu: 0.118,
      rss: 48_200_000,
      store_bytes: 1_290_000_000,
    },
    drops: { ...now.dropped_by_reason, expired: 0 },
    latency: { p50_ms: 0.21, p95_ms: 0.9, p99_ms: 2.4 },
  };
}

const INCIDENT = {
  state: "open",
  reason_code: null,
  received_at: null,
  publisher: null,
  subscriber: null,
  topic: null,
  qos: 1,
  lane: null,
  epoch: null,
  is_stamped: false,
  first: null,
  last: null,
  sent_again: 0,
  repaired_at: null,
  note: null,
  note_by: null,
};
const INCIDENTS = [
  {
    ...INCIDENT,
    id: 17,
    kind: "lost",
    severity: "red",
    hop: "publisher_to_broker",
    reason: "lost",
    words:
      "1 message of press-7 on plant/line1/press7/force, number 1204118 of lane 0f4b9736d6a423ad, was lost before the broker",
    count: 1,
    first_at: ago(64.211),
    last_at: ago(64.211),
    publisher: "press-7",
    topic: "plant/line1/press7/force",
    lane: "0f4b9736d6a423ad",
    epoch: 1795291445,
    is_stamped: true,
    first: 1_204_118,
    last: 1_204_118,
  },
  {
    ...INCIDENT,
    id: 16,
    kind: "dropped",
    severity: "red",
    hop: "broker_to_subscriber",
    reason: "queue-full",
    reason_code: 1,
    words: "214 messages of oven-2 on plant/line2/oven2/temperature were not delivered to phone-3: queue-full",
    count: 214,
    first_at: ago(1800),
    last_at: ago(1500),
    received_at: ago(1500.02),
    publisher: "oven-2",
    subscriber: "phone-3",
    topic: "plant/line2/oven2/temperature",
    lane: "a93c11d0b5e6f702",
    epoch: 1795291445,
    first: 88_101,
    last: 88_314,
  },
  {
    ...INCIDENT,
    id: 12,
    kind: "dropped",
    severity: "amber",
    state: "ignored",
    hop: "broker_to_subscriber",
    reason: "session-ended",
    reason_code: 4,
    words: "3 messages of oven-2 were not delivered to tablet-1: session-ended",
    count: 3,
    first_at: ago(5400),
    last_at: ago(5400),
    publisher: "oven-2",
    subscriber: "tablet-1",
    topic: "plant/line2/oven2/door",
    note: "The tablet was replaced.",
    note_by: "admin",
  },
];

function neighbour(number) {
  return Number.isInteger(number) && number > 0 ? { number, outcome: "arrived", incident: null } : null;
}

function series(query) {
  const from = Math.floor(new Date(query.get("from")) / 1000);
  const points = 150;
  const step = Math.max(1, Math.round((Date.now() / 1000 - from) / points));
  const times = Array.from({ length: points }, (_, i) => from + i * step);
  const shape = {
    received_per_s: 1180,
    sent_per_s: 3520,
    expected_per_s: 3521,
    delivered_per_s: 3520,
    received_bytes_per_s: 181_000,
    sent_bytes_per_s: 552_000,
    clients: 1204,
    latency_p50_ms: 0.21,
    latency_p95_ms: 0.9,
    latency_p99_ms: 2.4,
    dropped_per_s: 0.7,
    waiting: 14,
    cpu_ratio: 0.118,
    resident_bytes: 48e6,
    store_bytes: 1.29e9,
  };
  const of = (name) =>
    times.map((t, i) =>
      i < 8
        ? null
        : shape[name] * (1 + 0.12 * Math.sin(i / 17) + 0.04 * Math.sin(i * 1.7)) -
          (name.startsWith("delivered") && i > 120 && i < 124 ? 700 : 0),
    );
  const names = query.get("names").split(",");
  return {
    from: new Date(from * 1000).toISOString(),
    step_s: step,
    as_of: new Date().toISOString(),
    series: Object.fromEntries(names.map((name) => [name, { avg: of(name) }])),
  };
}

function progress(demonstration) {
  const sent = Math.floor((Date.now() - demonstration.from) / 20);
  const at = (time, delay) => (Date.now() - time > delay ? new Date(time + delay).toISOString() : null);
  const faults = demonstration.faults.map(({ kind, from, number }) => ({
    kind,
    asked_at: new Date(from).toISOString(),
    injected_at: at(from, 20),
    number,
    named_at: at(from, 300),
    named: kind === "drop" ? "lost" : kind,
    incident: null,
    repaired_at: at(from, 900),
  }));
  return {
    state: "running",
    started_at: new Date(demonstration.from).toISOString(),
    ends_at: ago(-600),
    topic: "unbroken/demonstration/plant",
    lane: "77b0c6f1d2a49e38",
    sent,
    received: sent,
    verified: sent,
    faults,
    error: null,
  };
}

function checkpoints(world) {
  return listOf(
    Array.from({ length: 120 }, (_, n) => {
      const state =
        n === 100 && world.state === "red"
          ? "faulty"
          : n === 40 || n === 41
            ? "unproven"
            : n === 119
              ? "open"
              : n === 12
                ? "unknown"
                : "proven";
      return {
        at: ago(120 - n),
        state,
        published: 1180,
        expected: 3521,
        delivered: 3500,
        dropped: state === "unproven" ? 21 : 0,
        faults: state === "faulty" ? 1 : 0,
        windows: { proven: 1, faulty: 0, unproven: 0 },
        incident: state === "faulty" ? 17 : null,
      };
    }),
  );
}

function incidents(world, id, more) {
  const all = world.state === "green" || world.state === "empty" ? [] : INCIDENTS;
  if (id === undefined) return listOf(all);
  const found = all.find((incident) => String(incident.id) === id);
  if (!found) return undefined;
  const detail = {
    incident: found,
    previous: neighbour(found.first - 1),
    next: neighbour(found.last + 1),
    lane: null,
    is_repairable: found.is_stamped,
    not_repairable_because: found.is_stamped
      ? null
      : "its publisher does not stamp its messages, so it cannot be asked to send one again",
    as_of: new Date().toISOString(),
  };
  return more === "proof" ? { unbroken_incident: 1, evidence: detail } : detail;
}

/** By the first segment of their path. */
export const answers = {
  delivery: ({ id, world }) => (id === "checkpoints" ? checkpoints(world) : delivery(world)),
  lanes: ({ world }) =>
    listOf(
      ["press-7", "oven-2", "conveyor-1"].map((publisher, n) => ({
        id: ["0f4b9736d6a423ad", "a93c11d0b5e6f702", "77b0c6f1d2a49e38"][n],
        publisher,
        user: "plant",
        epoch: 1795291445,
        is_stamped: n !== 1,
        next: 1_204_331 - n * 300_000,
        scope_start: 0,
        state: n === 0 && world.state === "red" ? "faulty" : n === 1 ? "counted" : "proven",
        checkpoint: n === 1 ? null : { size: 1024, at: ago(2 + n) },
        windows: { proven: 1176 - n * 293, faulty: 0, unproven: 0 },
        lost: 0,
        open_ms: null,
        time_to_proof_ms: n === 1 ? null : 42 + n,
      })),
    ),
  series: ({ query }) => series(query),
  demonstration: ({ world }) => (world.demonstration ? progress(world.demonstration) : undefined),
  incidents: ({ world, id, more }) => incidents(world, id, more),
};
