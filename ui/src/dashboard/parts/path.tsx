// The way of a job through its states, with the moments at which it came to each.
import { between, clock, duration } from "../../shared/time.ts";
import type { JobPage, State as JobState } from "../types.ts";
import { State } from "./bits.tsx";

interface Stop {
  state: JobState;
  at: string;
  note: string;
}

export function stops({ job, attempts }: JobPage): Stop[] {
  const found: Stop[] = [{ state: "queued", at: job.createdAt, note: "created" }];
  const last = attempts.slice(-3); // a job with many attempts has them in the table below
  if (attempts.length > last.length) found.push({ state: "retryable", at: last[0]?.startedAt ?? job.createdAt, note: `after ${attempts.length - last.length} earlier attempts` });
  for (const attempt of last) {
    if (attempt.startedAt) found.push({ state: "running", at: attempt.startedAt, note: `attempt ${attempt.attempt}` });
    if (attempt.endedAt !== job.finishedAt) found.push({ state: attempt.outcome === "released" ? "queued" : "retryable", at: attempt.endedAt, note: attempt.outcome.replace("_", " ") });
  }
  const told = attempts.some(({ attempt }) => attempt === job.attempt);
  if (job.startedAt && !told && job.attempt > 0) found.push({ state: "running", at: job.startedAt, note: `attempt ${job.attempt}` });
  if (job.finishedAt) found.push({ state: job.state, at: job.finishedAt, note: job.errorCode ?? "ended" });
  return found;
}

export function Path({ page }: { page: JobPage }) {
  const found = stops(page);
  return (
    <ol class="path">
      {found.map((stop, index) => {
        const before = found[index - 1];
        return (
          <li key={index} class={index === found.length - 1 ? "here" : undefined}>
            {before && <span class="path-gap quiet">{duration(between(before.at, stop.at))}</span>}
            <State state={stop.state} />
            <span class="quiet">{stop.note}</span>
            <time class="quiet" dateTime={stop.at} title={clock(stop.at)}>{clock(stop.at, undefined, false)}</time>
          </li>
        );
      })}
    </ol>
  );
}
