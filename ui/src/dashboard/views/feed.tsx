// What happens now, line by line; and what operators did.
import { useCallback, useRef, useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { clock } from "../../shared/time.ts";
import { useData } from "../data.ts";
import { number } from "../format.ts";
import { useMessages } from "../live.ts";
import { Ago, Empty, Head, JobLink, Section, State } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { type Page, type State as JobState, STATES } from "../types.ts";

const KEPT = 200;

interface Change {
  jobId: string;
  jobType: string;
  queue: string;
  status: string;
  attempt: number;
  progress: number | null;
  errorCode: string | null;
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
  const stopped = useRef(false);
  stopped.current = paused;
  useMessages(
    useCallback((message) => {
      if (message.type !== "jobs.changed" || stopped.current || message["full"]) return;
      const jobs = message["jobs"] as Change[];
      setLines((old) => [...[...jobs].sort((a, b) => b.at.localeCompare(a.at)), ...old].slice(0, KEPT));
    }, []),
  );
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = lines.filter((line) => words.every((word) => `${line.jobType} ${line.queue} ${line.status} ${line.errorCode ?? ""} ${line.jobId}`.toLowerCase().includes(word)));
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
              {shown.map((line, index) => (
                <tr key={`${lines.length - index} ${line.jobId} ${line.at}`}>
                  <td><time dateTime={line.at}>{clock(line.at, undefined, false)}</time></td>
                  <td><State state={stateOf(line)} /></td>
                  <td><JobLink id={line.jobId}>{line.jobType}</JobLink></td>
                  <td class="wide">{line.queue}</td>
                  <td class="wide">{line.errorCode ?? (line.status === "RUNNING" && line.progress ? `${line.progress} %` : "")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}

const DEAD = "FAILED"; // the job API's word

/** The feed has the job API's words: one for jobs that wait for their first attempt and for their next. */
function stateOf({ status, errorCode }: Change): JobState {
  if (status === DEAD) return "dead";
  if (status === "QUEUED" && errorCode !== null) return "retryable";
  return STATES.find((state) => state === status.toLowerCase()) ?? "queued";
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
