// Axes: real text, few lines.
import { clock } from "../../shared/time.ts";
import { number } from "../format.ts";
import { across, LEFT, type Range, RIGHT, ticks, upwards } from "./scale.ts";

const LABEL = 84; // pixels that a moment's text and the space beside it take
const DAY = 86_400_000;

interface Given {
  range: Range;
  width: number;
  height: number;
  top: number;
  label?: (value: number) => string;
}

export function Axes({ range, width, height, top, label = number }: Given) {
  const y = upwards(top, height);
  const values = [0, top / 2, top].filter((value) => label !== number || Number.isInteger(value));
  return (
    <g class="axes">
      {values.map((value) => (
        <g key={value}>
          <line x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
          <text x={LEFT - 6} y={y(value) + 4} text-anchor="end">{label(value)}</text>
        </g>
      ))}
      <TimeAxis range={range} width={width} height={height} />
    </g>
  );
}

export function TimeAxis({ range, width, height }: Pick<Given, "range" | "width" | "height">) {
  const { x } = across(range, width);
  const marks = ticks(range, Math.max(2, Math.floor((width - LEFT) / LABEL)));
  return (
    <>
      {marks.map((at) => {
        const place = x(at);
        const anchor = place < LEFT + 20 ? "start" : place > width - 24 ? "end" : "middle";
        return (
          <g key={at}>
            <line class="time-mark" x1={place} x2={place} y1={height - 20} y2={height - 17} />
            <text x={place} y={height - 5} text-anchor={anchor}>{moment(at, range)}</text>
          </g>
        );
      })}
    </>
  );
}

function moment(at: number, { first, last }: Range): string {
  const text = clock(new Date(at));
  if (last - first > 2 * DAY) return text.slice(5, 10);
  if (last - first > DAY) return text.slice(5, 16);
  return text.slice(11, last - first < 240_000 ? 19 : 16);
}
