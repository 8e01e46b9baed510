// Numbers and times as text.
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

const NONE = "–";

export function count(value) {
  return isKnown(value) ? whole.format(value) : NONE;
}

export function compact(value) {
  return isKnown(value) ? (Math.abs(value) < 10_000 ? number(value) : short.format(value)) : NONE;
}

export function rate(value) {
  return isKnown(value) ? `${compact(value)}/s` : NONE;
}

/** With as many digits as its size deserves. */
export function number(value) {
  if (!isKnown(value)) return NONE;
  const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return new Intl.NumberFormat("en-US", { maximumFractionDigits: digits }).format(value);
}

export function bytes(value) {
  if (!isKnown(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${number(value)} ${units[unit]}`;
}

/** Milliseconds with a unit that fits. */
export function millis(value) {
  if (!isKnown(value)) return NONE;
  if (value < 1) return `${number(value * 1000)} µs`;
  return value < 1000 ? `${number(value)} ms` : span(value / 1000);
}

/** Seconds as text: `1 h 5 min`. */
export function span(seconds) {
  if (!isKnown(seconds)) return NONE;
  if (seconds < 60) return `${number(Math.round(seconds * 10) / 10)} s`;
  const units = [
    ["d", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  const parts = units.slice(first, first + 2).map(([unit, size]) => {
    const part = Math.floor(seconds / size);
    seconds -= part * size;
    return part > 0 ? `${part} ${unit}` : "";
  });
  return parts.filter(Boolean).join(" ");
}

/** A part of 1, such as of one core. */
export function share(value) {
  return isKnown(value) ? `${number(value * 100)} %` : NONE;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** `09:30:05`, with the day if it is another one. */
export function time(text) {
  return moment(text, clock);
}

export function since(text) {
  return moment(text, minute);
}

function moment(text, format) {
  const at = new Date(text ?? NaN);
  if (Number.isNaN(at.getTime())) return NONE;
  const isToday = date.format(at) === date.format(new Date());
  return isToday ? format.format(at) : `${date.format(at)}, ${format.format(at)}`;
}

export function age(text) {
  const at = new Date(text ?? NaN).getTime();
  return Number.isNaN(at) ? NONE : span(Math.max(0, Math.round((Date.now() - at) / 1000)));
}

/** A time with milliseconds, for packets. */
export function precise(text) {
  const at = new Date(text ?? NaN);
  if (Number.isNaN(at.getTime())) return NONE;
  return `${time(text)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}
