// A job's state machine: the states it went through are lit, with when and how long; the arrows that it took are drawn.
import { clock, duration, roughly } from "../../shared/time.ts";
import { machine, type Station, type Stop, type Way } from "../course.ts";
import { plural } from "../format.ts";
import { useNow } from "../parts/bits.tsx";
import { IconPath } from "../parts/icon.tsx";
import { type State, STATES } from "../types.ts";
import { Figure, useWidth } from "./figure.tsx";

const BOX = { wide: 168, high: 58 };
const NARROW = 560; // below this width the machine stands on its head: from above to below
// Columns and rows of each state, when time goes to the right; the other way round on a narrow screen.
const PLACES: Record<State, [number, number]> = { queued: [0, 0.5], retryable: [0, 1.5], running: [1, 1], succeeded: [2, 0], cancelled: [2, 1], dead: [2, 2] };
const WAYS: [State, State][] = [
  ["queued", "running"], ["running", "retryable"], ["retryable", "running"], ["running", "succeeded"], ["running", "cancelled"], ["running", "dead"],
];

interface Given {
  stops: Stop[];
  /** When a waiting job is due, if that lies ahead. */
  due: string | null;
}

export function Machine({ stops, due }: Given) {
  const [box, width] = useWidth();
  const now = useNow().getTime();
  const { stations, ways } = machine(stops, now);
  const layout = lay(width);
  const rows = stops.map((stop, index) => {
    const next = stops[index + 1];
    const lasted = (Date.parse(next?.at ?? new Date(now).toISOString()) - Date.parse(stop.at)) / 1000;
    return [stop.state, clock(stop.at), next ? duration(lasted) : `${roughly(Math.max(0, lasted))} so far`, stop.note];
  });
  const known = new Map(stations.map((station) => [station.state, station]));
  // What a job usually does, and what this one did besides: a cancel while it waited, a release, a retry by hand.
  const drawn: Way[] = [
    ...WAYS.filter(([from, to]) => !ways.some((way) => way.from === from && way.to === to)).map(([from, to]) => ({ from, to, times: 0 })),
    ...ways,
  ];
  return (
    <Figure title="States" table={{ head: ["State", "Since", "For", "Why"], rows }}>
      <div ref={box} class="chart">
        <svg class={layout.upright ? "machine small" : "machine"} width={width} height={layout.height} role="img" aria-label={stations.map((station) => said(station)).join(", ")}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="arrow" d="M0 0.5L8 4L0 7.5z" /></marker>
            <marker id="arrow-lit" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path class="arrow lit" d="M0 0.5L8 4L0 7.5z" /></marker>
          </defs>
          {drawn.map((way) => <Arrow key={`${way.from} ${way.to}`} way={way} layout={layout} />)}
          {STATES.map((state) => <Box key={state} state={state} station={known.get(state)} due={due} now={now} layout={layout} />)}
        </svg>
      </div>
    </Figure>
  );
}

interface Layout {
  upright: boolean;
  width: number;
  height: number;
  wide: number; // of a box
  high: number;
  /** The middle of a state's box. */
  middle: (state: State) => [number, number];
}

function lay(width: number): Layout {
  const upright = width < NARROW;
  if (upright) {
    const wide = Math.min(BOX.wide, (width - 2) / 3 - 6);
    const [side, level] = [wide / 2 + 1, BOX.high + 34];
    const middle = (state: State): [number, number] => {
      const [depth, place] = PLACES[state];
      return [side + (place / 2) * (width - 2 * side), BOX.high / 2 + 2 + depth * level];
    };
    return { upright, width, wide, high: BOX.high, height: 2 * level + BOX.high + 4, middle };
  }
  const [side, level] = [BOX.wide / 2 + 1, BOX.high + 14];
  const between = Math.min(380, (width - 2 * side) / 2);
  const middle = (state: State): [number, number] => {
    const [depth, place] = PLACES[state];
    return [side + depth * between, BOX.high / 2 + 2 + place * level];
  };
  return { upright, width, wide: BOX.wide, high: BOX.high, height: 2 * level + BOX.high + 4, middle };
}

