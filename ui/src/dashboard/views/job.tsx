// Everything about one job on one screen.
import { post } from "../../shared/api.ts";
import { write } from "../../shared/json.ts";
import { useAction, WORDS } from "../actions.tsx";
import { Machine } from "../charts/machine.tsx";
import { Timeline } from "../charts/timeline.tsx";
import { stops } from "../course.ts";
import { useData } from "../data.ts";
import { quoted } from "../format.ts";
import { useViewKeys } from "../keys.ts";
import { Copy, Head, Progress, Section, State } from "../parts/bits.tsx";
import { Attempts } from "../parts/attempts.tsx";
import { Facts, Links } from "../parts/facts.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { Logs } from "../parts/logs.tsx";
import { go, link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Action, JobPage } from "../types.ts";

const ACTIONS: Action[] = ["retry", "runNow", "cancel", "delete"];

export function Job({ route }: { route: Route }) {
  const data = useData<JobPage>(`api/operator/jobs/${encodeURIComponent(route.name)}`, {}, ["jobs"]);
  return <Loaded data={data}>{(page) => <Whole page={page} reload={data.reload} />}</Loaded>;
}

function Whole({ page, reload }: { page: JobPage; reload: () => void }) {
  const { job, explain } = page;
  const { session } = useShell();
  const [act, dialog] = useAction(reload);
  const can = session.mayChange ? page.can : [];
  const only = (action: Action) => () => {
    if (can.includes(action)) act(action, { ids: [job.jobId] });
  };
  useViewKeys({ r: only("retry"), c: only("cancel") });
  return (
    <>
      <Head title={job.task}>
        {ACTIONS.filter((action) => can.includes(action)).map((action) => (
          <button type="button" key={action} class={action === "retry" ? "main" : undefined} onClick={only(action)}>{WORDS[action].verb}</button>
        ))}
        {can.includes("again") && <a class="button" href={link("new", job.task, { from: job.jobId })}>Run again…</a>}
      </Head>
      <p class="job-line">
        <State state={job.state} />
        <span class="mono job-id">{job.jobId}</span><Copy text={job.jobId} what="the id" />
        <span class="quiet">attempt {job.attempt} of {job.maxAttempts}</span>
      </p>
      {job.state === "running" && (
        <p class="job-progress"><Progress value={job.progress ?? 0} label="Progress of this job" /> {job.progress ?? 0} % {job.phase} {job.message}</p>
      )}
      <p class="note explain">
        <Icon name="info" />
        <span>{explain.text} {explain.also.join(" ")}</span>
        {explain.view && <a href={link(explain.view, "", { name: explain.name })}>Show in {explain.view}</a>}
      </p>
      {job.errorMessage && !page.attempts.some(({ errorMessage }) => errorMessage === job.errorMessage) && (
        <Section title="Error">
          <p><strong class="bad-text">{job.errorCode}</strong></p>
          <pre>{job.errorMessage}</pre>
        </Section>
      )}
      <Machine stops={stops(job, page.attempts)} due={job.finishedAt ? null : job.runAfter} />
      {page.timeline.length > 0 && <Timeline spans={page.timeline} />}
      <Attempts attempts={page.attempts} />
      <div class="columns">
        <Section title="Arguments" aside={<Copy text={write(page.args, 2)} what="the arguments" />}><pre>{write(page.args, 2)}</pre></Section>
        <Result page={page} />
      </div>
      <Logs jobId={job.jobId} first={page.logs} />
      <div class="columns">
        <Links page={page} />
        <Facts page={page} />
      </div>
      <Section title="From a shell">
        <Command text={`rowlock jobs show ${job.jobId}`} />
        <Command text={`rowlock jobs explain ${job.jobId}`} />
        {session.mayChange && <Command text={`rowlock enqueue ${quoted(job.task)} ${shellArguments(page.args)}`.trim()} />}
      </Section>
      {dialog}
    </>
  );
}

function Result({ page }: { page: JobPage }) {
  const { job, result } = page;
  const text = write(result, 2);
  return (
    <Section title="Result" aside={result !== null && result !== undefined ? <Copy text={text} what="the result" /> : undefined}>
      {job.resultUri && (
        <p>
          <a href={`api/jobs/${encodeURIComponent(job.jobId)}/result`} download>Download the file</a>
          <span class="quiet mono job-id"> {job.checksum}</span>
        </p>
      )}
      {result !== null && result !== undefined ? <pre>{text}</pre> : !job.resultUri && <p class="quiet">{job.state === "succeeded" ? "It returned nothing." : "None yet."}</p>}
    </Section>
  );
}

function Command({ text }: { text: string }) {
  return <p class="command"><code>{text}</code><Copy text={text} what="the command" /></p>;
}

function shellArguments(args: unknown): string {
  const pairs = Object.entries((args ?? {}) as Record<string, unknown>);
  return pairs.map(([name, value]) => quoted(`${name}=${typeof value === "string" ? value : write(value)}`)).join(" ");
}

/** A new job with the options of this one. */
export async function again(jobId: string, args: unknown): Promise<void> {
  const made = await post<{ jobId: string }>(`api/operator/jobs/${encodeURIComponent(jobId)}/again`, { args });
  go(link("job", made.jobId));
}
