// Time from left to right, duration from below, darkness by the number of jobs: shows the slow tail that a mean hides.
import { clock, duration } from "../../shared/time.ts";
import { number } from "../format.ts";
import { TimeAxis } from "./axis.tsx";
import { Figure, useWidth } from "./figure.tsx";
import { across, BOTTOM, LEFT, type Range, RIGHT, TOP } from "./scale.ts";

const HEIGHT = 230;
const SHADES = 6;
const MARKS = [0.01, 0.1, 1, 10, 60, 900]; // the bounds that are written at the side
export interface Cells {
  stepSeconds: number;
  bounds: number[];
  cells: { at: string; counts: number[] }[];
}

export function Heat({ title, cells: { bounds, cells }, range }: { title: string; cells: Cells; range: Range }) {
  const [box, width] = useWidth();
  const place = across(range, width);
  const row = (HEIGHT - TOP - BOTTOM) / (bounds.length + 1);
  const most = Math.max(0, ...cells.flatMap(({ counts }) => counts));
  const shade = (value: number): number => Math.max(1, Math.ceil((Math.log(value + 1) / Math.log(most + 1)) * SHADES));
  const name = (index: number): string => (index < bounds.length ? `up to ${duration(bounds[index] ?? 0)}` : `over ${duration(bounds.at(-1) ?? 0)}`);
  const rows = cells.flatMap(({ at, counts }) => counts.flatMap((value, index) => (value ? [[clock(at), name(index), value]] : [])));
  return (
    <Figure title={title} table={{ head: ["From", "Duration", "Jobs"], rows }} legend={<Shades most={most} />}>
      <div ref={box} class="chart">
        <svg class="heat-map" width={width} height={HEIGHT} role="img" aria-label={`${title}: at most ${number(most)} jobs in one cell`}>
          <g class="axes">
            {bounds.map((bound, index) => {
              const y = HEIGHT - BOTTOM - row * (index + 1);
              return MARKS.includes(bound) && (
                <g key={bound}>
                  <line x1={LEFT} x2={width - RIGHT} y1={y} y2={y} />
                  <text x={LEFT - 6} y={y + 4} text-anchor="end">{duration(bound)}</text>
                </g>
              );
            })}
            <line x1={LEFT} x2={width - RIGHT} y1={HEIGHT - BOTTOM} y2={HEIGHT - BOTTOM} />
            <TimeAxis range={range} width={width} height={HEIGHT} />
          </g>
          {cells.filter(({ at }) => Date.parse(at) >= range.first && Date.parse(at) < range.last).flatMap(({ at, counts }) =>
            counts.map((value, index) => value > 0 && (
              <rect key={`${at} ${index}`} class={`heat heat-${shade(value)}`} x={place.x(at)} y={HEIGHT - BOTTOM - row * (index + 1) + 1} width={Math.max(1, place.step - 1)} height={row - 1}>
                <title>{`${clock(at)}, ${name(index)}: ${number(value)}`}</title>
              </rect>
            )),
          )}
        </svg>
      </div>
    </Figure>
  );
}

function Shades({ most }: { most: number }) {
  if (most === 0) return <p class="legend">nothing ended in this time</p>;
  return (
    <p class="legend shades">
      1 job
      <svg width={SHADES * 14} height="11" aria-hidden="true">
        {Array.from({ length: SHADES }, (_, index) => <rect key={index} class={`heat heat-${index + 1}`} x={index * 14} width="13" height="11" rx="2" />)}
      </svg>
      {number(most)} {most === 1 ? "job" : "jobs"} in a cell
    </p>
  );
}
