import assert from "node:assert/strict";
import { test } from "node:test";
import { stops } from "./course.ts";
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

test("of many attempts the last three are shown", () => {
  const attempts = [1, 2, 3, 4, 5].map((number) => failed(number, number * 2, number * 2 + 1));
  const found = stops({ ...job, attempt: 6, state: "succeeded", startedAt: at(20), finishedAt: at(21) }, attempts);
  assert.equal(found[1]?.note, "after 2 earlier attempts");
  assert.deepEqual(found.slice(-2).map(({ state }) => state), ["running", "succeeded"]);
});
