// Charts over time, by uPlot. The chart is an image to screen readers: its label says the newest values.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

let loading = null;

/** uPlot is a plain script, loaded when a chart is first drawn. */
function library() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("page/vendor/uplot.js", document.baseURI).href;
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("the chart library was not loaded"));
    document.head.append(script);
  });
  return loading;
}

/** Changes when colours do. */
export const scheme = signal(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  scheme.value += 1;
});

/**
 * `times` in seconds, and `lines` with `label`, `values`, `color` (the name of a variable of the style), and maybe
 * `isDashed` or `isFilled`. `show` turns a value into text.
 */
export function Chart({ label, times, lines, show, height = 200 }) {
  const place = useRef();
  const chart = useRef();
  const [uPlot, setLibrary] = useState(() => globalThis.uPlot);
  const data = [times, ...lines.map((line) => line.values)];
  const shape = lines.map((line) => line.label + line.color).join();
  useEffect(() => {
    library().then(
      (loaded) => setLibrary(() => loaded),
      () => {},
    );
  }, []);
  useLayoutEffect(() => {
    if (!uPlot) return undefined;
    const width = () => Math.max(200, place.current.clientWidth);
    chart.current = new uPlot(options({ uPlot, lines, show, width: width(), height }), data, place.current);
    const observer = new ResizeObserver(() => chart.current.setSize({ width: width(), height }));
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      chart.current.destroy();
      chart.current = null;
    };
  }, [uPlot, shape, height, scheme.value]);
  useLayoutEffect(() => chart.current?.setData(data), [times, uPlot]);
  const newest = (line) => line.values.findLast((value) => value !== null && value !== undefined);
  const summary = lines.map((line) => `${line.label} ${show(newest(line))}`).join(", ");
  return html`<figure class="chart">
    <figcaption class="legend">${lines.map(
      (line) => html`<span>
      <i class="swatch ${line.isDashed ? "is-dashed" : ""} ink-${line.color}"></i>${line.label}
      <b>${show(newest(line))}</b></span>`,
    )}
    </figcaption>
    <div class="chart-place h-${height}" ref=${place} role="img" aria-label="${label}: ${summary}"></div>
  </figure>`;
}

function options({ uPlot, lines, show, width, height }) {
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: color("ink-2"), font, grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 20, 0, 0],
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => range(low, high) } },
    axes: [
      { ...axis, size: 24, space: 72, values: (_, splits) => clock(splits) },
      { ...axis, size: 56, space: 36, values: (_, splits) => splits.map((value) => show(value)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        fill: line.isFilled ? color(`${line.color}-fill`) : undefined,
        width: 1.5,
        dash: line.isDashed ? [5, 4] : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    plugins: [tip({ lines, show })],
  };
}

/** A colour of the style as the canvas understands it. */
function color(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function range(low, high) {
  const bottom = Math.min(0, low ?? 0);
  const top = Math.max(high ?? 0, 0);
  return [bottom, top > bottom ? bottom + (top - bottom) * 1.1 : bottom + 1];
}

function clock(splits) {
  const days = splits.length > 1 && splits.at(-1) - splits[0] > 36 * 3600;
  const seconds = splits.length > 1 && splits[1] - splits[0] < 60;
  const form = days
    ? { day: "numeric", month: "short" }
    : { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined };
  const format = new Intl.DateTimeFormat("en-GB", form);
  return splits.map((split) => format.format(split * 1000));
}

/** What the cursor points to, in words. */
function tip({ lines, show }) {
  let box;
  return {
    hooks: {
      init: (chart) => {
        box = document.createElement("div");
        box.className = "chart-tip";
        box.hidden = true;
        chart.over.append(box);
      },
      setCursor: (chart) => {
        const index = chart.cursor.idx;
        box.hidden = index === null || index === undefined || chart.cursor.left < 0;
        if (box.hidden) return;
        const at = new Date(chart.data[0][index] * 1000).toLocaleTimeString("en-GB");
        box.textContent = [at, ...lines.map((line, i) => `${line.label} ${show(chart.data[i + 1][index])}`)].join("\n");
        const isRight = chart.cursor.left > chart.over.clientWidth / 2;
        box.style.left = isRight ? "" : `${chart.cursor.left + 12}px`;
        box.style.right = isRight ? `${chart.over.clientWidth - chart.cursor.left + 12}px` : "";
      },
    },
  };
}
