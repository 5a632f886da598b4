// The list of jobs: filter in the address, chips with the counts of this filter, actions on a selection or on all.
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { useAction, WORDS } from "../actions.tsx";
import { useData } from "../data.ts";
import { filterOf, formatFilter } from "../filter.ts";
import { count, number } from "../format.ts";
import { useViewKeys } from "../keys.ts";
import { Empty, Head } from "../parts/bits.tsx";
import { FilterBar } from "../parts/filter-bar.tsx";
import { JobTable } from "../parts/job-table.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { Chips } from "../parts/chips.tsx";
import { go, link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Action, Counts, JobRow, Page } from "../types.ts";

const ACTIONS: Action[] = ["retry", "cancel", "runNow", "delete"];

export function Jobs({ route }: { route: Route }) {
  const filter = filterOf(route.query);
  const wanted = formatFilter(filter);
  const { session } = useShell();
  const [more, setMore] = useState<Page<JobRow> | null>(null);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [fresh, setFresh] = useState(false);
  const held = selected.size > 0 || more !== null;
  const first = useData<Page<JobRow>>("api/operator/jobs", { ...filter, limit: 50 }, ["jobs"], held);
  const counts = useData<Counts>("api/operator/jobs/counts", filter, ["jobs"]);
  const [act, dialog] = useAction(() => {
    setSelected(new Set());
    setMore(null);
    first.reload();
    counts.reload();
  });
  const rows = useMemo(() => [...(first.value?.items ?? []), ...(more?.items ?? [])], [first.value, more]);
  const cursor = more ? more.nextCursor : first.value?.nextCursor;
  useLayoutEffect(() => { // with the drawing: later it would drop what the reader has selected meanwhile
    setMore(null);
    setSelected(new Set());
  }, [wanted]);
  useEffect(() => setFresh(false), [first.value]);
  useEffect(() => setFresh(held), [counts.value]);

  async function loadMore(): Promise<void> {
    const page = await get<Page<JobRow>>("api/operator/jobs", { ...filter, limit: 50, cursor });
    setMore({ items: [...(more?.items ?? []), ...page.items], nextCursor: page.nextCursor ?? null });
  }
  function target() {
    const focused = document.activeElement?.closest("tr")?.dataset["id"];
    return selected.size > 0 ? [...selected] : focused ? [focused] : [];
  }
  function key(action: Action): () => void {
    return () => {
      if (session.mayChange && target().length > 0) act(action, { ids: target() });
    };
  }
  useViewKeys({ r: key("retry"), c: key("cancel"), x: () => toggle(document.activeElement?.closest("tr")?.dataset["id"]) });
  function toggle(id: string | undefined): void {
    if (!id || !session.mayChange) return;
    setSelected((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  }
  const total = counts.value?.total;
  return (
    <>
      <Head title="Jobs" />
      <FilterBar filter={filter} />
      <Chips filter={filter} counts={counts.value} />
      <div class="list-bar">
        <p class="list-status" role="status">
          {total ? `${count(total)} ${total.count === 1 ? "job" : "jobs"} with this filter, newest first` : "\u00a0"}
          {selected.size > 0 && <> · {number(selected.size)} selected <button type="button" class="plain" onClick={() => setSelected(new Set())}>Clear</button></>}
          {held && fresh && <> · <button type="button" class="plain" onClick={() => { setMore(null); first.reload(); }}>Something changed: show the newest</button></>}
        </p>
        <div class="list-actions" role="group" aria-label={selected.size > 0 ? "Actions on the selection" : "Actions on all jobs of this filter"}>
          {session.mayChange && ACTIONS.map((action) => (
            <button type="button" key={action} class={action === "delete" ? "danger" : undefined} disabled={rows.length === 0} onClick={() => act(action, selected.size > 0 ? { ids: [...selected] } : { filter })}>
              {label(action, selected.size)}
            </button>
          ))}
        </div>
      </div>
      <Loaded data={first}>
        {() => rows.length === 0 ? <None filter={filter} /> : (
          <>
            <JobTable rows={rows} selected={selected} toggle={session.mayChange ? toggle : undefined} all={(ids) => setSelected(new Set(ids))} />
            {cursor && <p class="more"><button type="button" onClick={() => void loadMore()}>Show 50 more</button></p>}
          </>
        )}
      </Loaded>
      {dialog}
    </>
  );
}

function label(action: Action, selected: number): string {
  const what = selected > 0 ? number(selected) : "all";
  return action === "runNow" ? `Run ${what} now…` : `${WORDS[action].verb} ${what}…`;
}

function None({ filter }: { filter: ReturnType<typeof filterOf> }) {
  const any = Object.keys(filter).length > 0;
  return (
    <Empty title={any ? "No job matches this filter" : "There are no jobs"}>
      {any ? <button type="button" onClick={() => go(link("jobs"))}>Show all jobs</button> : (
        <><p>Enqueue one from your code, or from the command line:</p><pre>rowlock enqueue TASK key=value</pre></>
      )}
    </Empty>
  );
}
