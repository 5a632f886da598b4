// The way of a job through its states: each stop with its moment, and the state machine with what was used of it. Pure.
import type { Attempt, State, WholeJob } from "./types.ts";

export interface Stop {
  state: State;
  at: string;
  note: string;
}

type Course = Pick<WholeJob, "state" | "attempt" | "createdAt" | "startedAt" | "finishedAt" | "errorCode">;

/** The states in order. The last attempt of a job that has ended leads to that end, and to no state in between. */
export function stops(job: Course, attempts: Attempt[]): Stop[] {
  const found: Stop[] = [{ state: "queued", at: job.createdAt, note: "created" }];
  for (const attempt of attempts) {
    if (attempt.startedAt) found.push({ state: "running", at: attempt.startedAt, note: `attempt ${attempt.attempt}` });
    if (attempt.attempt === job.attempt && job.finishedAt) continue;
    found.push({ state: attempt.outcome === "released" ? "queued" : "retryable", at: attempt.endedAt, note: attempt.outcome.replace("_", " ") });
  }
  const told = attempts.some(({ attempt }) => attempt === job.attempt);
  if (job.startedAt && !told && job.attempt > 0) found.push({ state: "running", at: job.startedAt, note: `attempt ${job.attempt}` });
  if (job.finishedAt) found.push({ state: job.state, at: job.finishedAt, note: job.errorCode ?? "ended" });
  else if (found.at(-1)?.state !== job.state && job.state === "queued") found.push({ state: "queued", at: found.at(-1)?.at ?? job.createdAt, note: "put back" });
  return found;
}

export interface Station {
  state: State;
  visits: number;
  /** When the job came here for the first and for the last time. */
  first: string;
  last: string;
  /** How long it was here in total, up to now. */
  seconds: number;
  here: boolean;
}

export interface Way {
  from: State;
  to: State;
  times: number;
}

/** What a job has used of the state machine. */
export function machine(found: Stop[], now: number): { stations: Station[]; ways: Way[] } {
  const stations = new Map<State, Station>();
  const ways = new Map<string, Way>();
  found.forEach((stop, index) => {
    const next = found[index + 1];
    const here = next === undefined;
    const lasted = Math.max(0, ((next ? Date.parse(next.at) : now) - Date.parse(stop.at)) / 1000);
    const old = stations.get(stop.state);
    stations.set(stop.state, { state: stop.state, visits: (old?.visits ?? 0) + 1, first: old?.first ?? stop.at, last: stop.at, seconds: (old?.seconds ?? 0) + lasted, here });
    if (!next || next.state === stop.state) return;
    const key = `${stop.state} ${next.state}`;
    ways.set(key, { from: stop.state, to: next.state, times: (ways.get(key)?.times ?? 0) + 1 });
  });
  return { stations: [...stations.values()], ways: [...ways.values()] };
}
