import { useRef, useState } from "preact/hooks";
import { address } from "../shared/api.ts";
import { clock, duration } from "../shared/time.ts";
import { doing, type Job, type Replay } from "./jobs.ts";
import { KINDS, type Store } from "./store.ts";

type Kind = (typeof KINDS)[number];

export function ReplayCard({ replay, store, zone }: { replay: Replay; store: Store; zone: string }) {
  const [playing, setPlaying] = useState<string | null>(null);
  const jobs = KINDS.map((kind) => {
    const made = replay.exports.find((one) => one.jobType === kind.jobType);
    return { kind, job: made && store.jobs.get(made.jobId) };
  });
  return (
    <li class="replay card">
      <Stage replay={replay} jobs={jobs.map(({ job }) => job)} playing={playing} />
      <div class="about">
        <h2>{replay.title}</h2>
        <p class="quiet">
          {duration(replay.durationMs / 1000)} · {replay.frameCount.toLocaleString("en")} frames ·{" "}
          <time dateTime={replay.createdAt}>{clock(replay.createdAt, zone)}</time> {zone}
        </p>
      </div>
      <ul class="exports" aria-label={`Exports of ${replay.title}`}>
        {jobs.map(({ kind, job }) => (
          <Export key={kind.jobType} {...{ kind, job, replay, store, playing }} play={setPlaying} />
        ))}
      </ul>
    </li>
  );
}

/** The video while it is played, else the picture if there is one. */
function Stage({ replay, jobs, playing }: { replay: Replay; jobs: (Job | undefined)[]; playing: string | null }) {
  const [video, picture] = jobs;
  if (playing !== null && playing === video?.jobId && video.status === "SUCCEEDED") {
    return <video class="stage" controls autoplay muted src={result(video)} aria-label={`Video of ${replay.title}`} />;
  }
  if (picture?.status === "SUCCEEDED") {
    return <img class="stage" src={result(picture)} alt={`The middle of ${replay.title}`} />;
  }
  return (
    <div class="stage blank" aria-hidden="true">
      <svg viewBox="0 0 160 90" focusable="false">
        <path d="M80 8v74M20 8h120v74H20zM80 31a14 14 0 1 1 0 28 14 14 0 1 1 0-28" />
        <circle class="red" cx="58" cy="34" r="5" />
        <circle class="blue" cx="104" cy="58" r="5" />
      </svg>
    </div>
  );
}

interface Row {
  kind: Kind;
  job: Job | undefined;
  replay: Replay;
  store: Store;
  playing: string | null;
  play: (jobId: string | null) => void;
}

function Export({ kind, job, replay, store, playing, play }: Row) {
  const what = `the ${kind.name.toLowerCase()} of ${replay.title}`; // buttons of all cards have the same words
  const state = job === undefined ? "none" : job.stopping && !job.done ? "cancelled" : job.status.toLowerCase();
  return (
    <li class={`export ${state}`}>
      <span class="kind">{kind.name}</span>
      <span class="state">
        {job === undefined ? <span class="quiet">not made yet</span> : <><Icon state={state} /> {doing(job)}</>}
      </span>
      <div class="line">
        {job !== undefined && !job.done && (
          <span class="progress">
            <progress max={100} value={job.progress} aria-label={`Progress of ${what}`} />
            <span class="percent">{job.progress}%</span>
          </span>
        )}
        {job?.status === "FAILED" && job.errorCode !== null && <code class="code">{job.errorCode}</code>}
        <span class="actions">
          <MainButton {...{ kind, job, replay, store, what }} />
          {job?.status === "SUCCEEDED" && kind.path === "mp4" && (
            <PlayButton playing={playing === job.jobId} what={what} toggle={() => play(playing === job.jobId ? null : job.jobId)} />
          )}
          {job?.status === "SUCCEEDED" && (
            <a class="button" href={result(job)} download aria-label={`Download ${what}`}>Download</a>
          )}
        </span>
      </div>
    </li>
  );
}

const REST = 700; // milliseconds in which a second press is taken for a double click; the button says so by aria-disabled

/** Makes an export, or cancels it: one element in all states, so that it keeps the focus of who uses a keyboard. */
function MainButton({ kind, job, replay, store, what }: Pick<Row, "kind" | "job" | "replay" | "store"> & { what: string }) {
  const resting = useRef(false); // beside the state, which the second press of a double click would find unchanged
  const [shownResting, showResting] = useState(false);
  const word = job === undefined ? "Make" : job.done ? "Make again" : "Cancel";
  function press(): void {
    if (resting.current) return;
    rest(true);
    setTimeout(() => rest(false), REST);
    if (job === undefined || job.done) store.start(replay, kind.path);
    else if (!job.stopping) store.cancel(job);
  }
  function rest(now: boolean): void {
    resting.current = now;
    showResting(now);
  }
  return (
    <button
      type="button"
      class={job === undefined ? "main" : ""}
      aria-label={`${word} ${what}`}
      aria-disabled={shownResting || (job?.stopping === true && !job.done)}
      onClick={press}
    >
      {word}
    </button>
  );
}

function PlayButton({ playing, what, toggle }: { playing: boolean; what: string; toggle: () => void }) {
  const word = playing ? "Close" : "Play";
  return <button type="button" class="main" aria-label={`${word} ${what}`} onClick={toggle}>{word}</button>;
}

const PATHS: Record<string, string> = {
  queued: "M8 4v4l3 2",
  running: "M6.5 5.2v5.6L11 8z",
  succeeded: "M4.8 8.2 7 10.5l4.2-4.8",
  failed: "M8 4.6v4.2M8 11v.4",
  cancelled: "M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8",
};

function Icon({ state }: { state: string }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <circle cx="8" cy="8" r="7" />
      <path d={PATHS[state] ?? ""} />
    </svg>
  );
}

function result(job: Job): string {
  return address(`api/jobs/${job.jobId}/result`);
}
