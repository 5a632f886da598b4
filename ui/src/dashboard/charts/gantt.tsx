// A lane for each slot of each worker, a bar for each attempt, coloured by its outcome.
import { clock, between, duration } from "../../shared/time.ts";
import { go, link } from "../router.ts";
import type { Outcome } from "../types.ts";
import { BOTTOM, scales, TimeAxis, TOP } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";

const LANE = 16;
export interface Slots {
  from: string;
  to: string;
  lanes: { worker: string; slot: number; bars: { jobId: string; task: string; attempt: number; outcome: Outcome; from: string; to: string | null }[] }[];
}
export const KIND: Record<Outcome, string> = {
  succeeded: "succeeded", failed: "retryable", timed_out: "retryable", lost: "dead", cancelled: "cancelled", released: "queued", running: "running",
};

export function Gantt({ slots: { from, to, lanes } }: { slots: Slots }) {
  const [box, width] = useWidth();
  const height = TOP + BOTTOM + Math.max(1, lanes.length) * LANE;
  const seconds = Math.max(1, between(from, to));
  const scale = scales([from], seconds, 1, width, height);
  const bars = lanes.flatMap(({ worker, slot, bars: inLane }) => inLane.map((bar) => ({ ...bar, worker, slot })));
  const rows = bars.map((bar) => [bar.worker, bar.slot + 1, bar.task, bar.outcome, clock(bar.from), duration(between(bar.from, bar.to ?? to))]);
  return (
    <Figure title="Slots of the workers" table={{ head: ["Worker", "Slot", "Task", "Outcome", "From", "Lasted"], rows }} legend={<Legend entries={[["succeeded", "succeeded"], ["failed", "retryable"], ["lost", "dead"], ["running", "running"], ["cancelled", "cancelled"]]} />}>
      <div ref={box} class="chart">
        <svg width={width} height={height} role="img" aria-label={`${bars.length} attempts in ${lanes.length} slots within ${duration(seconds)}`}>
          {lanes.map(({ worker, slot, bars: inLane }, index) => {
            const y = TOP + index * LANE;
            return (
              <g key={`${worker} ${slot}`}>
                <rect class={index % 2 ? "lane" : "lane odd"} x="44" y={y} width={width - 48} height={LANE} />
                <text class="lane-name" x="38" y={y + 12} text-anchor="end">{slot + 1}<title>{worker}</title></text>
                {inLane.map((bar) => {
                  const x = Math.max(44, scale.x(bar.from));
                  return (
                    <rect key={`${bar.jobId} ${bar.attempt}`} class={`fill bar ${KIND[bar.outcome] ?? "queued"}`} x={x} y={y + 2} width={Math.max(1.5, scale.x(bar.to ?? to) - x)} height={LANE - 4} rx="2" onClick={() => go(link("job", bar.jobId))}>
                      <title>{`${bar.task}, attempt ${bar.attempt}: ${bar.outcome}, ${duration(between(bar.from, bar.to ?? to))} (${worker})`}</title>
                    </rect>
                  );
                })}
              </g>
            );
          })}
          <g class="axes"><TimeAxis first={scale.first} last={scale.last} x={scale.x} width={width} height={height} /></g>
        </svg>
      </div>
    </Figure>
  );
}
