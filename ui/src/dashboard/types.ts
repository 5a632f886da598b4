// The records that the operator routes answer, as far as the pages use them.

export type State = "queued" | "running" | "retryable" | "succeeded" | "dead" | "cancelled";
export const STATES: State[] = ["queued", "running", "retryable", "succeeded", "dead", "cancelled"];
export type Outcome = "succeeded" | "failed" | "timed_out" | "lost" | "cancelled" | "released" | "running";
export type Action = "retry" | "cancel" | "runNow" | "delete";

export interface Count {
  count: number;
  exact: boolean;
}

export interface Session {
  owner: string | null;
  scope: "jobs" | "operator" | "operator:read";
  mayChange: boolean;
  zone: string;
  expiresAt: string | null;
  csrf: string | null;
}

export interface Minute {
  at: string;
  succeeded: number;
  dead: number;
  cancelled: number;
  failed: number;
}

export interface Trouble {
  kind: string;
  text: string;
  view: string | null;
  name: string | null;
}

export interface Now {
  at: string;
  sentence: string;
  problems: Trouble[];
  waiting: Count;
  scheduled: Count;
  running: number;
  oldestSeconds: number | null;
  oldestQueue: string | null;
  perMinute: { succeeded: number; dead: number; cancelled: number; failed: number };
  failureRate: number | null;
  workers: { alive: number; silent: number; slots: number; busy: number };
  totals: Record<string, number>;
  minutes: Minute[];
  unknownTasks: { queue: string; task: string; waiting: number }[];
}

export interface JobRow {
  jobId: string;
  task: string;
  queue: string;
  state: State;
  priority: number;
  attempt: number;
  maxAttempts: number;
  owner: string | null;
  source: string | null;
  tags: string[] | null;
  batchId: string | null;
  scheduleId: string | null;
  progress: number | null;
  phase: string | null;
  message: string | null;
  errorCode: string | null;
  errorMessage: string | null;
  createdAt: string;
  runAfter: string | null;
  startedAt: string | null;
  finishedAt: string | null;
  worker: string | null;
}

export interface Page<T> {
  items: T[];
  nextCursor?: string | null;
}

export interface Counts {
  states: Record<State, Count>;
  total: Count;
}

export interface WholeJob extends JobRow {
  timeoutSeconds: number | null;
  expiresAt: string | null;
  releases: number;
  losses: number;
  cancelRequestedAt: string | null;
  heartbeatAt: string | null;
  leaseExpiresAt: string | null;
  resultUri: string | null;
  checksum: string | null;
  tick: string | null;
  unreadable: string[];
}

export interface Attempt {
  attempt: number;
  outcome: Outcome;
  worker: string | null;
  startedAt: string | null;
  endedAt: string;
  errorCode: string | null;
  errorMessage: string | null;
  traceback: string | null;
}

export interface Span {
  kind: "wait" | "delay" | "run" | "backoff" | "lost";
  from: string;
  to: string | null;
  attempt: number | null;
  outcome: Outcome | null;
}

export interface JobLink {
  jobId: string;
  task: string;
  state: State;
}

/** A job that was deleted or pruned. */
export interface GoneJob {
  jobId: string;
  task: null;
  state: null;
}

export interface LogLine {
  seq: number;
  attempt: number;
  at: string;
  level: string;
  message: string;
}

export interface JobPage {
  job: WholeJob;
  args: unknown;
  result: unknown;
  attempts: Attempt[];
  timeline: Span[];
  explain: { reason: string; text: string; also: string[]; waitsUntil: string | null; view: string | null; name: string | null };
  links: {
    /** The job whose handler or whose end made this one; without a task when it is gone. */
    parent: JobLink | GoneJob | null;
    children: JobLink[];
    childCount: Count;
    endedBatch: { id: string; name: string | null; state: string } | null;
    batch: { id: string; name: string | null; state: string } | null;
    schedule: { id: string } | null;
    worker: { id: string; alive: boolean } | null;
  };
  logs: { items: LogLine[]; dropped: number };
  can: (Action | "again")[];
}

export interface Quantiles {
  p50: number;
  p95: number;
}

export interface Queue {
  name: string;
  queued: number;
  retryable: number;
  running: number;
  waiting: number;
  oldestReadySeconds: number | null;
  longestRunningSeconds: number | null;
  paused: boolean;
  exact: boolean;
  slots: number;
  workers: number;
  minutes: Minute[];
  runSeconds: Quantiles | null;
  waitSeconds: Quantiles | null;
}

export interface Failure {
  fingerprint: string;
  task: string;
  errorCode: string | null;
  message: string;
  example: string;
  count: number;
  firstSeen: string;
  lastSeen: string;
  trend: number[];
  sources: { source: string; count: number }[];
  lastJobId: string;
}

export interface Slot {
  jobId: string;
  task: string;
  queue: string;
  attempt: number;
  since: string;
  seconds: number;
  progress: number | null;
  phase: string | null;
}

export interface Worker {
  id: string;
  hostname: string;
  pid: number;
  version: string | null;
  queues: string[];
  tasks: string[];
  poolSize: number;
  running: number;
  startedAt: string;
  seenAt: string;
  alive: boolean;
  heartbeatAgeSeconds: number;
  memoryBytes: number | null;
  /** What an operator has asked of it. */
  stopRequested: "drain" | "stop" | null;
  stopRequestedAt: string | null;
  slots: Slot[];
}

export interface Tick {
  at: string;
  jobId: string | null;
  state: State | null;
  fired: boolean;
  what: "fired" | "skipped" | "missed";
}

export interface Schedule {
  id: string;
  task: string;
  args: unknown;
  rule: string;
  zone: string;
  missed: string;
  overlap: string;
  pausedAt: string | null;
  problem: string | null;
  /** Not if it comes from code or from the config file: it is changed there. */
  editable: boolean;
  origin: string;
  words: string;
  next: string[];
  ticks: Tick[];
}
