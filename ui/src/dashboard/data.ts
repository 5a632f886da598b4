// What a view shows, read from the server and read again when the live connection says that it has changed. There is no
// poll loop: a hidden page and a quiet system ask nothing.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { address, getNewer, Problem, type Query } from "../shared/api.ts";
import { concerns, type Panel, useMessages } from "./live.ts";

export interface Data<T> {
  /** What came last; kept while something newer is on its way, so that nothing jumps. */
  value: T | undefined;
  problem: Problem | undefined;
  loading: boolean;
  reload(): void;
}

const SHORTEST = 1500; // milliseconds between two reads
const SHARE = 10; // a read that takes long is repeated only after ten times as long

/** Read `path`; null reads nothing. `hold` keeps what is shown until it ends. */
export function useData<T>(path: string | null, query: Query = {}, panels: readonly Panel[] = [], hold = false): Data<T> {
  const key = path === null ? null : address(path, query);
  const [state, setState] = useState<Omit<Data<T>, "reload">>({ value: undefined, problem: undefined, loading: true });
  const reading = useRef<{ key: string; stop: AbortController } | null>(null);
  const timer = useRef<number | undefined>(undefined);
  const again = useRef(0); // not before this moment
  const outdated = useRef(false); // there may be something newer than what was read last
  const held = useRef<{ key: string; etag: string | null } | null>(null); // what is shown
  const latest = useRef({ key, hold });
  latest.current = { key, hold };

  const load = useCallback(async (newer = false): Promise<void> => {
    const wanted = latest.current.key;
    if (wanted === null) return;
    reading.current?.stop.abort();
    const mine = { key: wanted, stop: new AbortController() };
    reading.current = mine;
    outdated.current = false;
    setState((old) => ({ ...old, loading: true }));
    const started = performance.now();
    try {
      const known = newer && held.current?.key === wanted ? held.current.etag : null;
      const { value, etag, shared } = await getNewer<T>(wanted, known, mine.stop.signal);
      if (reading.current === mine) {
        held.current = { key: wanted, etag };
        outdated.current ||= shared;
        setState((old) => ({ value: value ?? old.value, problem: undefined, loading: false }));
      }
    } catch (error) {
      if (reading.current !== mine || mine.stop.signal.aborted) return;
      const problem = error instanceof Problem ? error : new Problem(0, "", String(error));
      setState((old) => ({ value: old.value, problem, loading: false }));
    } finally {
      if (reading.current === mine) {
        reading.current = null;
        again.current = performance.now() + Math.max(SHORTEST, SHARE * (performance.now() - started));
        if (outdated.current) loadSoon();
      }
    }
  }, []);

  function loadSoon(): void {
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void (latest.current.hold || load(true)), Math.max(0, again.current - performance.now()));
  }

  useEffect(() => {
    window.clearTimeout(timer.current);
    void load();
    return () => {
      window.clearTimeout(timer.current);
      reading.current?.stop.abort();
      reading.current = null;
    };
  }, [key]);

  useMessages(
    useCallback((message) => {
      if (!concerns(message, panels) || latest.current.hold) return;
      // A read that takes longer than the time between two messages must come to its end, or nothing is ever shown.
      if (reading.current === null) loadSoon();
      else outdated.current = true;
    }, panels),
  );
  return { ...state, reload: () => void load() };
}
