// One definition for each number that the page shows.
export const TERMS = {
  published: "Messages accepted from clients and numbered, since the start of the broker.",
  expected: "Deliveries that routing decided on: one for each receiving session, one for a shared group.",
  acknowledged: "QoS 1 and 2: the receiver sent PUBACK or PUBREC, so it has the message.",
  processed: "The receiver reported that its work with the message is done.",
  handed: "QoS 0: given to the kernel for the receiver's connection. Nothing more is known about these.",
  waiting: "Accepted and not sent yet: in a queue, or the receiver is away.",
  "given up": "Sent, and never to be acknowledged, because the session ended: whether they arrived is not known.",
  before: "Faults between publishers that stamp their messages and the broker.",
  "in flight": "Sent with QoS 1 or 2 and not acknowledged yet.",
  queued: "Messages that wait for this session.",
  dropped: "Not delivered on purpose. Each has a named reason, such as a full queue.",
  lost: "Fell out of the broker without a reason: a fault of the broker. Should always be 0.",
  duplicated: "Left the broker twice on one connection: a fault of the broker.",
  reordered: "Left the broker after a later message of the same lane: a fault of the broker.",
  altered: "The hash of the message changed inside the broker: a fault of the broker or of the machine.",
  unrouted: "Messages without any subscriber.",
  since: "When counting began: the start of this run of the broker.",
  lane: "The numbered messages of one publisher. Numbers have no gaps.",
  "lane state":
    "Counted: the broker numbers it, and its accounts balance. Proven: a checkpoint of its publisher covers it. " +
    "Open: messages wait for a checkpoint. Faulty: messages are lost.",
  epoch: "A part of a lane with one numbering from 0.",
  checkpoint: "A statement of how many messages a lane has, with the root of their hash tree.",
  cell:
    "One second with traffic. Proven: every delivery expected by then was made. Open: some were under way. " +
    "Unproven: messages were dropped by name. Faulty: a fault was named.",
  window: "1,024 messages of a lane, or 1,024 deliveries to a session: the unit of judgement.",
  proof:
    "How long messages waited for the checkpoint that proves them, at most. " +
    "Only lanes whose publisher stamps its messages have checkpoints.",
  received: "PUBLISH packets read from clients, each second.",
  "sent rate": "PUBLISH packets written to clients, each second.",
  clients: "Clients that are connected now.",
  latency:
    "From reading a PUBLISH until its delivery was written. " +
    "Half of the messages (p50), or 99 of 100 (p99), took less.",
  cpu: "CPU time of the process, in percent of one core.",
  rss: "Memory that the process occupies (resident set).",
  store: "Bytes of the data directory.",
  retained: "The last message of a topic that was published to be kept for later subscribers.",
  subscriptions: "Topic filters that sessions have subscribed to.",
  session: "What the broker keeps for a client id: subscriptions and undelivered messages, also while it is away.",
  expires: "How long the session is kept after its client has left.",
  origin: "Where the value comes from: a line of a file, the environment, a flag, or the default.",
  "bytes in": "Bytes of MQTT packets received and sent, each second.",
};
