// How many jobs ended in each step of time, stacked by how they ended. Dragging over it, or a click, chooses a range.
import { useState } from "preact/hooks";
import { clock } from "../../shared/time.ts";
import { number } from "../format.ts";
import { Axes } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";
import { across, BOTTOM, niceTop, type Range, rangeOf, TOP, upwards } from "./scale.ts";

const HEIGHT = 170;
const SERIES = ["succeeded", "dead", "cancelled", "failed"] as const;
const NAMES: [string, string][] = [["succeeded", "succeeded"], ["dead", "dead"], ["cancelled", "cancelled"], ["failed attempts", "retryable"]];
export type Point = { at: string } & Record<(typeof SERIES)[number], number>;

interface Given {
  title: string;
  points: Point[];
  stepSeconds: number;
  choose?: (from: Date, to: Date) => void;
}

export function Bars({ title, points, stepSeconds, choose }: Given) {
  const [box, width] = useWidth();
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const sums = points.map((point) => SERIES.reduce((sum, name) => sum + point[name], 0));
  const range = rangeOf(points, stepSeconds);
  const top = niceTop(Math.max(1, ...sums));
  const { at } = across(range, width);
  const place = (event: PointerEvent): number => event.clientX - (box.current?.getBoundingClientRect().left ?? 0);

  function end(): void {
    if (!drag || !choose) return;
    const size = stepSeconds * 1000;
    choose(new Date(Math.floor(at(Math.min(...drag)) / size) * size), new Date(Math.ceil((at(Math.max(...drag)) + 1) / size) * size));
    setDrag(null);
  }
  const total = sums.reduce((sum, value) => sum + value, 0);
  const rows = points.map((point) => [clock(point.at), ...SERIES.map((name) => point[name])]);
  return (
    <Figure title={title} table={{ head: ["From", "Succeeded", "Dead", "Cancelled", "Failed attempts"], rows }} legend={<Legend entries={NAMES} />} {...(choose && { note: "Drag over a range to see its jobs." })}>
      <div ref={box} class={choose ? "chart choosable" : "chart"}>
        <svg
          width={width} height={HEIGHT} role="img" aria-label={`${title}: ${number(total)} ends in ${points.length} steps`}
          {...(choose && {
            onPointerDown: (event: PointerEvent) => setDrag([place(event), place(event)]),
            onPointerMove: (event: PointerEvent) => drag && setDrag([drag[0], place(event)]),
            onPointerUp: end,
            onPointerLeave: () => setDrag(null),
          })}
        >
          <Axes range={range} width={width} height={HEIGHT} top={top} />
          {points.map((point) => <Stack key={point.at} point={point} range={range} width={width} top={top} />)}
          {drag && <rect class="brush" x={Math.min(...drag)} y={TOP} width={Math.abs(drag[1] - drag[0])} height={HEIGHT - TOP - BOTTOM} />}
        </svg>
      </div>
    </Figure>
  );
}

function Stack({ point, range, width, top }: { point: Point; range: Range; width: number; top: number }) {
  const { x, step } = across(range, width);
  const y = upwards(top, HEIGHT);
  let below = 0;
  return (
    <g class="stack">
      <title>{`${clock(point.at)}: ${SERIES.map((name) => `${number(point[name])} ${name}`).join(", ")}`}</title>
      <rect class="ghost" x={x(point.at)} y={TOP} width={step} height={HEIGHT - TOP - BOTTOM} />
      {SERIES.map((name) => {
        const from = below;
        below += point[name];
        if (point[name] === 0) return null;
        const kind = name === "failed" ? "retryable" : name;
        return <rect key={name} class={`fill ${kind}`} x={x(point.at)} y={y(below)} width={Math.max(1, step - 1)} height={Math.max(1, y(from) - y(below))} />;
      })}
    </g>
  );
}
