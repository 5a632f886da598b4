// The replays and export jobs of the user, kept up to date by the live events of the job API.
import { useEffect, useReducer, useRef } from "preact/hooks";
import { get, post, Problem } from "../shared/api.ts";
import { connect, type LiveState, type Message } from "../shared/live.ts";
import { changed, listed, type Job, type Jobs, type Replay } from "./jobs.ts";

const PAGE_SIZE = 20;
export const KINDS = [
  { jobType: "REPLAY_MP4", path: "mp4", name: "Video" },
  { jobType: "REPLAY_THUMBNAIL", path: "thumbnail", name: "Picture" },
] as const;

interface State {
  replays: Replay[] | null; // null: not read yet
  hasMore: boolean;
  jobs: Jobs;
  live: LiveState;
  problem: string | null;
  said: string; // the last thing that happened, for screen readers
}

type Change = Partial<State> | ((state: State) => Partial<State>);

export interface Store extends State {
  start(replay: Replay, path: string): void;
  cancel(job: Job): void;
  more(): void;
}

/** `onRefused` is called when the session is no longer good. */
export function useReplays(onRefused: () => void): Store {
  const [state, change] = useReducer(
    (before: State, next: Change) => ({ ...before, ...(typeof next === "function" ? next(before) : next) }),
    { replays: null, hasMore: false, jobs: new Map(), live: "connecting", problem: null, said: "" },
  );
  const reader = useRef<Reader | null>(null);
  useEffect(() => {
    reader.current = new Reader(change, onRefused);
    return () => reader.current?.close();
  }, []);

  async function act(asked: Promise<unknown>): Promise<void> {
    change({ problem: null });
    try {
      await asked;
    } catch (error) {
      if (error instanceof Problem && error.status === 401) onRefused();
      else change({ problem: error instanceof Error ? error.message : String(error) });
    }
  }

  return {
    ...state,
    start: (replay, path) => void act(reader.current!.start(replay, path)),
    cancel: (job) => void act(reader.current!.cancel(job)),
    more: () => void act(reader.current!.more()),
  };
}

/** Reads the lists, and applies events. Events that come while a list is read are applied after it. */
class Reader {
  #live: { close(): void };
  #change: (change: Change) => void;
  #onRefused: () => void;
  #reading = false;
  #again = false;
  #held: Job[] = [];
  #mine = new Set<string>(); // the jobs of the replays that are shown
  #pages = 1;
  #fresh = true; // the next `ready` begins anew: everything is read, and from there on no event is missed

  constructor(change: (change: Change) => void, onRefused: () => void) {
    this.#change = change;
    this.#onRefused = onRefused;
    this.#live = connect({ onMessage: (message) => this.#onMessage(message), onState: (live) => this.#onState(live) });
  }

  close(): void {
    this.#live.close();
  }

  async start(replay: Replay, path: string): Promise<void> {
    const { jobId } = await post<{ jobId: string }>(`api/replays/${replay.replayId}/exports/${path}`);
    const kind = KINDS.find((one) => one.path === path)!;
    this.#mine.add(jobId);
    const made = { jobId, jobType: kind.jobType, status: "QUEUED", progress: 0 } as const;
    this.#change(({ replays, jobs }) => {
      const job = jobs.get(jobId) ?? listed(made); // it is known if an event was faster than this answer
      return {
        jobs: new Map(jobs).set(jobId, job),
        replays: (replays ?? []).map((one) =>
          one.replayId === replay.replayId
            ? { ...one, exports: [...one.exports.filter((old) => old.jobType !== kind.jobType), made] }
            : one,
        ),
        said: job.done ? endOf(job, replay) : `${kind.name} of ${replay.title} was asked for`,
      };
    });
  }

  async cancel(job: Job): Promise<void> {
    const { status } = await post<{ status: string }>(`api/jobs/${job.jobId}/cancel`);
    this.#change(({ jobs }) => {
      const known = jobs.get(job.jobId) ?? job;
      if (known.done) return {};
      const ended = status === "CANCELLED";
      return { jobs: new Map(jobs).set(job.jobId, ended ? { ...known, status, done: true } : { ...known, stopping: true }) };
    });
  }

  async more(): Promise<void> {
    this.#pages += 1;
    await this.#read();
  }

  #onState(live: LiveState): void {
    this.#change({ live });
    if (live === "refused") void this.#read(); // answers 401 if the session has ended
  }

  #onMessage(message: Message): void {
    if (message.type === "resync") this.#fresh = true;
    else if (message.type === "ready" && this.#fresh) {
      this.#fresh = false;
      void this.#read();
    }
    else if (typeof message["jobId"] === "string") this.#apply(message as unknown as Job);
  }

  #apply(event: Job): void {
    if (this.#reading) {
      this.#held.push(event);
      return;
    }
    if (!this.#mine.has(event.jobId)) {
      void this.#read(); // asked for in another window
      return;
    }
    this.#change(({ jobs, replays, said }) => {
      const job = changed(jobs.get(event.jobId), event);
      const now = new Map(jobs).set(job.jobId, job);
      return { jobs: now, said: ends(replays ?? [], jobs, now).at(-1) ?? said };
    });
  }

  async #read(): Promise<void> {
    if (this.#reading) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    try {
      do {
        this.#again = false;
        await this.#readOnce();
      } while (this.#again);
    } catch (error) {
      if (error instanceof Problem && error.status === 401) this.#onRefused();
      else this.#change({ problem: error instanceof Error ? error.message : String(error) });
    } finally {
      this.#reading = false;
    }
    for (const event of this.#held.splice(0)) this.#apply(event);
  }

  async #readOnce(): Promise<void> {
    const numbers = [...Array(this.#pages).keys()];
    const [recent, ...pages] = await Promise.all([
      get<{ items: Job[] }>("api/jobs", { size: 100 }),
      ...numbers.map((page) => get<{ items: Replay[]; hasMore: boolean }>("api/replays", { page, size: PAGE_SIZE })),
    ]);
    const replays = pages.flatMap((page) => page.items);
    const jobs = new Map(replays.flatMap((one) => one.exports.map((made) => [made.jobId, listed(made)])));
    this.#mine = new Set(jobs.keys());
    for (const job of recent.items) if (jobs.has(job.jobId)) jobs.set(job.jobId, job);
    this.#change((before) => ({
      replays, jobs, hasMore: pages.at(-1)?.hasMore ?? false, problem: null,
      said: ends(replays, before.jobs, jobs).at(-1) ?? before.said, // the events of these ends change nothing any more
    }));
  }
}

/** What to say of the jobs that have ended between two moments. */
function ends(replays: Replay[], before: Jobs, now: Jobs): string[] {
  return replays.flatMap((replay) =>
    replay.exports
      .map(({ jobId }) => now.get(jobId))
      .filter((job) => job?.done && before.get(job.jobId)?.done === false)
      .map((job) => endOf(job!, replay)),
  );
}

function endOf(job: Job, replay: Replay): string {
  const kind = KINDS.find((one) => one.jobType === job.jobType)?.name ?? "Export";
  return `${kind} of ${replay.title}: ${job.status.toLowerCase()}`;
}
