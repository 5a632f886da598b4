// The way of a job through its states, with the moments at which it came to each. Pure.
import type { Attempt, State, WholeJob } from "./types.ts";

export interface Stop {
  state: State;
  at: string;
  note: string;
}

const SHOWN = 3; // a job with more attempts has them in the table below

type Course = Pick<WholeJob, "state" | "attempt" | "createdAt" | "startedAt" | "finishedAt" | "errorCode">;

/** The states in order. The last attempt of a job that has ended leads to that end, and to no state in between. */
export function stops(job: Course, attempts: Attempt[]): Stop[] {
  const found: Stop[] = [{ state: "queued", at: job.createdAt, note: "created" }];
  const last = attempts.slice(-SHOWN);
  const earlier = attempts.length - last.length;
  if (earlier > 0) found.push({ state: "retryable", at: last[0]?.startedAt ?? job.createdAt, note: `after ${earlier} earlier attempts` });
  for (const attempt of last) {
    if (attempt.startedAt) found.push({ state: "running", at: attempt.startedAt, note: `attempt ${attempt.attempt}` });
    if (attempt.attempt === job.attempt && job.finishedAt) continue;
    found.push({ state: attempt.outcome === "released" ? "queued" : "retryable", at: attempt.endedAt, note: attempt.outcome.replace("_", " ") });
  }
  const told = attempts.some(({ attempt }) => attempt === job.attempt);
  if (job.startedAt && !told && job.attempt > 0) found.push({ state: "running", at: job.startedAt, note: `attempt ${job.attempt}` });
  if (job.finishedAt) found.push({ state: job.state, at: job.finishedAt, note: job.errorCode ?? "ended" });
  return found;
}
