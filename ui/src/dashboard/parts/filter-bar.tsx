// The filter as text, with suggestions; the time range beside it.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { type Field, type Filter, formatFilter, parseFilter, suggest } from "../filter.ts";
import { go, link } from "../router.ts";
import { Active } from "./chips.tsx";
import { Saved } from "./saved.tsx";

const RANGES: [string, string][] = [["", "any time"], ["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"]];
type Names = Record<"queues" | "tasks" | "sources" | "schedules" | "errorCodes" | "states", string[]>;

export function FilterBar({ filter }: { filter: Filter }) {
  const { since, ...rest } = filter;
  const shown = formatFilter(rest);
  const [text, setText] = useState(shown && `${shown} `);
  const [values, setValues] = useState<Partial<Record<Field, string[]>>>({});
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  useLayoutEffect(() => setText(shown && `${shown} `), [shown]); // with the drawing: later it would overwrite what is typed
  const found = open ? suggest(text, values) : [];
  useEffect(() => {
    if (!open || values.queue) return;
    void get<Names>("api/operator/names").then(
      (names) => setValues({ queue: names.queues, task: names.tasks, source: names.sources, schedule: names.schedules, errorCode: names.errorCodes, state: names.states }),
      () => undefined,
    );
  }, [open]);

  function apply(changed: Filter): void {
    const range = changed.since ?? since ?? "";
    // Text in the arguments is looked for in a time window only: it has no index.
    go(link("jobs", "", { ...changed, since: changed.text && !range ? "24h" : range }));
  }
  function submit(event: Event): void {
    event.preventDefault();
    const chosen = found[at];
    if (chosen !== undefined) {
      setText(chosen);
      setAt(-1);
      return;
    }
    setOpen(false);
    apply(parseFilter(text));
  }
  function onKey(event: KeyboardEvent): void {
    if (event.key === "Escape") setOpen(false);
    else if (event.key === "ArrowDown" && found.length > 0) setAt(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp" && found.length > 0) setAt(Math.max(at - 1, -1));
    else return;
    event.preventDefault();
  }
  return (
    <form class="filter-bar" onSubmit={submit} role="search">
      <div class="filter-field">
        <input
          id="filter" type="text" role="combobox" aria-label="Filter" aria-expanded={found.length > 0} aria-controls="filter-list"
          aria-activedescendant={at >= 0 ? `filter-${at}` : undefined} autocomplete="off" spellcheck={false}
          placeholder="queue:links state:dead task:… or the first characters of an id" value={text}
          onInput={(event) => { setText(event.currentTarget.value); setOpen(true); setAt(-1); }}
          onFocus={() => setOpen(true)} onBlur={() => setOpen(false)} onKeyDown={onKey}
        />
        <ul id="filter-list" class="suggestions" role="listbox" aria-label="Suggestions" hidden={found.length === 0}>
          {found.map((value, index) => (
            <li key={value} id={`filter-${index}`} role="option" aria-selected={index === at} onPointerDown={(event) => { event.preventDefault(); setText(value); }}>
              {value.trim()}
            </li>
          ))}
        </ul>
      </div>
      <label class="range">
        <span class="off-screen">Created within</span>
        <select value={since ?? ""} onChange={(event) => go(link("jobs", "", { ...rest, until: "", since: event.currentTarget.value }))}>
          {RANGES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
          {since && !RANGES.some(([value]) => value === since) && <option value={since}>chosen range</option>}
        </select>
      </label>
      <button type="submit">Filter</button>
      <Saved filter={filter} />
      <Active filter={filter} />
    </form>
  );
}
