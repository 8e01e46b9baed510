// Answers of the API for components: loaded, refreshed, and with the time that they are of.
import { useEffect, useState } from "./view.js";
import { get } from "./api.js";
import { live } from "./live.js";

const EMPTY = { data: null, error: null, asOf: null, path: null };

/**
 * The answer of a path. `every` milliseconds it is asked again, as long as the page is visible. A `query` that changes
 * with time is a function, and `key` says which question it is.
 * Returns also `reload`, and `isStale` if the last question failed.
 */
export function useAnswer(path, { query, every = 0, key } = {}) {
  const [state, setState] = useState(EMPTY);
  const [turn, setTurn] = useState(0);
  const question = path && JSON.stringify([path, key ?? query]);
  useEffect(() => {
    if (!path) return undefined;
    const control = new AbortController();
    let timer;
    const load = async () => {
      if (!document.hidden || !every) {
        try {
          const data = await get(path, { query: key ? query() : query, signal: control.signal });
          setState({ data, error: null, asOf: data?.as_of ?? new Date().toISOString(), path: question });
        } catch (error) {
          if (error.name === "AbortError") return;
          setState((old) => ({ ...(old.path === question ? old : EMPTY), error, path: question }));
          if (error.status === 404) return; // what has gone does not come back
        }
      }
      if (every && !control.signal.aborted) timer = setTimeout(load, every);
    };
    load();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [question, turn, every]);
  // The answer to another question is not this one's.
  const shown = state.path === question ? state : EMPTY;
  return {
    ...shown,
    isLoading: Boolean(path) && !shown.data && !shown.error,
    isStale: Boolean(shown.error && shown.data),
    reload: () => setTurn((old) => old + 1),
  };
}

/**
 * One page of a list. A filter may leave a page of the broker empty though more follow, so a few
 * are asked for until one has something.
 */
export function usePage(path, { query = {}, every = 0 } = {}) {
  const answer = useAnswer(path, { query: { limit: 100, ...query }, every });
  return { ...answer, items: answer.data?.items ?? [], next: answer.data?.next ?? null };
}

/** The newest snapshot of the live stream as an answer. */
export function useLive() {
  const { snapshot, isConnected, error } = live;
  return {
    data: snapshot.value,
    asOf: snapshot.value?.as_of ?? null,
    isLoading: !snapshot.value && !error.value,
    isStale: Boolean(snapshot.value) && !isConnected.value,
    error: error.value ? new Error(error.value) : null,
  };
}
