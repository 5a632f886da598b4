import assert from "node:assert/strict";
import { test } from "node:test";
import { BATCH, draw, type Node, rowsOf } from "./tree.ts";

const node = (jobId: string, parentId: string | null = null, kind: Node["kind"] = "job", task = "fetch"): Node => ({ jobId, task, state: "succeeded", parentId, kind });

test("every job is drawn once, beside the job that made it", () => {
  const nodes = [node("p", null, "parent"), node("a", "p"), node("b", "p"), node("c", "a", "child"), node("end", null, "onEnd")];
  const { boxes, lines } = draw(nodes);
  assert.deepEqual(boxes.flatMap(({ jobs }) => jobs.map(({ jobId }) => jobId)).sort(), ["a", "b", "c", "end", "p"]);
  assert.deepEqual(lines.map((line) => line.join(" ")).sort(), ["a c", "batch a", "batch b", "batch end", "p batch"]);
  const depth = Object.fromEntries(boxes.map((box) => [box.key, box.depth]));
  assert.deepEqual(depth, { p: 0, [BATCH]: 1, a: 2, b: 2, end: 2, c: 3 });
});

test("alike jobs share a box with those that they led to, and no two boxes overlap", () => {
  const many = Array.from({ length: 30 }, (_, index) => node(`m${index}`));
  const led = many.map(({ jobId }) => node(`of ${jobId}`, jobId, "child", "report"));
  const { boxes, lines, rows } = draw([...many, ...led, node("x", null, "job", "other"), node("y", "x", "child"), node("z", "x", "child")]);
  const large = boxes.filter(({ jobs }) => jobs.length === 30);
  assert.equal(large.length, 2);
  assert.ok(lines.some(([from, to]) => from === large[0]?.key && to === large[1]?.key));
  const taken = boxes.flatMap((box) => Array.from({ length: rowsOf(box) }, (_, more) => `${box.depth} ${box.row + more}`));
  assert.equal(new Set(taken).size, taken.length);
  assert.equal(rows, 5 + 2);
});

test("what is dead stands first, and the end of the batch last", () => {
  const { boxes } = draw([node("a"), { ...node("b"), state: "dead" }, node("end", null, "onEnd")]);
  assert.deepEqual(boxes.map(({ key }) => key), [BATCH, "b", "a", "end"]);
});

test("jobs that name each other as parents do not hang the page", () => {
  const { boxes } = draw([node("a", "b"), node("b", "a"), node("c", "c")]);
  assert.deepEqual(boxes.map(({ key }) => key), [BATCH, "c"]); // nobody made the circle: it hangs on nothing
});
