import assert from "node:assert/strict";
import { test } from "node:test";
import { across, LEFT, niceSeconds, niceTop, rangeOf, RIGHT, ticks } from "./scale.ts";

const at = (text: string): number => Date.parse(`2026-11-17T${text}Z`);

test("an hour is marked at its quarters, whatever minute it begins at", () => {
  const range = { first: at("12:41:00"), last: at("13:41:00"), stepSeconds: 60 };
  assert.deepEqual(ticks(range, 6, 0), ["12:45:00", "13:00:00", "13:15:00", "13:30:00"].map(at));
  assert.deepEqual(ticks(range, 2, 0), ["13:00:00", "13:30:00"].map(at));
});

test("days are marked at midnight of the reader's clock", () => {
  const range = { first: at("12:00:00"), last: at("12:00:00") + 7 * 86_400_000, stepSeconds: 3600 };
  const marks = ticks(range, 7, 9 * 60);
  assert.equal(marks.length, 7);
  assert.equal(marks[0], at("15:00:00"));
});

test("a range ends with the last step, and fills the picture", () => {
  const range = rangeOf([{ at: "2026-11-17T12:00:00Z" }, { at: "2026-11-17T12:59:00Z" }], 60);
  const place = across(range, 600);
  assert.equal(place.x("2026-11-17T12:00:00Z"), LEFT);
  assert.equal(place.x(at("13:00:00")), 600 - RIGHT);
  assert.equal(Math.round(place.at(place.x(at("12:30:00")))), at("12:30:00"));
});

test("the top of an axis is round and near the largest value", () => {
  assert.deepEqual([0, 1, 3, 17, 280, 999].map(niceTop), [1, 1, 3, 20, 300, 1000]);
  assert.deepEqual([0.5, 3, 130, 90_000].map(niceSeconds), [1, 4, 240, 172_800]);
});
