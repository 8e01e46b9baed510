// Figures over time: kept by the broker for 7 days.
import { useMemo } from "./view.js";
import { useAnswer } from "./data.js";

export const RANGES = [
  ["5m", "5 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["1d", "1 day"],
  ["7d", "7 days"],
];

const SECONDS = { "5m": 300, "1h": 3600, "6h": 21_600, "1d": 86_400, "7d": 604_800 };

/**
 * Series by name in a range that ends now, refreshed as often as it is worth it. `times` are in seconds; `values(name)`
 * has one for each time, or null where nothing is known.
 */
export function useSeries(names, range) {
  const seconds = SECONDS[range] ?? SECONDS["1h"];
  const every = Math.min(60_000, Math.max(2000, (seconds * 1000) / 600));
  const query = () => ({
    names: names.join(","),
    from: new Date(Date.now() - seconds * 1000).toISOString(),
    points: 300,
  });
  const answer = useAnswer("/series", { query, every, key: `${names} ${range}` });
  const { from, step_s: step, series } = answer.data ?? {};
  const times = useMemo(() => timesOf(from, step, series?.[names[0]]?.avg.length ?? 0), [answer.data]);
  const values = (name) => series?.[name]?.avg ?? times.map(() => null);
  return { ...answer, times, values };
}

function timesOf(from, step, count) {
  const start = new Date(from).getTime() / 1000;
  return Array.from({ length: count }, (_, index) => start + index * step);
}
