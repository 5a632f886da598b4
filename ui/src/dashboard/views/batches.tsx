// Batches, and one batch with its jobs.
import { post } from "../../shared/api.ts";
import { useAction } from "../actions.tsx";
import { StateBar } from "../charts/states.tsx";
import { Tree } from "../charts/tree.tsx";
import { useData } from "../data.ts";
import { number, percent } from "../format.ts";
import { Ago, Empty, Head, Section } from "../parts/bits.tsx";
import { Chips } from "../parts/chips.tsx";
import { Relative } from "../parts/facts.tsx";
import { JobTable } from "../parts/job-table.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Node } from "../tree.ts";
import type { Counts, GoneJob, JobLink as Linked, JobRow, Page } from "../types.ts";

interface Batch {
  id: string;
  name: string;
  owner: string | null;
  state: string;
  sealed: boolean;
  createdAt: string;
  finishedAt: string | null;
  total: number;
  processed: number;
  succeeded: number;
  dead: number;
  cancelled: number;
  lastError: string | null;
}

interface Whole {
  batch: Batch;
  parent: Linked | GoneJob | null;
  onEnd: Linked | GoneJob | null;
  states: Counts["states"];
  /** Null when there are too many to draw. */
  nodes: Node[] | null;
}

export function Batches({ route }: { route: Route }) {
  return route.name ? <One id={route.name} /> : <All />;
}

function All() {
  const data = useData<Page<Batch>>("api/operator/batches", { limit: 50 }, ["batches"]);
  return (
    <>
      <Head title="Batches" />
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="There is no batch"><p>Jobs that belong together, with one end: <code>async with app.batch("import 7") as batch</code>.</p></Empty>
        ) : (
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Batch</th><th scope="col">Progress</th><th scope="col" class="number wide">Jobs</th>
                <th scope="col" class="number wide">Failed</th><th scope="col" class="number">Created</th>
              </tr>
            </thead>
            <tbody>
              {items.map((batch) => (
                <tr key={batch.id}>
                  <th scope="row"><a data-row href={link("batches", batch.id)}>{batch.name}</a><span class="below quiet">{batch.state}{batch.owner ? ` · ${batch.owner}` : ""}</span></th>
                  <td class="one-line"><Bar batch={batch} /></td>
                  <td class="number wide">{number(batch.processed)} / {number(batch.total)}</td>
                  <td class={batch.dead > 0 ? "number wide bad-text" : "number wide"}>{number(batch.dead)}</td>
                  <td class="number"><Ago at={batch.createdAt} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </>
  );
}

const WIDE = 120;

/** How its jobs have ended, and how many have not. */
function Bar({ batch }: { batch: Batch }) {
  const share = batch.total === 0 ? 0 : batch.processed / batch.total;
  let x = 0;
  return (
    <>
      <svg class="batch-bar" viewBox={`0 0 ${WIDE} 10`} width={WIDE} height="10" preserveAspectRatio="none" role="img" aria-label={`${batch.name}: ${batch.succeeded} succeeded, ${batch.dead} dead, ${batch.cancelled} cancelled of ${batch.total}`}>
        <rect class="fill none" width={WIDE} height="10" rx="3" />
        {(["succeeded", "dead", "cancelled"] as const).map((state) => {
          const wide = batch.total === 0 ? 0 : (batch[state] / batch.total) * WIDE;
          const left = x;
          x += wide;
          return wide > 0 && <rect key={state} class={`fill ${state}`} x={left} width={wide} height="10" rx="3" />;
        })}
      </svg>
      {percent(share)}
    </>
  );
}

function One({ id }: { id: string }) {
  const { session, ask } = useShell();
  const path = `api/operator/batches/${encodeURIComponent(id)}`;
  const data = useData<Whole>(`${path}/tree`, {}, ["batches", "jobs"]);
  const jobs = useData<Page<JobRow>>("api/operator/jobs", { batch: id, limit: 50 }, ["jobs"]);
  const [act, dialog] = useAction(data.reload);
  function cancel(batch: Batch): void {
    ask({
      title: `Cancel batch ${batch.name}?`, text: `${number(batch.total - batch.processed)} of its jobs have not ended. Running ones are asked to stop.`, button: "Cancel what is left", danger: true,
      act: async () => {
        await post(`${path}/cancel`);
        data.reload();
        return `Batch ${batch.name} was cancelled.`;
      },
    });
  }
  return (
    <Loaded data={data}>
      {({ batch, parent, onEnd, states, nodes }) => (
        <>
          <Head title={batch.name}>
            {session.mayChange && states.dead.count > 0 && <button type="button" onClick={() => act("retry", { filter: { batch: id, state: "dead" } })}>Retry dead jobs…</button>}
            {session.mayChange && batch.processed < batch.total && <button type="button" class="danger" onClick={() => cancel(batch)}>Cancel what is left…</button>}
          </Head>
          <Section title="Progress">
            <p>{number(batch.processed)} of {number(batch.total)} jobs have ended · {batch.state}{batch.sealed ? "" : ", more may be added"}</p>
            <StateBar states={states} filter={{ batch: id }} />
            <Chips filter={{ batch: id }} counts={{ states, total: { count: batch.total, exact: true } }} />
            {batch.lastError && <p class="bad-text">{batch.lastError}</p>}
            <Around parent={parent} onEnd={onEnd} />
          </Section>
          {nodes ? nodes.length > 0 && <Tree name={batch.name} nodes={nodes} /> : <p class="note">It has too many jobs to draw each of them: the bar above tells their states.</p>}
          <h2 class="list-title">Jobs</h2>
          <Loaded data={jobs}>{({ items }) => items.length === 0 ? <Empty title="Its jobs are gone"><p>Finished jobs are kept for some days only.</p></Empty> : <JobTable rows={items} />}</Loaded>
          <p class="more"><a class="button" href={link("jobs", "", { batch: id })}>All jobs of this batch</a></p>
          {dialog}
        </>
      )}
    </Loaded>
  );
}

/** What made the batch, and what its end made. */
function Around({ parent, onEnd }: Pick<Whole, "parent" | "onEnd">) {
  if (!parent && !onEnd) return null;
  return (
    <ul class="inline-list">
      {parent && <li>made by <Relative of={parent} /></li>}
      {onEnd && <li>at its end <Relative of={onEnd} /></li>}
    </ul>
  );
}
