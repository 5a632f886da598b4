// Batches, and one batch with its jobs.
import { post } from "../../shared/api.ts";
import { useData } from "../data.ts";
import { number, percent } from "../format.ts";
import { Ago, Empty, Head, Progress, Section } from "../parts/bits.tsx";
import { Chips } from "../parts/chips.tsx";
import { JobTable } from "../parts/job-table.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Counts, JobRow, Page } from "../types.ts";

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
                  <td class="number wide">{number(batch.dead)}</td>
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

function Bar({ batch }: { batch: Batch }) {
  const share = batch.total === 0 ? 0 : batch.processed / batch.total;
  return <><Progress value={Math.round(share * 100)} label={`Progress of ${batch.name}`} /> {percent(share)}</>;
}

function One({ id }: { id: string }) {
  const { session, ask } = useShell();
  const path = `api/operator/batches/${encodeURIComponent(id)}`;
  const data = useData<Batch>(path, {}, ["batches", "jobs"]);
  const jobs = useData<Page<JobRow>>("api/operator/jobs", { batch: id, limit: 50 }, ["jobs"]);
  const counts = useData<Counts>("api/operator/jobs/counts", { batch: id }, ["jobs"]);
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
      {(batch) => (
        <>
          <Head title={batch.name}>{session.mayChange && batch.processed < batch.total && <button type="button" class="danger" onClick={() => cancel(batch)}>Cancel what is left</button>}</Head>
          <Section title="Progress">
            <p><Bar batch={batch} /> · {number(batch.processed)} of {number(batch.total)} jobs have ended · {batch.state}{batch.sealed ? "" : ", more may be added"}</p>
            {batch.lastError && <p class="bad-text">{batch.lastError}</p>}
          </Section>
          <Chips filter={{ batch: id }} counts={counts.value} />
          <Loaded data={jobs}>{({ items }) => items.length === 0 ? <Empty title="Its jobs are gone"><p>Finished jobs are kept for some days only.</p></Empty> : <JobTable rows={items} />}</Loaded>
          <p class="more"><a class="button" href={link("jobs", "", { batch: id })}>All jobs of this batch</a></p>
        </>
      )}
    </Loaded>
  );
}
