// The states as chips, each with the number of jobs that this filter has in it.
import { FIELDS, type Filter } from "../filter.ts";
import { count } from "../format.ts";
import { link } from "../router.ts";
import { type Counts, STATES } from "../types.ts";
import { State } from "./bits.tsx";

export function Chips({ filter, counts }: { filter: Filter; counts: Counts | undefined }) {
  const chosen = new Set((filter.state ?? "").split(",").filter(Boolean));
  return (
    <ul class="chips" aria-label="States">
      <li><a href={link("jobs", "", { ...filter, state: "" })} aria-current={chosen.size === 0 ? "true" : undefined}>all</a></li>
      {STATES.map((state) => {
        const size = counts?.states[state];
        const others = [...chosen].filter((other) => other !== state);
        const next = chosen.has(state) ? others : [...others, state];
        return (
          <li key={state}>
            <a href={link("jobs", "", { ...filter, state: next.join(",") })} aria-current={chosen.has(state) ? "true" : undefined}>
              <State state={state} /> <span class="chip-count">{size ? count(size) : "…"}</span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** What is filtered by, each with a button that takes it away. */
export function Active({ filter }: { filter: Filter }) {
  const fields = FIELDS.filter((field) => filter[field] && field !== "state");
  if (fields.length === 0) return null;
  return (
    <ul class="active-filters" aria-label="Active filters">
      {fields.map((field) => (
        <li key={field}>
          <span class="quiet">{field}</span> {filter[field]}
          <a href={link("jobs", "", { ...filter, [field]: "" })} aria-label={`Remove the filter ${field}`}>×</a>
        </li>
      ))}
    </ul>
  );
}
