// How deep and how old each queue was, over time: is it getting worse? A sample counts for its whole step, and a step
// without a sample (no worker ran) stays empty.
import { clock, duration, roughly } from "../../shared/time.ts";
import { number } from "../format.ts";
import { Axes } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";
import { across, niceSeconds, niceTop, type Range, upwards } from "./scale.ts";

const HEIGHT = 170;
const MOST = 6; // as many as there are colours
interface Sample {
  at: string;
  ready: number;
  waiting: number;
  running: number;
  oldestSeconds: number | null;
}
export interface Depth {
  name: string;
  points: Sample[];
}
interface Given {
  queues: Depth[];
  range: Range;
}

/** The deepest queues, and all others as one. */
export function deepest(queues: Depth[]): Depth[] {
  if (queues.length <= MOST) return queues;
  const depth = ({ points }: Depth): number => Math.max(0, ...points.map(({ ready }) => ready));
  const sorted = [...queues].sort((a, b) => depth(b) - depth(a));
  const rest = sorted.slice(MOST - 1).flatMap(({ points }) => points);
  const sums = new Map<string, Sample>();
  for (const point of rest) {
    const sum = sums.get(point.at) ?? { at: point.at, ready: 0, waiting: 0, running: 0, oldestSeconds: null };
    sums.set(point.at, {
      at: point.at, ready: sum.ready + point.ready, waiting: sum.waiting + point.waiting, running: sum.running + point.running,
      oldestSeconds: Math.max(sum.oldestSeconds ?? 0, point.oldestSeconds ?? 0),
    });
  }
  return [...sorted.slice(0, MOST - 1), { name: `${queues.length - MOST + 1} other queues`, points: [...sums.values()].sort((a, b) => a.at.localeCompare(b.at)) }];
}

export function DepthArea({ queues, range }: Given) {
  const [box, width] = useWidth();
  const shown = deepest(queues);
  const layers = stack(shown);
  const most = Math.max(0, ...layers.flatMap(({ parts }) => parts.map(({ upper }) => upper)));
  const top = niceTop(most);
  const place = across(range, width);
  const y = upwards(top, HEIGHT);
  const rows = queues.flatMap(({ name, points }) => points.map((point) => [clock(point.at), name, point.ready, point.waiting, point.running]));
  return (
    <Figure title="Jobs that could start" table={{ head: ["At", "Queue", "Ready", "Waiting for its time", "Running"], rows }} legend={<Queues of={shown} />}>
      <div ref={box} class="chart">
        <svg width={width} height={HEIGHT} role="img" aria-label={`Jobs that could start in ${queues.length} queues, at most ${number(most)}`}>
          <Axes range={range} width={width} height={HEIGHT} top={top} />
          {layers.map(({ name, parts }, index) => (
            <g key={name} class={`area series-${index}`}>
              {parts.map(({ at, lower, upper }) => upper > lower && Date.parse(at) >= range.first && (
                <rect key={at} x={place.x(at)} y={y(upper)} width={place.step + 0.3} height={y(lower) - y(upper)}>
                  <title>{`${clock(at)}, ${name}: ${number(upper - lower)}`}</title>
                </rect>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </Figure>
  );
}

function stack(queues: Depth[]) {
  const below = new Map<string, number>();
  return queues.map(({ name, points }) => ({
    name,
    parts: points.map(({ at, ready }) => {
      const lower = below.get(at) ?? 0;
      below.set(at, lower + ready);
      return { at, lower, upper: lower + ready };
    }),
  }));
}

/** How long the oldest job of each queue has waited, over time. */
export function AgeLines({ queues, range }: Given) {
  const [box, width] = useWidth();
  const shown = deepest(queues);
  const most = Math.max(0, ...queues.flatMap(({ points }) => points.map(({ oldestSeconds }) => oldestSeconds ?? 0)));
  const top = niceSeconds(most);
  const rows = queues.flatMap(({ name, points }) => points.map((point) => [clock(point.at), name, duration(point.oldestSeconds ?? 0)]));
  return (
    <Figure title="Age of the oldest job that could start" table={{ head: ["At", "Queue", "Oldest"], rows }} legend={<Queues of={shown} />}>
      <div ref={box} class="chart">
        <svg width={width} height={HEIGHT} role="img" aria-label={`Age of the oldest job that could start, at most ${duration(most)}`}>
          <Axes range={range} width={width} height={HEIGHT} top={top} label={(value) => (value < 1 ? duration(value) : roughly(value))} />
          {shown.map(({ name, points }, index) => (
            <path key={name} class={`line series-${index}`} d={steps(points, range, width, upwards(top, HEIGHT))}><title>{name}</title></path>
          ))}
        </svg>
      </div>
    </Figure>
  );
}

/** A line that is level for each step, and interrupted where steps have no sample. */
function steps(points: Sample[], range: Range, width: number, y: (value: number) => number): string {
  const { x } = across(range, width);
  const step = range.stepSeconds * 1000;
  let last = 0;
  return points.filter(({ at }) => Date.parse(at) >= range.first).map(({ at, oldestSeconds }) => {
    const begin = Date.parse(at);
    const height = y(oldestSeconds ?? 0).toFixed(1);
    const joined = begin - last < 1.5 * step ? `V${height}` : `M${x(begin).toFixed(1)},${height}`;
    last = begin;
    return `${joined}H${x(begin + step).toFixed(1)}`;
  }).join("");
}

function Queues({ of }: { of: Depth[] }) {
  return <Legend entries={of.map(({ name }, index) => [name, `series-${index}`])} />;
}
