import assert from "node:assert/strict";
import { test } from "node:test";
import { machine, stops } from "./course.ts";
import type { Attempt } from "./types.ts";

const at = (second: number): string => `2026-11-17T12:00:${String(second).padStart(2, "0")}Z`;
const failed = (attempt: number, from: number, to: number): Attempt => ({
  attempt, outcome: "failed", worker: null, startedAt: at(from), endedAt: at(to), errorCode: null, errorMessage: null, traceback: null,
});
const job = { state: "dead", attempt: 1, createdAt: at(0), startedAt: at(1), finishedAt: at(3), errorCode: "X" } as const;

test("the last attempt of a dead job leads to its end and to nothing in between", () => {
  const found = stops(job, [failed(1, 1, 2)]); // the attempt's end may be noted a moment before the job's
  assert.deepEqual(found.map(({ state }) => state), ["queued", "running", "dead"]);
});

test("a job that waits for its next attempt is where its last attempt ended", () => {
  const waiting = { ...job, state: "retryable", finishedAt: null } as const;
  assert.deepEqual(stops(waiting, [failed(1, 1, 2)]).at(-1), { state: "retryable", at: at(2), note: "failed" });
});

test("a job that somebody has put back is queued", () => {
  const back = { ...job, state: "queued", finishedAt: null, startedAt: null } as const;
  assert.equal(stops(back, [failed(1, 1, 2)]).at(-1)?.state, "queued");
});

test("the state machine tells how often a job was in each state, for how long, and by which way it went", () => {
  const whole = { ...job, attempt: 3, state: "succeeded", startedAt: at(20), finishedAt: at(25) } as const;
  const { stations, ways } = machine(stops(whole, [failed(1, 2, 4), failed(2, 10, 11)]), Date.parse(at(30)));
  const of = Object.fromEntries(stations.map(({ state, visits, seconds, here }) => [state, [visits, seconds, here]]));
  assert.deepEqual(of, { queued: [1, 2, false], running: [3, 8, false], retryable: [2, 15, false], succeeded: [1, 5, true] });
  assert.deepEqual(ways.map(({ from, to, times }) => `${from} ${to} ${times}`), ["queued running 1", "running retryable 2", "retryable running 2", "running succeeded 1"]);
});
