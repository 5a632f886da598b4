import assert from "node:assert/strict";
import { test } from "node:test";
import { BATCH, draw, type Node } from "./tree.ts";

const node = (jobId: string, parentId: string | null = null, kind: Node["kind"] = "job", task = "fetch"): Node => ({ jobId, task, state: "succeeded", parentId, kind });

test("every job is drawn once, beside the job that made it", () => {
  const nodes = [node("p", null, "parent"), node("a", "p"), node("b", "p"), node("c", "a", "child"), node("end", null, "onEnd")];
  const { boxes, lines } = draw(nodes);
  assert.deepEqual(boxes.flatMap(({ jobs }) => jobs.map(({ jobId }) => jobId)).sort(), ["a", "b", "c", "end", "p"]);
  assert.deepEqual(lines.map((line) => line.join(" ")).sort(), ["a c", "batch a", "batch b", "batch end", "p batch"]);
  const depth = Object.fromEntries(boxes.map((box) => [box.key, box.depth]));
  assert.deepEqual(depth, { p: 0, [BATCH]: 1, a: 2, b: 2, end: 2, c: 3 });
});

test("many jobs that led to nothing share a box, and no two boxes overlap", () => {
  const many = Array.from({ length: 30 }, (_, index) => node(`m${index}`));
  const { boxes, rows } = draw([...many, node("x", null, "job", "other"), node("y", "x", "child"), node("z", "x", "child")]);
  const group = boxes.find(({ jobs }) => jobs.length === 30);
  assert.ok(group);
  const taken = boxes.flatMap(({ depth, row, jobs }) => Array.from({ length: Math.ceil(jobs.length / 8) || 1 }, (_, more) => `${depth} ${row + more}`));
  assert.equal(new Set(taken).size, taken.length);
  assert.equal(rows, 4 + 2);
});

test("jobs that name each other as parents do not hang the page", () => {
  const { boxes } = draw([node("a", "b"), node("b", "a"), node("c", "c")]);
  assert.ok(boxes.length >= 2);
});
