// Try it: a client in the browser that publishes and subscribes, and checks the numbers of what it gets.
import { html, useEffect, useRef, useState } from "../lib/view.js";
import { usePage } from "../lib/data.js";
import { Client } from "../lib/mqtt.js";
import { NUMBER, Numbers } from "../lib/stamps.js";
import { Command, Empty, Failure, Field, Panel, State, Title, Waiting } from "../lib/parts.js";
import * as format from "../lib/format.js";

const SHOWN_MAX = 200;

export default function TryIt() {
  const listeners = usePage("/listeners");
  const found = listeners.items.find(isWebSocket);
  return html`<${Title} lead="A client in this browser, over the broker's WebSocket listener.">Try it<//>
    ${
      listeners.isLoading
        ? html`<${Waiting} answer=${listeners} />`
        : html`<${Bench} listener=${found} error=${listeners.error} />`
    }`;
}

function isWebSocket({ protocol }) {
  return protocol === "ws" || protocol === "wss";
}

function urlOf(listener) {
  if (!listener) return "";
  const port = listener.address.split(":").pop();
  return `${listener.protocol}://${location.hostname}:${port}/mqtt`;
}

function Bench({ listener, error }) {
  const client = useRef(null);
  const numbers = useRef(new Numbers());
  const [isConnected, setConnected] = useState(false);
  const [problem, setProblem] = useState(null);
  const [messages, setMessages] = useState([]);
  const [counts, setCounts] = useState({ sent: 0, acknowledged: 0, received: 0, wrong: 0 });
  useEffect(() => () => client.current?.disconnect(), []);

  const count = (changes) =>
    setCounts((old) => {
      const sum = { ...old };
      for (const [name, value] of Object.entries(changes)) sum[name] += value;
      return sum;
    });
  const receive = async (message) => {
    const verdict = await numbers.current.judge(message);
    count({ received: 1, wrong: verdict && verdict.tone !== "ok" && verdict.tone !== "idle" ? 1 : 0 });
    setMessages((old) =>
      [{ ...message, verdict, at: new Date().toISOString(), key: Symbol("message") }, ...old].slice(0, SHOWN_MAX),
    );
  };
  const connect = async (event) => {
    event.preventDefault();
    const { url, clientId, user, password } = Object.fromEntries(new FormData(event.target));
    setProblem(null);
    const made = new Client();
    made.onMessage = receive;
    made.onEnd = (reason) => {
      setConnected(false);
      client.current = null;
      if (reason) setProblem(new Error(reason));
    };
    try {
      await made.connect(url, { clientId, user, password });
      client.current = made;
      setConnected(true);
    } catch (refused) {
      setProblem(refused);
    }
  };
  const run = async (work) => {
    setProblem(null);
    try {
      await work(client.current);
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`${problem && html`<${Failure} error=${problem} />`}
    <div class="grid">
      <${Connection} listener=${listener} error=${error} isConnected=${isConnected} connect=${connect}
        disconnect=${() => client.current.disconnect()} />
      <${Publish} isConnected=${isConnected} run=${run} count=${count} />
      <${Received} isConnected=${isConnected} run=${run} messages=${messages} counts=${counts}
        clear=${() => setMessages([])} />
    </div>`;
}

function Connection({ listener, error, isConnected, connect, disconnect }) {
  const [id] = useState(() => `page-${Math.random().toString(36).slice(2, 8)}`);
  return html`<${Panel} title="Connection">
    ${error && html`<${Failure} error=${error} />`}
    ${
      !listener &&
      !error &&
      html`<div class="stack no-listener"><p>The broker has no WebSocket listener. Add one, and reload the
      configuration:</p><${Command} text=${'[[listeners]]\nprotocol = "ws"\nport = 8083'} /></div>`
    }
    <form class="form" onSubmit=${connect}>
      <${Field} label="Address" name="url" value=${urlOf(listener)} required disabled=${isConnected} />
      <${Field} label="Client id" name="clientId" value=${id} disabled=${isConnected} />
      <${Field} label="User" name="user" autocomplete="off" disabled=${isConnected} />
      <${Field} label="Password" name="password" type="password" autocomplete="off" disabled=${isConnected} />
      ${
        isConnected
          ? html`<button type="button" onClick=${disconnect}>Disconnect</button>`
          : html`<button type="submit" class="primary">Connect</button>`
      }
    </form>
    <p class="status" role="status">
      <${State} tone=${isConnected ? "ok" : "idle"}>${isConnected ? "connected" : "not connected"}<//></p>
  <//>`;
}

function Publish({ isConnected, run, count }) {
  const sequence = useRef({ key: Math.random().toString(36).slice(2, 10), next: 0 });
  const publish = (event) => {
    event.preventDefault();
    const { topic, payload, qos, times, retain } = Object.fromEntries(new FormData(event.target));
    return run((client) =>
      Promise.all(
        Array.from({ length: Number(times) }, async () => {
          const number = sequence.current.next++;
          const properties = [[NUMBER, `${sequence.current.key}/${number}`]];
          count({ sent: 1 });
          await client.publish(topic, payload.replaceAll("{n}", number), {
            qos: Number(qos),
            retain: retain === "on",
            properties,
          });
          if (qos !== "0") count({ acknowledged: 1 });
        }),
      ),
    );
  };
  return html`<${Panel} title="Publish" kind="half">
    <form class="form" onSubmit=${publish}>
      <${Field} label="Topic" name="topic" value="plant/line1/temperature" required kind="wide" />
      <${Field} label="Payload" kind="wide" hint="{n} becomes the number of the message">${(own) => html`<textarea
        ...${own} name="payload" rows="3">{"celsius": 21.5, "n": {n}}</textarea>`}<//>
      <${Qos} />
      <${Field} label="How many" name="times" type="number" min="1" max="100" value="1" />
      <label class="check"><input type="checkbox" name="retain" />Retain</label>
      <button type="submit" class="primary" disabled=${!isConnected}>Publish</button>
    </form>
  <//>`;
}

function Received({ isConnected, run, messages, counts, clear }) {
  const subscribe = (event) => {
    event.preventDefault();
    const { filter, qos } = Object.fromEntries(new FormData(event.target));
    return run((client) => client.subscribe(filter, Number(qos)));
  };
  const { sent, acknowledged, received, wrong } = counts;
  const sum = `${sent} sent, ${acknowledged} acknowledged, ${received} received, ${wrong} wrong`;
  return html`<${Panel} title="Subscribe" kind="half" actions=${
    messages.length > 0 &&
    html`<button type="button"
      class="small-button" onClick=${clear}>Clear</button>`
  }>
    <form class="form" onSubmit=${subscribe}>
      <${Field} label="Filter" name="filter" value="plant/#" required />
      <${Qos} />
      <button type="submit" disabled=${!isConnected}>Subscribe</button>
    </form>
    <p class="status" role="status">${sum}</p>
    ${
      messages.length === 0
        ? html`<${Empty} title="Nothing received yet" />`
        : html`<ul class="messages" tabindex="0" aria-label="Received messages">${messages.map(
            (message) => html`<li>
          <time class="quiet">${format.precise(message.at)}</time><span class="mono">${message.topic}</span>
          <${State} tone=${message.verdict?.tone ?? "idle"}>${message.verdict?.text ?? "no number"}<//>
          <code class="payload">${preview(message.payload)}</code></li>`,
          )}</ul>`
    }
  <//>`;
}

function Qos() {
  return html`<${Field} label="QoS">${(own) => html`<select ...${own} name="qos">
    <option>1</option><option>0</option></select>`}<//>`;
}

function preview(payload) {
  return new TextDecoder().decode(payload.subarray(0, 4096));
}
