// One job's life as one bar: what it waited for, when it ran, and how long it was kept back after a failure.
import { between, clock, duration } from "../../shared/time.ts";
import { useNow } from "../parts/bits.tsx";
import type { Span } from "../types.ts";
import { KIND } from "./gantt.tsx";
import { Figure, Legend, useWidth } from "./figure.tsx";

const NAMES: Record<Span["kind"], string> = {
  wait: "waited for a slot", delay: "waited for its time", run: "ran", backoff: "kept back after a failure", lost: "worker was lost",
};
const LEAST = 3; // pixels, so that a short part can be seen

export function Timeline({ spans }: { spans: Span[] }) {
  const [box, width] = useWidth();
  const now = useNow().toISOString();
  const sizes = spans.map((span) => Math.max(0, between(span.from, span.to ?? now)));
  const whole = sizes.reduce((sum, size) => sum + size, 0) || 1;
  const free = Math.max(1, width - LEAST * spans.length);
  let x = 0;
  const parts = spans.map((span, index) => {
    const size = sizes[index] ?? 0;
    const part = { span, size, x, wide: LEAST + (size / whole) * free };
    x += part.wide;
    return part;
  });
  const rows = parts.map(({ span, size }) => [what(span), clock(span.from), span.to ? duration(size) : `${duration(size)} so far`]);
  const entries = new Map(spans.map((span) => [span.kind === "run" ? `attempt ${(span.outcome ?? "running").replace("_", " ")}` : NAMES[span.kind], colour(span)]));
  return (
    <Figure title="Timeline" table={{ head: ["What", "From", "Lasted"], rows }} legend={<Legend entries={[...entries]} />}>
      <div ref={box} class="chart">
        <svg width={width} height="44" role="img" aria-label={rows.map(([name, , lasted]) => `${name} ${lasted}`).join("; ")}>
          {parts.map(({ span, size, x: left, wide }, index) => (
            <g key={index}>
              <rect class={`fill ${colour(span)}`} x={left} y="2" width={Math.max(1, wide - 1)} height="22" rx="3">
                <title>{`${what(span)}: ${duration(size)}`}</title>
              </rect>
              {wide > 64 && <text class="span-name" x={left + 2} y="39">{duration(size)}</text>}
            </g>
          ))}
        </svg>
      </div>
    </Figure>
  );
}

function colour({ kind, outcome }: Span): string {
  return kind === "run" ? KIND[outcome ?? "running"] : `span-${kind}`;
}

function what({ kind, attempt, outcome }: Span): string {
  return kind === "run" || kind === "lost" ? `Attempt ${attempt ?? "?"}: ${outcome ?? "running"}` : NAMES[kind].replace(/^./, (first) => first.toUpperCase());
}
