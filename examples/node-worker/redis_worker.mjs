// A worker in JavaScript for tasks with runs_on="redis". It follows the worker contract
// (docs/reference/worker-contract.md): read job.requests with a consumer group, say that work has begun, write the output
// once, report, and only then acknowledge.
//
//   npm install && REDIS_URL=redis://localhost:6379 node redis_worker.mjs
//
// The "rendering" here copies the input file and takes options.durationMs. Replace `render` with your own.

import { createHash, randomUUID } from "node:crypto";
import { link, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const prefix = process.env.REDIS_PREFIX ?? "";
const group = process.env.WORKER_GROUP ?? "workers";
const consumer = process.env.WORKER_NAME ?? `node-${process.pid}-${randomUUID().slice(0, 8)}`;
const beatMs = Number(process.env.BEAT_MS ?? 15_000); // well below redis.lease_seconds of the bridge
const takeoverMs = Number(process.env.TAKEOVER_MS ?? 60_000); // above the longest time without a word of a worker
const requests = `${prefix}job.requests`;
const cancelled = new Set();
let stopping = false;

const redis = createClient({ url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379" });
const cancels = redis.duplicate(); // it blocks, so it has a connection of its own
for (const client of [redis, cancels]) client.on("error", (error) => console.error("redis:", error.message));

class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

class Cancelled extends Error {}

/** Do the work of one request; call `progress(percent, phase)` now and then. Answers the bytes of the output. */
async function render(options, progress) {
  const input = await readFile(options.inputPath).catch(() => {
    throw new Failure("INPUT_NOT_FOUND", `cannot read ${options.inputPath}`);
  });
  const began = Date.now();
  const total = Number(options.durationMs ?? 0);
  while (Date.now() - began < total) {
    await sleep(Math.min(100, total));
    await progress(Math.min(99, Math.floor((100 * (Date.now() - began)) / total)), "render");
  }
  return input;
}

/** Write the output once: under another name first, then linked, which never replaces a file. */
async function writeOnce(path, bytes) {
  await mkdir(dirname(path), { recursive: true });
  const partial = `${path}.${randomUUID()}.partial`;
  await writeFile(partial, bytes, { flush: true });
  try {
    await link(partial, path);
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    // This request was done before, and its output stays as it is.
  } finally {
    await rm(partial, { force: true });
  }
  return "sha256:" + createHash("sha256").update(await readFile(path)).digest("hex");
}

async function work(request) {
  const options = JSON.parse(request.options);
  const about = { jobId: request.jobId, ...(request.attempt ? { attempt: request.attempt } : {}) };
  let told = 0;
  const progress = async (percent, phase, now = false) => {
    if (cancelled.has(request.jobId)) throw new Cancelled();
    if (!now && Date.now() - told < beatMs) return;
    told = Date.now();
    await redis.xAdd(`${prefix}job.progress`, "*", { ...about, progress: String(percent), phase, message: "" });
  };
  let result;
  try {
    await progress(0, "start", true); // from now on the job is RUNNING
    const checksum = await writeOnce(options.outputPath, await render(options, progress));
    result = { status: "SUCCEEDED", resultUri: options.outputPath, checksum };
  } catch (error) {
    if (error instanceof Cancelled) result = { status: "CANCELLED" };
    else result = { status: "FAILED", errorCode: error.code ?? "ERROR", errorMessage: error.message };
  }
  await redis.xAdd(`${prefix}job.results`, "*", { ...about, ...result });
}

async function handle(entry) {
  if (entry?.message?.jobId && entry.message.options) {
    try {
      await work(entry.message);
    } catch (error) {
      console.error(`request ${entry.id} cannot be done:`, error.message); // such as options that are not JSON
    }
  }
  if (entry) await redis.xAck(requests, group, entry.id); // last: what dies before is done again
}

async function makeGroup() {
  await redis.xGroupCreate(requests, group, "0", { MKSTREAM: true }).catch((error) => {
    if (!error.message.startsWith("BUSYGROUP")) throw error;
  });
}

async function readCancels() {
  let last = "$";
  while (!stopping) {
    const answer = await cancels.xRead({ key: `${prefix}job.cancels`, id: last }, { BLOCK: 1000 }).catch(() => sleep(500));
    for (const { id, message } of answer?.[0]?.messages ?? []) {
      last = id;
      cancelled.add(message.jobId);
    }
  }
}

async function main() {
  await redis.connect();
  await cancels.connect();
  await makeGroup();
  const listening = readCancels();
  console.log(`worker ${consumer} reads ${requests}`);
  while (!stopping) {
    try {
      // First what a worker that died has left, then what is new.
      const left = await redis.xAutoClaim(requests, group, consumer, takeoverMs, "0-0", { COUNT: 1 });
      for (const entry of left.messages) await handle(entry);
      const read = { key: requests, id: ">" };
      const answer = await redis.xReadGroup(group, consumer, read, { COUNT: 1, BLOCK: 500 });
      for (const entry of answer?.[0]?.messages ?? []) await handle(entry);
    } catch (error) {
      if (error.message.startsWith("NOGROUP")) await makeGroup(); // Redis was restarted empty
      else {
        console.error("redis:", error.message);
        await sleep(500);
      }
    }
  }
  await listening;
  redis.destroy();
  cancels.destroy();
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (stopping = true));
await main();
