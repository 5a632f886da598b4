// Where moments and values lie in a picture. Pure functions.

/** The time that a picture shows. Pictures on one page share it, so that one moment lies in one place in all of them. */
export interface Range {
  first: number; // milliseconds
  last: number;
  stepSeconds: number;
}

export const LEFT = 48;
export const RIGHT = 4;
export const BOTTOM = 20;
export const TOP = 8;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [1000, 5000, 15_000, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY];

/** The range of points that each begin a step. */
export function rangeOf(points: { at: string }[], stepSeconds: number): Range {
  const first = Date.parse(points[0]?.at ?? "") || 0;
  return { first, last: (Date.parse(points.at(-1)?.at ?? "") || 0) + stepSeconds * 1000, stepSeconds };
}

/** Places in a picture of this width. */
export function across({ first, last, stepSeconds }: Range, width: number) {
  const wide = Math.max(1, width - LEFT - RIGHT);
  const whole = Math.max(1, last - first);
  return {
    x: (moment: string | number): number => LEFT + (((typeof moment === "number" ? moment : Date.parse(moment)) - first) / whole) * wide,
    at: (x: number): number => first + ((x - LEFT) / wide) * whole,
    step: (wide * stepSeconds * 1000) / whole,
  };
}

/** Places of values from 0 to `top` in a picture of this height. */
export function upwards(top: number, height: number): (value: number) => number {
  return (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
}

/** Round moments of a range for its axis, at most `most`; whole hours and days are those of the reader's clock. */
export function ticks({ first, last }: Range, most: number, offsetMinutes = -new Date(first).getTimezoneOffset()): number[] {
  const step = STEPS.find((size) => (last - first) / size <= most) ?? Math.ceil((last - first) / most / DAY) * DAY;
  const offset = offsetMinutes * MINUTE;
  const found: number[] = [];
  for (let at = Math.ceil((first + offset) / step) * step - offset; at <= last; at += step) found.push(at);
  return found;
}

const NICE = [1, 2, 3, 4, 6, 8, 10];

/** A round number at or above the largest value of an axis. */
export function niceTop(largest: number): number {
  if (largest <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(largest));
  return NICE.map((factor) => factor * unit).find((top) => top >= largest) ?? largest;
}

const NICE_SECONDS = [0.01, 0.1, 1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 43_200, 86_400];

/** A round duration at or above the largest of an axis; its half is round, too. */
export function niceSeconds(largest: number): number {
  return NICE_SECONDS.find((top) => top >= largest) ?? Math.ceil(largest / 172_800) * 172_800;
}
