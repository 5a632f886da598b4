// Pictures of the size of a word, for rows of tables. Each has its numbers in its label.
import { clock } from "../../shared/time.ts";
import { plural } from "../format.ts";
import { go, link } from "../router.ts";
import type { Minute, Tick } from "../types.ts";
import { AsTable } from "./figure.tsx";

/** Bars without axes: what ended in each of the last minutes. */
export function Spark({ minutes, label }: { minutes: Minute[]; label: string }) {
  const sums = minutes.map((minute) => minute.succeeded + minute.dead + minute.cancelled);
  return <Bare values={sums} bad={minutes.map((minute) => minute.dead + minute.failed)} label={`${label}: ${plural(sums.reduce((a, b) => a + b, 0), "job")} ended in ${minutes.length} minutes`} />;
}

/** A trend: bars without axes. */
export function Bare({ values, bad, label, kind = "succeeded" }: { values: number[]; bad?: number[]; label: string; kind?: string }) {
  const top = Math.max(1, ...values);
  const step = 4;
  return (
    <svg class="spark" width={values.length * step} height="24" role="img" aria-label={label}>
      <line class="ground" x1="0" x2={values.length * step} y1="23.5" y2="23.5" />
      {values.map((value, index) => {
        const height = value === 0 ? 0 : Math.max(2, (value / top) * 22);
        return <rect key={index} class={`fill ${bad?.[index] ? "dead" : kind}`} x={index * step} y={23 - height} width={step - 1} height={height} />;
      })}
    </svg>
  );
}

/** How full something is. */
export function Gauge({ used, all, label }: { used: number; all: number; label: string }) {
  return <meter class="gauge" min={0} max={Math.max(1, all)} value={Math.min(used, all)} aria-label={label}>{`${used} of ${all}`}</meter>;
}

interface Answers {
  at: string;
  succeeded: number;
  failed: number;
}
const MINUTE = 60_000;

/** The last hour, minute by minute, also those in which nothing happened. */
export function wholeHour(minutes: Answers[], now: number): Answers[] {
  const known = new Map(minutes.map((minute) => [Math.floor(Date.parse(minute.at) / MINUTE), minute]));
  const last = Math.floor(now / MINUTE);
  return Array.from({ length: 60 }, (_, index) => {
    const minute = last - 59 + index;
    return known.get(minute) ?? { at: new Date(minute * MINUTE).toISOString(), succeeded: 0, failed: 0 };
  });
}

/** One square for each minute of the last hour: what came of the calls to a source. */
export function Strip({ minutes, label }: { minutes: Answers[]; label: string }) {
  const hour = wholeHour(minutes, Date.now());
  return (
    <svg class="strip" width={hour.length * 5} height="16" role="img" aria-label={label}>
      {hour.map(({ at, succeeded, failed }, index) => {
        const kind = succeeded + failed === 0 ? "none" : failed === 0 ? "succeeded" : succeeded === 0 ? "dead" : "retryable";
        const inset = kind === "dead" ? 0 : kind === "retryable" ? 2 : 4; // also told apart without colour
        return (
          <rect key={at} class={`fill ${kind}`} x={index * 5} y={inset} width="4" height={16 - 2 * inset} rx="1">
            <title>{`${clock(at)}: ${succeeded} succeeded, ${failed} failed`}</title>
          </rect>
        );
      })}
    </svg>
  );
}

const FIRED: Record<string, string> = { dead: "dead", cancelled: "cancelled", running: "running", queued: "queued", retryable: "retryable" };

/** One dot for each tick of a schedule; missed ones are hollow, skipped ones a dash. */
export function Dots({ ticks, label }: { ticks: Tick[]; label: string }) {
  return (
    <svg class="dots" width={Math.max(1, ticks.length) * 8} height="14" role="img" aria-label={label}>
      {ticks.map((tick, index) => {
        const tip = <title>{`${clock(tick.at)}: ${tick.what}${tick.state ? `, ${tick.state}` : ""}`}</title>;
        const x = index * 8 + 4;
        if (tick.what === "skipped") return <line key={tick.at} class="skipped" x1={x - 3} x2={x + 3} y1="7" y2="7">{tip}</line>;
        if (tick.what === "missed") return <circle key={tick.at} class="missed" cx={x} cy="7" r="2.7">{tip}</circle>;
        const open = (): void => {
          if (tick.jobId) go(link("job", tick.jobId));
        };
        return <circle key={tick.at} class={`fill bar ${FIRED[tick.state ?? ""] ?? "succeeded"}`} cx={x} cy="7" r="3.2" onClick={open}>{tip}</circle>;
      })}
    </svg>
  );
}

/** The numbers behind the small pictures of a list. Minutes in which nothing happened are left out. */
export function Minutes({ title, of }: { title: string; of: { name: string; minutes: ({ at: string; succeeded: number; failed: number } & Partial<Minute>)[] }[] }) {
  const rows = of.flatMap(({ name, minutes }) =>
    minutes.filter(({ succeeded, failed, dead = 0 }) => succeeded + failed + dead > 0).map(({ at, succeeded, failed }) => [name, clock(at), succeeded, failed]),
  );
  return <AsTable title={title} table={{ head: ["Name", "Minute", "Succeeded", "Failed attempts"], rows }} />;
}
