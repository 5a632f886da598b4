// Filters that this browser remembers.
import { useState } from "preact/hooks";
import { type Filter, formatFilter, parseFilter } from "../filter.ts";
import { go, link } from "../router.ts";

const KEY = "rowlock.filters";

/** The filters that are kept. */
export function keptFilters(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((text) => typeof text === "string").slice(0, 20) : [];
  } catch {
    return [];
  }
}

export function keepFilters(next: string[]): string[] {
  try {
    localStorage.setItem(KEY, JSON.stringify(next));
  } catch {
    // the browser keeps nothing for this page: kept until it is closed
  }
  return next;
}

export function Saved({ filter }: { filter: Filter }) {
  const [saved, setSaved] = useState(keptFilters);
  const text = formatFilter(filter);
  const keep = (next: string[]): void => setSaved(keepFilters(next));
  const known = saved.includes(text);
  return (
    <>
      {text && (
        <button type="button" aria-pressed={known} onClick={() => keep(known ? saved.filter((other) => other !== text) : [...saved, text])}>
          {known ? "Saved" : "Save"}
        </button>
      )}
      {saved.length > 0 && (
        <select aria-label="Saved filters" value={known ? text : ""} onChange={(event) => go(link("jobs", "", { ...parseFilter(event.currentTarget.value) }))}>
          <option value="">saved filters</option>
          {saved.map((other) => <option key={other} value={other}>{other}</option>)}
        </select>
      )}
    </>
  );
}
