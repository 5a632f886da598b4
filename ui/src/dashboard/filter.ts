// The filter of the job list: text as people write it ("queue:links state:dead,cancelled"), and the parameters of the
// operator routes. Pure functions.

export const FIELDS = [
  "state", "queue", "task", "owner", "source", "tag", "batch", "schedule", "parent", "errorCode", "since", "until", "attempt",
  "id", "text",
] as const;
export type Field = (typeof FIELDS)[number];
export type Filter = Partial<Record<Field, string>>;

const ALIASES: Record<string, Field> = { error: "errorCode", code: "errorCode", args: "text", job: "id" };
const WORD = /(?:([A-Za-z]+):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/g;

/** The filter that a text stands for. A word without a field is the first part of an id if it looks like one, and else
 * text in the arguments. */
export function parseFilter(text: string): Filter {
  const filter: Filter = {};
  const words: string[] = [];
  for (const [whole, name, inQuotes, bare] of text.matchAll(WORD)) {
    const value = inQuotes === undefined ? (bare ?? "") : inQuotes.replace(/\\(.)/g, "$1");
    const field = name === undefined ? undefined : fieldOf(name);
    if (field && value) filter[field] = value;
    else if (name === undefined && /^[0-9a-f]{4,8}(-[0-9a-f-]*)?$/i.test(value)) filter.id = value.toLowerCase();
    else words.push(name !== undefined && field === undefined ? whole : value);
  }
  const rest = words.filter(Boolean).join(" ");
  if (rest) filter.text = rest;
  return filter;
}

function fieldOf(name: string): Field | undefined {
  const exact = FIELDS.find((field) => field.toLowerCase() === name.toLowerCase());
  return exact ?? ALIASES[name.toLowerCase()];
}

export function formatFilter(filter: Filter): string {
  return FIELDS.filter((field) => filter[field]).map((field) => `${field}:${inWord(filter[field] ?? "")}`).join(" ");
}

function inWord(value: string): string {
  return /^[^\s"]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`;
}

/** The filter in a query of an address; other parameters are left out. */
export function filterOf(query: Record<string, string>): Filter {
  return Object.fromEntries(FIELDS.filter((field) => query[field]).map((field) => [field, query[field]]));
}

/** What could stand at the end of the text: fields for a bare word, values for "queue:li". */
export function suggest(text: string, values: Partial<Record<Field, string[]>>): string[] {
  const last = /(\S*)$/.exec(text)?.[1] ?? "";
  const before = text.slice(0, text.length - last.length);
  const [name, part] = last.split(/:(.*)/s);
  const field = part === undefined ? undefined : fieldOf(name ?? "");
  const found =
    field === undefined
      ? FIELDS.filter((known) => known.toLowerCase().startsWith(last.toLowerCase())).map((known) => `${known}:`)
      : (values[field] ?? [])
          .filter((value) => value.toLowerCase().includes((part ?? "").toLowerCase()) && value !== part)
          .map((value) => `${field}:${inWord(value)} `);
  return found.slice(0, 8).map((end) => before + end);
}
