// Numbers, counts and ids as the pages show them. Pure functions.
import type { Count } from "./types.ts";

const GROUPS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12345 as "12 345", with a narrow no-break space. */
export function number(value: number): string {
  return GROUPS.format(value).replaceAll(",", "\u202f");
}

/** A count that is exact or a lower bound. */
export function count({ count: size, exact }: Count): string {
  return exact ? number(size) : `${number(size)}+`;
}

/** "1 job", "3 jobs". */
export function plural(size: number, word: string): string {
  return `${number(size)} ${word}${size === 1 ? "" : "s"}`;
}

/** A small number with as many digits as say something: 0.04, 2.1, 312. */
export function rate(value: number): string {
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  if (value < 1) return value.toFixed(2);
  return value < 10 ? value.toFixed(1) : number(value);
}

export function percent(share: number): string {
  if (share === 0) return "0 %";
  if (share < 0.001) return "<0.1 %";
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function bytes(size: number): string {
  const mega = size / 1_048_576;
  return mega < 1024 ? `${mega.toFixed(0)} MB` : `${(mega / 1024).toFixed(1)} GB`;
}

/** The end of an id tells jobs of one moment apart; its beginning is the time of creation. */
export function shortId(id: string): string {
  return id.length > 13 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

/** A round number at or above the largest value of an axis. */
export function niceTop(largest: number): number {
  if (largest <= 1) return 1;
  const step = 10 ** Math.floor(Math.log10(largest));
  return [1, 2, 5, 10].map((factor) => factor * step).find((top) => top >= largest) ?? largest;
}

/** What a shell takes as one word. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
