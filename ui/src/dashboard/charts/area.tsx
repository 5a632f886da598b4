// Waiting jobs of each queue over time, stacked: is it getting worse?
import { clock, duration, roughly } from "../../shared/time.ts";
import { Axes, scales } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";

const HEIGHT = 170;
export interface Depth {
  name: string;
  points: { at: string; ready: number; waiting: number; running: number; oldestSeconds: number | null }[];
}

export function DepthArea({ queues, stepSeconds }: { queues: Depth[]; stepSeconds: number }) {
  const [box, width] = useWidth();
  const moments = [...new Set(queues.flatMap(({ points }) => points.map(({ at }) => at)))].sort();
  const layers = stack(queues, moments);
  const top = Math.max(1, ...moments.map((_, index) => layers.at(-1)?.upper[index] ?? 0));
  const scale = scales(moments, stepSeconds, top, width, HEIGHT);
  const rows = queues.flatMap(({ name, points }) => points.map((point) => [clock(point.at), name, point.ready, point.waiting, point.running]));
  return (
    <Figure title="Jobs that could start, by queue" table={{ head: ["At", "Queue", "Ready", "Waiting for its time", "Running"], rows }} legend={<Legend entries={queues.map(({ name }, index) => [name, `series-${index % 6}`])} />}>
      <div ref={box} class="chart">
        <svg width={width} height={HEIGHT} role="img" aria-label={`Jobs that could start in ${queues.length} queues, at most ${top}`}>
          <Axes scale={scale} width={width} height={HEIGHT} />
          {layers.map(({ name, lower, upper }, index) => (
            <path key={name} class={`area series-${index % 6}`} d={outline(moments, lower, upper, scale)}><title>{name}</title></path>
          ))}
        </svg>
      </div>
    </Figure>
  );
}

function stack(queues: Depth[], moments: string[]) {
  let lower = moments.map(() => 0);
  return queues.map(({ name, points }) => {
    const ready = new Map(points.map((point) => [point.at, point.ready]));
    const upper = moments.map((at, index) => (lower[index] ?? 0) + (ready.get(at) ?? 0));
    const layer = { name, lower, upper };
    lower = upper;
    return layer;
  });
}

function outline(moments: string[], lower: number[], upper: number[], scale: ReturnType<typeof scales>): string {
  const over = moments.map((at, index) => `${scale.x(at).toFixed(1)},${scale.y(upper[index] ?? 0).toFixed(1)}`);
  const under = moments.map((at, index) => `${scale.x(at).toFixed(1)},${scale.y(lower[index] ?? 0).toFixed(1)}`).reverse();
  return over.length === 0 ? "" : `M${over.join("L")}L${under.join("L")}Z`;
}

/** How long the oldest job of each queue has waited, over time. */
export function AgeLines({ queues, stepSeconds }: { queues: Depth[]; stepSeconds: number }) {
  const [box, width] = useWidth();
  const moments = [...new Set(queues.flatMap(({ points }) => points.map(({ at }) => at)))].sort();
  const top = Math.max(1, ...queues.flatMap(({ points }) => points.map(({ oldestSeconds }) => oldestSeconds ?? 0)));
  const scale = scales(moments, stepSeconds, top, width, HEIGHT);
  const rows = queues.flatMap(({ name, points }) => points.map((point) => [clock(point.at), name, duration(point.oldestSeconds ?? 0)]));
  return (
    <Figure title="Age of the oldest waiting job" table={{ head: ["At", "Queue", "Oldest"], rows }}>
      <div ref={box} class="chart">
        <svg width={width} height={HEIGHT} role="img" aria-label={`Age of the oldest waiting job, at most ${duration(top)}`}>
          <Axes scale={scale} width={width} height={HEIGHT} label={(value) => (value < 600 ? `${value} s` : roughly(value))} />
          {queues.map(({ name, points }, index) => (
            <polyline key={name} class={`line series-${index % 6}`} points={points.map(({ at, oldestSeconds }) => `${scale.x(at).toFixed(1)},${scale.y(oldestSeconds ?? 0).toFixed(1)}`).join(" ")}>
              <title>{name}</title>
            </polyline>
          ))}
        </svg>
      </div>
    </Figure>
  );
}
