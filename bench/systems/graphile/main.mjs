// Graphile Worker with a local queue and batched completions. The verbs, flags and files are those of bench/adapter.py.

import { createRequire } from "node:module";
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";

const TASK = "job";
const BULK_CHUNK = 5_000; // jobs a statement; more is not faster and costs memory
const REPORT_MS = 5;
const logger = new Logger(() => (level, message) => {
  // Its warning of a pool smaller than concurrentJobs does not matter when jobs are fetched and completed in batches.
  if (level === "error") console.error(message);
});

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    url: { type: "string", default: "" },
    jobs: { type: "string", default: "1" },
    "sleep-ms": { type: "string", default: "0" },
    producers: { type: "string", default: "1" },
    concurrency: { type: "string", default: "100" },
    "slot-file": { type: "string" },
    "latency-file": { type: "string" },
  },
});
const verb = positionals[0];
const jobs = Number(values.jobs);
const sleepMs = Number(values["sleep-ms"]);
const producers = Number(values.producers);
const concurrency = Number(values.concurrency);

const say = (facts) => console.log(JSON.stringify(facts));
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as time.monotonic_ns() in Python

// What this process has handled: see Tally in bench/adapter.py.
class Tally {
  constructor(slotFile, latencyFile) {
    this.count = 0;
    this.published = 0;
    this.first = 0n;
    this.slot = openSync(slotFile, "w");
    this.latency = latencyFile ? openSync(latencyFile, "a") : null;
    this.latencies = [];
  }

  handled(sentNs) {
    if (this.count === 0) this.first = now();
    this.count += 1;
    if (sentNs) this.latencies.push(now() - BigInt(sentNs));
  }

  publish() {
    if (this.count === this.published) return;
    this.published = this.count;
    if (this.latency !== null && this.latencies.length > 0) {
      writeSync(this.latency, Buffer.from(BigInt64Array.from(this.latencies).buffer));
      this.latencies = [];
    }
    const slot = BigInt64Array.of(BigInt(this.published), this.first, now());
    writeSync(this.slot, Buffer.from(slot.buffer), 0, 24, 0);
  }
}

function handledBy(slotFile) {
  try {
    const data = readFileSync(slotFile);
    return data.length === 24 ? Number(data.readBigInt64LE(0)) : 0;
  } catch {
    return 0;
  }
}

async function producing(body) {
  const preset = { worker: { connectionString: values.url, maxPoolSize: Math.max(10, producers) } };
  const utils = await makeWorkerUtils({ preset, logger });
  try {
    await body(utils);
  } finally {
    await utils.release();
  }
}

// A BigInt is no JSON, so the time travels as text.
const enqueue = (utils, sentNs) => utils.addJob(TASK, { sleep_ms: sleepMs, sent_ns: sentNs?.toString() });

async function bulk(utils) {
  const spec = { identifier: TASK, payload: { sleep_ms: sleepMs } };
  const started = now();
  for (let start = 0; start < jobs; start += BULK_CHUNK) {
    await utils.addJobs(Array(Math.min(BULK_CHUNK, jobs - start)).fill(spec));
  }
  say({ seconds: Number(now() - started) / 1e9 });
}

async function enqueueMany(utils) {
  const produce = async (count) => {
    for (let i = 0; i < count; i++) await enqueue(utils);
  };
  await Promise.all(Array.from({ length: producers }, () => produce(5))); // connections and caches; not timed
  const each = Math.floor(jobs / producers);
  const started = now();
  await Promise.all(Array.from({ length: producers }, () => produce(each)));
  say({ seconds: Number(now() - started) / 1e9, jobs: each * producers });
}

async function ping(utils) {
  let handled = handledBy(values["slot-file"]);
  for (let i = 0; i < jobs; i++) {
    await enqueue(utils, now());
    handled += 1;
    const deadline = Date.now() + 10_000;
    while (handledBy(values["slot-file"]) < handled) {
      if (Date.now() > deadline) throw new Error("graphile-worker: a job was not picked up within 10 s");
      await sleep(2);
    }
    await sleep(10 + Math.random() * 10);
  }
  say({ jobs });
}

async function work() {
  const tally = new Tally(values["slot-file"], values["latency-file"]);
  const taskList = {
    [TASK]: async ({ sleep_ms, sent_ns }) => {
      tally.handled(sent_ns);
      if (sleep_ms) await sleep(sleep_ms);
    },
  };
  const preset = {
    worker: {
      connectionString: values.url,
      concurrentJobs: concurrency,
      maxPoolSize: 10,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  };
  const publishing = setInterval(() => tally.publish(), REPORT_MS);
  const stopped = new Promise((resolve) => {
    process.once("SIGTERM", resolve);
    process.once("SIGINT", resolve);
  });
  const runner = await run({ preset, taskList, logger, noHandleSignals: true, parsedCronItems: [] });
  await Promise.race([stopped.then(() => runner.stop()), runner.promise]);
  await runner.promise;
  clearInterval(publishing);
  tally.publish();
  closeSync(tally.slot);
  // 0.17.3 trips over jobs that its local queue holds at this moment and leaves its pool open, which would keep the
  // process alive for another 10 s.
  process.exit(0);
}

function describe() {
  const { version } = createRequire(import.meta.url)("graphile-worker/package.json");
  say({
    name: "graphile",
    engine: "postgres",
    version,
    settings: "localQueue 500, completeJobBatchDelay 0, concurrentJobs = concurrency",
    left_sql: "SELECT count(*) FROM graphile_worker._private_jobs",
  });
}

switch (verb) {
  case "describe":
    describe();
    break;
  case "setup":
    await runMigrations({ connectionString: values.url, logger });
    break;
  case "bulk":
    await producing(bulk);
    break;
  case "enqueue":
    await producing(enqueueMany);
    break;
  case "ping":
    await producing(ping);
    break;
  case "work":
    await work();
    break;
  default:
    console.error(`unknown verb: ${verb}`);
    process.exitCode = 2;
}
