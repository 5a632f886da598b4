// Time from left to right, duration from below, darkness by the number of jobs: shows the slow tail that a mean hides.
import { clock, duration } from "../../shared/time.ts";
import { BOTTOM, LEFT, scales, TimeAxis, TOP } from "./axis.tsx";
import { Figure, useWidth } from "./figure.tsx";

const HEIGHT = 200;
const SHADES = 6;
export interface Cells {
  stepSeconds: number;
  bounds: number[];
  cells: { at: string; counts: number[] }[];
}

export function Heat({ title, cells: { stepSeconds, bounds, cells } }: { title: string; cells: Cells }) {
  const [box, width] = useWidth();
  const scale = scales(cells.map(({ at }) => at), stepSeconds, 1, width, HEIGHT);
  const row = (HEIGHT - TOP - BOTTOM) / (bounds.length + 1);
  const most = Math.max(1, ...cells.flatMap(({ counts }) => counts));
  const shade = (value: number): number => Math.max(1, Math.ceil((Math.log(value + 1) / Math.log(most + 1)) * SHADES));
  const name = (index: number): string => (index < bounds.length ? `up to ${duration(bounds[index] ?? 0)}` : `over ${duration(bounds.at(-1) ?? 0)}`);
  const rows = cells.flatMap(({ at, counts }) => counts.flatMap((value, index) => (value ? [[clock(at), name(index), value]] : [])));
  const marks = bounds.map((_, index) => index).filter((index) => index % 4 === 0);
  return (
    <Figure title={title} table={{ head: ["From", "Duration", "Jobs"], rows }}>
      <div ref={box} class="chart">
        <svg width={width} height={HEIGHT} role="img" aria-label={`${title}: at most ${most} jobs in one cell`}>
          <g class="axes">
            {marks.map((index) => (
              <text key={index} x={LEFT - 6} y={HEIGHT - BOTTOM - row * index - row / 2 + 4} text-anchor="end">{duration(bounds[index] ?? 0)}</text>
            ))}
            <TimeAxis first={scale.first} last={scale.last} x={scale.x} width={width} height={HEIGHT} />
          </g>
          {cells.flatMap(({ at, counts }) =>
            counts.map((value, index) => value > 0 && (
              <rect key={`${at} ${index}`} class={`heat heat-${shade(value)}`} x={scale.x(at)} y={HEIGHT - BOTTOM - row * (index + 1)} width={Math.max(1, scale.step - 1)} height={row - 1}>
                <title>{`${clock(at)}, ${name(index)}: ${value}`}</title>
              </rect>
            )),
          )}
        </svg>
      </div>
    </Figure>
  );
}
