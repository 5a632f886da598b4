// Moments and durations as people read them. Pure functions: tested by `node --test`.

/** Seconds as "0.4 s", "12 s", "3 min 5 s", "2 h 10 min", "4 d 3 h". */
export function duration(seconds: number): string {
  const size = Math.max(0, seconds);
  if (size < 0.0005) return "0 s";
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 10) return `${size.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(size);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(size / 60);
  if (minutes < 1440) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(size / 3600);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** "just now", "12 s ago", "in 3 min": in one unit, for tables. */
export function ago(moment: string | Date, now: Date): string {
  const seconds = (now.getTime() - new Date(moment).getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  const size = roughly(Math.abs(seconds));
  return seconds > 0 ? `${size} ago` : `in ${size}`;
}

/** Seconds in one unit, rounded down: "12 s", "3 min". */
export function roughly(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Seconds between two moments. */
export function between(from: string, to: string): number {
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000;
}

/** A moment in a zone (the viewer's own without one): "2026-11-17 09:00:05". */
export function clock(moment: string | Date, zone?: string, withDate = true): string {
  const parts = new Intl.DateTimeFormat("en-GB", {
    ...(zone && { timeZone: zone }),
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  }).formatToParts(new Date(moment));
  const part = (type: string): string => parts.find((found) => found.type === type)?.value ?? "";
  const time = `${part("hour")}:${part("minute")}:${part("second")}`;
  return withDate ? `${part("year")}-${part("month")}-${part("day")} ${time}` : time;
}
