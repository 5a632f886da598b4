// How many jobs are in each state, as one bar; each part leads to its jobs.
import { count, number } from "../format.ts";
import { link } from "../router.ts";
import { type Counts, STATES } from "../types.ts";
import { useWidth } from "./figure.tsx";
import type { Filter } from "../filter.ts";

export function StateBar({ states, filter }: { states: Counts["states"]; filter: Filter }) {
  const [box, width] = useWidth();
  const found = STATES.filter((state) => states[state].count > 0);
  const total = found.reduce((sum, state) => sum + states[state].count, 0);
  let x = 0;
  return (
    <div ref={box} class="chart state-bar">
      <svg width={width} height="16" role="img" aria-label={`${number(total)} jobs: ${found.map((state) => `${count(states[state])} ${state}`).join(", ")}`}>
        <rect class="fill none" width={width} height="16" rx="4" />
        {found.map((state) => {
          const wide = Math.max(3, (states[state].count / Math.max(1, total)) * width);
          const left = x;
          x += wide;
          return <rect key={state} class={`fill bar ${state}`} x={left} width={Math.max(2, wide - 1)} height="16" rx="3" onClick={() => { location.hash = link("jobs", "", { ...filter, state }); }}><title>{`${count(states[state])} ${state}`}</title></rect>;
        })}
      </svg>
    </div>
  );
}
