// A lane for each slot of each worker, a bar for each attempt, coloured by its outcome.
import { between, clock, duration } from "../../shared/time.ts";
import { go, link } from "../router.ts";
import type { Outcome } from "../types.ts";
import { TimeAxis } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";
import { across, BOTTOM, LEFT, RIGHT, TOP } from "./scale.ts";

const LANE = 16;
const NAME = 20; // the height of a worker's name above its lanes
type Bar = { jobId: string; task: string; attempt: number; outcome: Outcome; from: string; to: string | null };
type Lane = { worker: string; slot: number; bars: Bar[] };
export interface Slots {
  from: string;
  to: string;
  lanes: Lane[];
}
export const KIND: Record<Outcome, string> = {
  succeeded: "succeeded", failed: "retryable", timed_out: "retryable", lost: "dead", cancelled: "cancelled", released: "queued", running: "running",
};
const NAMES: [string, string][] = [["succeeded", "succeeded"], ["failed", "retryable"], ["lost", "dead"], ["running", "running"], ["cancelled", "cancelled"], ["given back", "queued"]];

export function Gantt({ slots: { from, to, lanes }, sizes }: { slots: Slots; sizes: Map<string, number> }) {
  const [box, width] = useWidth();
  const range = { first: Date.parse(from), last: Date.parse(to), stepSeconds: 1 };
  const ahead = ({ worker, slot }: Lane): boolean => slot >= (sizes.get(worker) ?? Infinity);
  const { placed, bottom } = places(lanes);
  const height = bottom + BOTTOM;
  const bars = lanes.flatMap(({ worker, slot, bars: inLane }) => inLane.map((bar) => ({ ...bar, worker, slot })));
  const rows = bars.map((bar) => [bar.worker, bar.slot + 1, bar.task, bar.outcome, clock(bar.from), duration(between(bar.from, bar.to ?? to))]);
  return (
    <Figure title="Slots, the last five minutes" table={{ head: ["Worker", "Slot", "Task", "Outcome", "From", "Lasted"], rows }} legend={<Legend entries={NAMES} />} {...(lanes.some(ahead) && { note: "Lanes marked + are jobs that a worker had claimed ahead of their start." })}>
      <div ref={box} class="chart">
        <svg width={width} height={height} role="img" aria-label={`${bars.length} attempts in ${lanes.length} slots within ${duration(between(from, to))}`}>
          {placed.map(({ lane, y, first }, index) => (
            <g key={`${lane.worker} ${lane.slot}`}>
              {first && <text class="lane-name" x={LEFT} y={y - 6}>{lane.worker}</text>}
              <rect class={index % 2 ? "lane" : "lane odd"} x={LEFT} y={y} width={Math.max(1, width - LEFT - RIGHT)} height={LANE} />
              <text class="lane-name" x={LEFT - 6} y={y + 12} text-anchor="end">{ahead(lane) ? "+" : lane.slot + 1}</text>
              {lane.bars.map((bar) => {
                const { x } = across(range, width);
                const left = Math.max(LEFT, x(bar.from));
                return (
                  <rect key={`${bar.jobId} ${bar.attempt}`} class={`fill bar ${KIND[bar.outcome] ?? "queued"}`} x={left} y={y + 2} width={Math.max(1.5, x(bar.to ?? to) - left)} height={LANE - 4} rx="1.5" onClick={() => go(link("job", bar.jobId))}>
                    <title>{`${bar.task}, attempt ${bar.attempt}: ${bar.outcome.replace("_", " ")}, ${duration(between(bar.from, bar.to ?? to))}`}</title>
                  </rect>
                );
              })}
            </g>
          ))}
          <g class="axes"><TimeAxis range={range} width={width} height={height} /></g>
        </svg>
      </div>
    </Figure>
  );
}

/** Lanes from above to below, with room for the name of each worker over its first. */
function places(lanes: Lane[]) {
  let y = TOP;
  const placed = lanes.map((lane, index) => {
    const first = lanes[index - 1]?.worker !== lane.worker;
    if (first) y += NAME;
    const found = { lane, y, first };
    y += LANE;
    return found;
  });
  return { placed, bottom: y };
}
