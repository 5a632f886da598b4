// A Rowlock worker in Node that knows nothing but SQL: it claims, beats, reports and ends jobs by the functions of the
// schema `rowlock`. One process, SLOTS jobs at a time.
//
//   DATABASE_URL=postgresql://… SLOTS=4 QUEUES=default node sql_worker.mjs
//
// SIGTERM stops it: no new claims, and what is still running goes back to the queue without using up a try.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import pg from "pg";

const LEASE_SECONDS = Number(process.env.LEASE_SECONDS ?? 60);
const POLL_MS = Number(process.env.POLL_MS ?? 500);
const SLOTS = Number(process.env.SLOTS ?? 4);
const QUEUES = (process.env.QUEUES ?? "default").split(",");
const WORKER = `${hostname()}-${process.pid}-${Date.now()}`;

// --- what the jobs do: one function for each task. Replace these by your own.

class Permanent extends Error {} // no further try will help

const tasks = {
  "node.add": async ({ a, b }) => ({ sum: a + b }),
  "node.fail": async ({ reason }) => {
    throw new Error(reason);
  },
  "node.refuse": async ({ reason }) => {
    throw new Permanent(reason);
  },
  "node.slow": async ({ steps, ms }, job) => {
    for (let step = 1; step <= steps; step++) {
      await sleep(ms, undefined, { signal: job.signal }); // ends at once when the job is cancelled or lost
      await job.progress(Math.round((100 * step) / steps), "working", `step ${step} of ${steps}`);
    }
    return { steps };
  },
};

// --- the worker

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 3 });
const running = new Map(); // job id -> { job, abort, done }
let stopping = false;

const log = (event, more = {}) => console.log(JSON.stringify({ event, worker: WORKER, ...more }));

// PostgreSQL stores no NUL character; an error must be stored whatever it says.
const storable = (error) => String(error?.message ?? error).replaceAll("\0", "\\0");

async function call(text, values) {
  for (let attempt = 1; ; attempt++) {
    try {
      return (await pool.query(text, values)).rows;
    } catch (error) {
      // Deadlocks and lost connections pass; every function may be called again: a repeat is answered `duplicate`.
      const passes = error.code === "40P01" || error.code === "40001" || error.code?.startsWith("08") || !error.code;
      if (!passes || attempt === 5) throw error;
      await sleep(100 * attempt);
    }
  }
}

async function run(job) {
  const abort = new AbortController();
  const lease = [job.job_id, job.token];
  const told = async (progress, phase, message) => {
    const [{ answer }] = await call("SELECT rowlock.progress($1, $2, $3, $4, $5) AS answer", [
      ...lease, progress, phase, message,
    ]);
    if (answer !== "held") abort.abort(answer);
  };
  const done = (async () => {
    log("started", { job: job.job_id, task: job.task, attempt: job.attempt });
    let answer;
    try {
      const result = await tasks[job.task](job.args, { ...job, progress: told, signal: abort.signal });
      [{ answer }] = await call("SELECT rowlock.complete($1, $2, $3::jsonb) AS answer", [
        ...lease, result === undefined ? null : JSON.stringify(result),
      ]);
    } catch (error) {
      if (abort.signal.aborted) {
        // Asked to stop, or shutting down: a job whose cancel was requested becomes cancelled, any other goes back.
        [{ answer }] = await call("SELECT rowlock.release($1, $2, 0, 'stopped') AS answer", lease);
      } else {
        const options = { code: error.constructor.name, permanent: error instanceof Permanent };
        [{ answer }] = await call("SELECT rowlock.fail($1, $2, $3, $4::jsonb) AS answer", [
          ...lease, storable(error), JSON.stringify(options),
        ]);
      }
    }
    running.delete(job.job_id);
    log("ended", { job: job.job_id, answer }); // applied; duplicate after a repeat; lost if another worker has the job
  })();
  running.set(job.job_id, { job, abort, done });
  if (stopping) abort.abort("shutdown"); // claimed while the signal came
  done.catch((error) => {
    running.delete(job.job_id); // its lease runs out, and another worker gets the job
    log("trouble", { job: job.job_id, error: storable(error) });
  });
}

async function beat() {
  while (!stopping || running.size > 0) {
    await sleep((LEASE_SECONDS * 1000) / 4);
    const leases = [...running.values()].map(({ job }) => ({ job_id: job.job_id, token: job.token }));
    if (leases.length === 0) continue;
    try {
      const rows = await call("SELECT job_id, answer FROM rowlock.heartbeat($1, $2::jsonb, $3)", [
        WORKER, JSON.stringify(leases), LEASE_SECONDS,
      ]);
      for (const { job_id, answer } of rows) {
        if (answer !== "held") running.get(job_id)?.abort.abort(answer);
      }
    } catch (error) {
      log("trouble", { error: storable(error) });
    }
  }
}

async function claim() {
  while (!stopping) {
    const free = SLOTS - running.size;
    let claimed = [];
    try {
      claimed = free > 0
        ? await call("SELECT * FROM rowlock.claim($1, $2, $3, $4::jsonb)", [
            WORKER, Object.keys(tasks), free, JSON.stringify({ queues: QUEUES, lease_seconds: LEASE_SECONDS }),
          ])
        : [];
    } catch (error) {
      log("trouble", { error: storable(error) });
    }
    claimed.forEach(run);
    if (claimed.length === 0) await sleep(free > 0 ? POLL_MS : 20);
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => {
    stopping = true;
    for (const { abort } of running.values()) abort.abort("shutdown");
  });
}

log("ready", { tasks: Object.keys(tasks) });
beat();
await claim();
await Promise.allSettled([...running.values()].map(({ done }) => done));
await pool.end();
log("stopped");
process.exit(0);
