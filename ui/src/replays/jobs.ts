// What the page knows about export jobs, and how events change it. Pure functions: tested by `node --test`.

export type Status = "QUEUED" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELLED";

export interface Job {
  jobId: string;
  jobType: string;
  status: Status;
  done: boolean;
  attempt: number;
  progress: number;
  phase: string | null;
  message: string | null;
  errorCode: string | null;
  errorMessage: string | null;
  stopping?: boolean; // a cancel was asked for, and the worker has not stopped yet
}

export interface Replay {
  replayId: string;
  title: string;
  durationMs: number;
  frameCount: number;
  createdAt: string;
  exports: { jobId: string; jobType: string; status: Status; progress: number }[];
}

export type Jobs = ReadonlyMap<string, Job>;

/** A job of which only what its replay tells is known. */
export function listed(one: Replay["exports"][number]): Job {
  const done = one.status === "SUCCEEDED" || one.status === "FAILED" || one.status === "CANCELLED";
  const unknown = { attempt: 0, phase: null, message: null, errorCode: null, errorMessage: null };
  return { ...unknown, ...one, done };
}

/** A job after an event. Events may come twice and after newer knowledge, and then change nothing: within an attempt
 * progress only grows, and an ended attempt stays ended. */
export function changed(known: Job | undefined, event: Job): Job {
  if (known !== undefined) {
    if (event.attempt < known.attempt) return known;
    if (event.attempt === known.attempt && known.done) return known;
    if (event.attempt === known.attempt && !event.done && event.progress < known.progress) return known;
  }
  const { jobId, jobType, status, done, attempt, progress, phase, message, errorCode, errorMessage } = event;
  const stopping = !done && known?.stopping === true;
  return { jobId, jobType, status, done, attempt, progress, phase, message, errorCode, errorMessage, stopping };
}

/** What a job is doing, in a few words. */
export function doing(job: Job): string {
  if (job.stopping && !job.done) return "stopping";
  switch (job.status) {
    case "QUEUED":
      return "waiting for a worker";
    case "RUNNING":
      return [job.phase, job.message].filter(Boolean).join(", ") || "running";
    case "SUCCEEDED":
      return "ready";
    case "CANCELLED":
      return "cancelled";
    case "FAILED":
      return job.errorMessage ?? "failed";
  }
}
