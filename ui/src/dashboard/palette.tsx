// Find and go: an id, its first characters or a log line leads to the job; words lead to views, queues, tasks, schedules.
import { useEffect, useState } from "preact/hooks";
import { get } from "../shared/api.ts";
import { shortId } from "./format.ts";
import { Dialog } from "./parts/dialogs.tsx";
import { go, link } from "./router.ts";
import type { JobRow } from "./types.ts";
import { VIEWS } from "./views.tsx";

interface Place {
  title: string;
  kind: string;
  to: string;
}
interface Names {
  queues: string[];
  tasks: string[];
  sources: string[];
  schedules: string[];
}

export function Palette({ close }: { close: () => void }) {
  const [text, setText] = useState("");
  const [names, setNames] = useState<Names | null>(null);
  const [answer, setAnswer] = useState<{ text: string; jobs: Place[] }>({ text: "", jobs: [] });
  const [chosen, setChosen] = useState(0);
  useEffect(() => void get<Names>("api/operator/names").then(setNames, () => undefined), []);
  useEffect(() => {
    const stop = new AbortController();
    const answered = (jobs: Place[]): void => setAnswer({ text, jobs });
    const timer = window.setTimeout(() => void find(text, stop.signal).then(answered, () => answered([])), 150);
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, [text]);

  const searched = answer.text === text; // what an earlier text found is not shown: Enter would open the wrong job
  const found = [...(searched ? answer.jobs : []), ...matching(places(names), text)].slice(0, 12);
  const at = Math.min(chosen, found.length - 1);
  function open(place: Place | undefined): void {
    if (!place) return;
    close();
    go(place.to);
  }
  function onKey(event: KeyboardEvent): void {
    if (event.key === "ArrowDown") setChosen(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(at - 1, 0));
    else if (event.key === "Enter") open(found[Math.max(at, 0)]);
    else return;
    event.preventDefault();
  }
  return (
    <Dialog title="Find" close={close} wide>
      <input
        class="palette-input" type="text" role="combobox" aria-label="Job id, log line or name" aria-expanded="true"
        aria-controls="palette-list" aria-activedescendant={at >= 0 ? `palette-${at}` : undefined} autocomplete="off"
        spellcheck={false} placeholder="Paste a job's id, its first characters or a log line; or type a name"
        value={text} onInput={(event) => { setText(event.currentTarget.value); setChosen(0); }} onKeyDown={onKey}
      />
      <ul id="palette-list" class="palette" role="listbox" aria-label="Found">
        {found.map((place, index) => (
          <li key={place.to} id={`palette-${index}`} role="option" aria-selected={index === at} onClick={() => open(place)}>
            <span>{place.title}</span><span class="quiet">{place.kind}</span>
          </li>
        ))}
      </ul>
      <p class="quiet" role="status">{searched && found.length === 0 ? "Nothing found. Finished jobs are kept for some days only." : ""}</p>
    </Dialog>
  );
}

async function find(text: string, signal: AbortSignal): Promise<Place[]> {
  if (!/[0-9a-f]{4}/i.test(text)) return [];
  const { jobId, items } = await get<{ jobId: string | null; items: JobRow[] }>("api/operator/find", { text: text.slice(0, 2000) }, signal);
  const rows = items.map((job) => ({ title: `${job.task} ${shortId(job.jobId)}`, kind: `job, ${job.state}`, to: link("job", job.jobId) }));
  const named = jobId && !items.some((job) => job.jobId === jobId) ? [{ title: jobId, kind: "job", to: link("job", jobId) }] : [];
  return [...named, ...rows];
}

function places(names: Names | null): Place[] {
  return [
    ...VIEWS.map(({ view, title }) => ({ title, kind: "view", to: link(view) })),
    { title: "New job", kind: "view", to: link("new") },
    { title: "Failed jobs", kind: "view", to: link("jobs", "", { state: "dead" }) },
    { title: "Running jobs", kind: "view", to: link("jobs", "", { state: "running" }) },
    ...(names?.queues ?? []).map((queue) => ({ title: queue, kind: "jobs of the queue", to: link("jobs", "", { queue }) })),
    ...(names?.tasks ?? []).map((task) => ({ title: task, kind: "jobs of the task", to: link("jobs", "", { task }) })),
    ...(names?.schedules ?? []).map((schedule) => ({ title: schedule, kind: "jobs of the schedule", to: link("jobs", "", { schedule }) })),
    ...(names?.sources ?? []).map((source) => ({ title: source, kind: "jobs of the source", to: link("jobs", "", { source }) })),
  ];
}

function matching(all: Place[], text: string): Place[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter(({ title, kind }) => words.every((word) => `${title} ${kind}`.toLowerCase().includes(word)));
}
