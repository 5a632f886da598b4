import { between, clock, duration } from "../../shared/time.ts";
import { stops } from "../course.ts";
import type { JobPage } from "../types.ts";
import { State } from "./bits.tsx";

/** The way of a job through its states, and how long each step took. */
export function Path({ page }: { page: JobPage }) {
  const found = stops(page.job, page.attempts);
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
