// Numbers, counts and ids as the pages show them. Pure functions.
import { duration } from "../shared/time.ts";
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

/** What a shell takes as one word. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

const KNOWN: Record<string, string> = { jwt: "JWT", args: "Arguments" };

/** Settings by their names, with units that the name has at its end: `succeededDays: 7` is "Succeeded: 7 days". */
export function told(settings: Record<string, unknown>): [string, string][] {
  return Object.entries(settings).map(([name, value]) => {
    const [, stem = name, unit = ""] = /^(.+?)(Days|Seconds|Bytes)?$/.exec(name) ?? [];
    const words = stem.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());
    return [KNOWN[stem] ?? words, valued(value, unit)];
  });
}

function valued(value: unknown, unit: string): string {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map((one) => valued(one, unit)).join(value.length === 2 && value.every((one) => typeof one === "number") ? " … " : ", ");
  if (typeof value === "object") return told(value as Record<string, unknown>).map(([name, text]) => `${name}: ${text}`).join(", ");
  if (typeof value !== "number") return String(value);
  if (unit === "Bytes") return value < 1_048_576 ? `${number(value / 1024)} KB` : bytes(value);
  if (unit === "Seconds") return duration(value);
  return `${Number.isInteger(value) ? number(value) : value}${unit === "Days" ? (value === 1 ? " day" : " days") : ""}`;
}