function Arrow({ way: { from, to, times }, layout }: { way: Way; layout: Layout }) {
  const [a, b, bend] = ends(from, to, layout);
  const lit = times > 0;
  const back = from === "running" && (to === "retryable" || to === "queued"); // its number stands below it
  const place = { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 + (back ? 15 : -6) };
  return (
    <g class={lit ? "way lit" : "way"}>
      <path d={`M${a[0]},${a[1]}C${bend(a)} ${bend(b)} ${b[0]},${b[1]}`} marker-end={lit ? "url(#arrow-lit)" : "url(#arrow)"} />
      {times > 1 && !layout.upright && <text {...place} text-anchor="middle">{times}×</text>}
    </g>
  );
}

type Place = readonly [number, number];

// Beside the middles of the two boxes, so that an arrow and its way back lie apart.
const ASIDE: Record<string, [number, number]> = {
  "queued running": [-5, -15], "running queued": [-5, 5], "retryable running": [-5, 5], "running retryable": [15, 5],
};

/** Where an arrow leaves a box and where it comes to the other, and how it bends between. */
function ends(from: State, to: State, layout: Layout): [Place, Place, (point: Place) => string] {
  const { upright, wide, high } = layout;
  const point = (along: number, across: number): Place => (upright ? [across, along] : [along, across]);
  const [half, breadth] = upright ? [high / 2, wide / 2] : [wide / 2, high / 2];
  const [a, b] = [layout.middle(from), layout.middle(to)].map(([x, y]) => (upright ? { along: y, across: x } : { along: x, across: y }));
  if (!a || !b) throw new Error("no such state");
  const sign = Math.sign(b.along - a.along);
  if (sign === 0) { // two states beside each other
    const turn = Math.sign(b.across - a.across);
    return [point(a.along, a.across + breadth * turn), point(b.along, b.across - (breadth + 1) * turn), ([x, y]) => `${x},${y}`];
  }
  const [before, after] = ASIDE[`${from} ${to}`] ?? [0, 0];
  const start = point(a.along + half * sign, a.across + before);
  const end = point(b.along - (half + 1) * sign, b.across + after);
  const middle = (a.along + b.along) / 2;
  const past = Math.abs(PLACES[to][0] - PLACES[from][0]) === 2; // around the box that stands between
  const out = PLACES[from][1] < 1 ? -30 : (upright ? layout.width : layout.height) + 30;
  return [start, end, ([x, y]) => point(middle, past ? out : upright ? x : y).join(",")];
}

interface BoxGiven {
  state: State;
  station: Station | undefined;
  due: string | null;
  now: number;
  layout: Layout;
}

function Box({ state, station, due, now, layout }: BoxGiven) {
  const [x, y] = layout.middle(state);
  const { wide, high } = layout;
  const left = x - wide / 2;
  const indent = layout.upright ? 5 : 9;
  const [first, second] = station ? lines(station, due, now) : ["", ""];
  return (
    <g class={`station ${state}${station ? " lit" : ""}${station?.here ? " here" : ""}`} data-state={state}>
      <rect x={left} y={y - high / 2} width={wide} height={high} rx="8" />
      <IconPath name={state} x={left + indent - 1} y={y - (station ? 24 : 8)} />
      <text class="station-name" x={left + indent + (layout.upright ? 17 : 20)} y={y - (station ? 11 : -5)}>{state}</text>
      <text class="station-text" x={left + indent} y={y + 6}>{first}</text>
      <text class="station-text" x={left + indent} y={y + 21}>{second}</text>
      {station && <title>{said(station)}</title>}
    </g>
  );
}

/** When it came here, and for how long. */
function lines({ state, visits, first, last, seconds, here }: Station, due: string | null, now: number): [string, string] {
  const moment = clock(here ? last : first, undefined, false);
  const ended = state === "succeeded" || state === "dead" || state === "cancelled";
  if (ended) return [moment, here ? `${roughly(Math.max(0, (now - Date.parse(last)) / 1000))} ago` : ""];
  if (here && due && Date.parse(due) > now) return [moment, `due in ${roughly((Date.parse(due) - now) / 1000)}`];
  const lasted = here ? `for ${roughly(Math.max(0, (now - Date.parse(last)) / 1000))}` : duration(seconds);
  return [moment, visits > 1 ? `${lasted} · ${visits}×` : lasted];
}

function said({ state, visits, last, seconds, here }: Station): string {
  return here ? `now ${state}, since ${clock(last)}` : `${state} for ${duration(seconds)}${visits > 1 ? ` in ${plural(visits, "visit")}` : ""}`;
}
