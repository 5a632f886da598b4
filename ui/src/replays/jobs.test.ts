import assert from "node:assert/strict";
import { test } from "node:test";
import { changed, doing, listed, type Job } from "./jobs.ts";

const running: Job = {
  jobId: "1", jobType: "REPLAY_MP4", status: "RUNNING", done: false, attempt: 1, progress: 40, phase: "encoding",
  message: "frame 4 of 10", errorCode: null, errorMessage: null,
};

test("an event that is older than what is known changes nothing", () => {
  assert.equal(changed(running, { ...running, progress: 30 }), running);
  assert.equal(changed({ ...running, attempt: 2 }, { ...running, progress: 90 }).progress, 40);
  const ended: Job = { ...running, status: "SUCCEEDED", done: true, progress: 100 };
  assert.equal(changed(ended, { ...running, progress: 90 }), ended);
});

test("a new attempt begins again, also after an end", () => {
  const failed: Job = { ...running, status: "FAILED", done: true };
  const again = changed(failed, { ...running, attempt: 2, progress: 5 });
  assert.deepEqual([again.status, again.progress, again.done], ["RUNNING", 5, false]);
});

test("a job that is stopping says so until it has ended", () => {
  const stopping = changed({ ...running, stopping: true }, { ...running, progress: 60 });
  assert.equal(doing(stopping), "stopping");
  assert.equal(doing(changed(stopping, { ...running, status: "CANCELLED", done: true })), "cancelled");
});

test("what a job does is told in words", () => {
  assert.equal(doing(running), "encoding, frame 4 of 10");
  assert.equal(doing({ ...running, phase: null, message: null }), "running");
  assert.equal(doing({ ...running, status: "FAILED", done: true, errorMessage: "the disk is full" }), "the disk is full");
  assert.equal(doing(listed({ jobId: "1", jobType: "REPLAY_MP4", status: "QUEUED", progress: 0 })), "waiting for a worker");
});
