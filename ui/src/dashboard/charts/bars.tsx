// How many jobs ended in each step of time, stacked by how they ended. Dragging over it, or a click, chooses a range.
import { useState } from "preact/hooks";
import { clock } from "../../shared/time.ts";
import { Axes, BOTTOM, LEFT, scales, TOP } from "./axis.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";

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
  const scale = scales(points.map(({ at }) => at), stepSeconds, Math.max(1, ...sums), width, HEIGHT);
  const place = (event: PointerEvent): number => event.clientX - (box.current?.getBoundingClientRect().left ?? 0);
  const moment = (x: number): number => scale.first + ((x - LEFT) / (width - LEFT - 4)) * (scale.last - scale.first);

  function end(): void {
    if (!drag || !choose) return;
    const [from, to] = [Math.min(...drag), Math.max(...drag)];
    const size = stepSeconds * 1000;
    choose(new Date(Math.floor(moment(from) / size) * size), new Date(Math.ceil((moment(to) + 1) / size) * size));
    setDrag(null);
  }
  const total = sums.reduce((sum, value) => sum + value, 0);
  const rows = points.map((point) => [clock(point.at), ...SERIES.map((name) => point[name])]);
  return (
    <Figure title={title} table={{ head: ["From", "Succeeded", "Dead", "Cancelled", "Failed attempts"], rows }} legend={<Legend entries={NAMES} />}>
      <div ref={box} class={choose ? "chart choosable" : "chart"}>
        <svg
          width={width} height={HEIGHT} role="img" aria-label={`${title}: ${total} ends in ${points.length} steps`}
          {...(choose && {
            onPointerDown: (event: PointerEvent) => setDrag([place(event), place(event)]),
            onPointerMove: (event: PointerEvent) => drag && setDrag([drag[0], place(event)]),
            onPointerUp: end,
            onPointerLeave: () => setDrag(null),
          })}
        >
          <Axes scale={scale} width={width} height={HEIGHT} />
          {points.map((point) => <Stack key={point.at} point={point} scale={scale} />)}
          {drag && <rect class="brush" x={Math.min(...drag)} y={TOP} width={Math.abs(drag[1] - drag[0])} height={HEIGHT - TOP - BOTTOM} />}
        </svg>
      </div>
    </Figure>
  );
}

function Stack({ point, scale }: { point: Point; scale: ReturnType<typeof scales> }) {
  let below = 0;
  return (
    <g>
      <title>{`${clock(point.at)}: ${SERIES.map((name) => `${point[name]} ${name}`).join(", ")}`}</title>
      {SERIES.map((name) => {
        const from = below;
        below += point[name];
        if (point[name] === 0) return null;
        const kind = name === "failed" ? "retryable" : name;
        const y = scale.y(below);
        return <rect key={name} class={`fill ${kind}`} x={scale.x(point.at)} y={y} width={Math.max(1, scale.step - 1)} height={Math.max(1, scale.y(from) - y)} />;
      })}
    </g>
  );
}
