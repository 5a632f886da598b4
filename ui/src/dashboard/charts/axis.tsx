// Axes: real text, few lines.
import { clock } from "../../shared/time.ts";
import { niceTop, number } from "../format.ts";

export const LEFT = 44;
export const BOTTOM = 20;
export const TOP = 8;

/** Where moments and values lie in a picture of this size. */
export function scales(moments: string[], stepSeconds: number, largest: number, width: number, height: number) {
  const first = Date.parse(moments[0] ?? new Date().toISOString());
  const last = Date.parse(moments.at(-1) ?? new Date().toISOString()) + stepSeconds * 1000;
  const top = niceTop(largest);
  return {
    top,
    x: (moment: string | number): number => {
      const at = typeof moment === "number" ? moment : Date.parse(moment);
      return LEFT + ((at - first) / Math.max(1, last - first)) * (width - LEFT - 4);
    },
    y: (value: number): number => TOP + (1 - value / top) * (height - TOP - BOTTOM),
    step: (width - LEFT - 4) / Math.max(1, (last - first) / (stepSeconds * 1000)),
    first,
    last,
  };
}

export function Axes({ scale, width, height, label = number }: { scale: ReturnType<typeof scales>; width: number; height: number; label?: (value: number) => string }) {
  const values = [0, scale.top / 2, scale.top];
  return (
    <g class="axes">
      {values.map((value) => (
        <g key={value}>
          <line x1={LEFT} x2={width - 4} y1={scale.y(value)} y2={scale.y(value)} />
          <text x={LEFT - 6} y={scale.y(value) + 4} text-anchor="end">{scale.top === 1 && value === 0.5 ? "" : label(value)}</text>
        </g>
      ))}
      <TimeAxis first={scale.first} last={scale.last} x={scale.x} width={width} height={height} />
    </g>
  );
}

export function TimeAxis({ first, last, x, width, height }: { first: number; last: number; x: (at: number) => number; width: number; height: number }) {
  const marks = width < 420 ? 2 : 4;
  const long = last - first > 86_400_000;
  return (
    <>
      {Array.from({ length: marks + 1 }, (_, index) => first + ((last - first) * index) / marks).map((at, index) => (
        <text key={index} x={x(at)} y={height - 5} text-anchor={index === 0 ? "start" : index === marks ? "end" : "middle"}>
          {long ? clock(new Date(at)).slice(5, 16) : clock(new Date(at), undefined, false).slice(0, last - first < 1_200_000 ? 8 : 5)}
        </text>
      ))}
    </>
  );
}
