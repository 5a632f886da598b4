// What happens now, line by line; and what operators did.
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { clock } from "../../shared/time.ts";
import { useData } from "../data.ts";
import { number } from "../format.ts";
import { Ago, Empty, Head, JobLink, Section, State } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import type { JobRow, Page } from "../types.ts";

const KEPT = 200;
const LOOKED = 100; // newest and running jobs whose changes are shown
const FOUND = 10; // jobs that one search gives

interface Change {
  job: JobRow;
  at: string;
}
interface Deed {
  id: number;
  at: string;
  who: string;
  via: string;
  address: string | null;
  action: string;
  target: string | null;
  count: number | null;
}

export function FeedView() {
  return (
    <>
      <Head title="Feed" />
      <Changes />
      <Audit />
    </>
  );
}

function Changes() {
  const [lines, setLines] = useState<Change[]>([]);
  const [paused, setPaused] = useState(false);
  const [text, setText] = useState("");
  const newest = useData<Page<JobRow>>("api/operator/jobs", { limit: LOOKED }, ["jobs"], paused).value?.items;
  const running = useData<Page<JobRow>>("api/operator/jobs", { state: "running", limit: LOOKED }, ["jobs"], paused).value?.items;
  const known = useRef<Map<string, JobRow> | null>(null);
  useEffect(() => {
    if (newest === undefined || running === undefined) return;
    const seen = new Map([...running, ...newest].map((job) => [job.jobId, job]));
    const before = known.current;
    known.current = seen;
    if (before === null) return;
    const add = (jobs: Iterable<JobRow>): void => {
      const changes = [...jobs].filter((job) => shape(job) !== shape(before.get(job.jobId))).map((job) => ({ job, at: at(job, before) }));
      if (changes.length > 0) setLines((old) => [...changes.sort((a, b) => b.at.localeCompare(a.at)), ...old].slice(0, KEPT));
    };
    add(seen.values());
    // A job that ran, and is not among the newest: what has become of it?
    const gone = [...before.values()].filter((job) => job.state === "running" && !seen.has(job.jobId)).slice(0, FOUND);
    if (gone.length > 0) {
      void get<Page<JobRow>>("api/operator/find", { text: gone.map((job) => job.jobId).join(" ") }).then(({ items }) => add(items), () => undefined);
    }
  }, [newest, running]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = lines.filter(({ job }) => words.every((word) => `${job.task} ${job.queue} ${job.state} ${job.errorCode ?? ""} ${job.jobId}`.toLowerCase().includes(word)));
  return (
    <Section title="Jobs" aside={
      <div class="section-tools">
        <input type="search" aria-label="Only lines with these words" placeholder="only lines with…" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</button>
      </div>
    }>
      {shown.length === 0 ? <p class="quiet">{paused ? "Paused." : "Waiting for something to happen."}</p> : (
        <div class="scroll feed" data-scrolls tabIndex={0} role="region" aria-label="Changes of jobs">
          <table class="list">
            <thead><tr><th scope="col">At</th><th scope="col">State</th><th scope="col">Job</th><th scope="col" class="wide">Queue</th><th scope="col" class="wide">What</th></tr></thead>
            <tbody>
              {shown.map(({ job, at }, index) => (
                <tr key={`${lines.length - index} ${job.jobId} ${at}`}>
                  <td><time dateTime={at}>{clock(at, undefined, false)}</time></td>
                  <td><State state={job.state} /></td>
                  <td><JobLink id={job.jobId}>{job.task}</JobLink></td>
                  <td class="wide">{job.queue}</td>
                  <td class="wide">{job.errorCode ?? (job.state === "running" && job.progress ? `${job.progress} %` : "")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}

/** What a line shows of a job: two jobs of one shape are one line. */
function shape(job: JobRow | undefined): string {
  return job === undefined ? "" : `${job.state} ${job.attempt} ${job.progress} ${job.errorCode}`;
}

/** When a job came to what it is; about now, if it was seen before and the row has no time for it. */
function at(job: JobRow, before: ReadonlyMap<string, JobRow>): string {
  return job.finishedAt ?? (before.has(job.jobId) ? new Date().toISOString() : (job.startedAt ?? job.createdAt));
}

function Audit() {
  const [more, setMore] = useState<Deed[]>([]);
  const data = useData<Page<Deed>>("api/operator/audit", { limit: 50 }, ["audit"], more.length > 0);
  const shown = [...(data.value?.items ?? []), ...more];
  async function older(): Promise<void> {
    const page = await get<Page<Deed>>("api/operator/audit", { limit: 50, before: shown.at(-1)?.id });
    setMore([...more, ...page.items]);
  }
  return (
    <Section title="What operators did">
      <Loaded data={data}>
        {() => shown.length === 0 ? <Empty title="Nobody has changed anything"><p>Retries, cancels and pauses are noted here, with who and when.</p></Empty> : (
          <>
            <table class="list">
              <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th><th scope="col" class="wide">Of</th><th scope="col" class="number">Count</th></tr></thead>
              <tbody>
                {shown.map((deed) => (
                  <tr key={deed.id}>
                    <td><Ago at={deed.at} /></td>
                    <td>{deed.who}{deed.address && <span class="below quiet">{deed.address}</span>}</td>
                    <td><code>{deed.action}</code></td>
                    <td class="wide what">{deed.target}</td>
                    <td class="number">{deed.count === null ? "" : number(deed.count)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            {shown.length % 50 === 0 && <p class="more"><button type="button" onClick={() => void older()}>Show older</button></p>}
          </>
        )}
      </Loaded>
    </Section>
  );
}
