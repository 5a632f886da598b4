import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, between, clock, duration, roughly } from "./time.ts";

test("durations are written in the two largest units", () => {
  const cases: [number, string][] = [
    [0, "0 s"], [0.0123, "12 ms"], [0.4, "400 ms"], [1, "1 s"], [2.345, "2.3 s"], [59.4, "59 s"], [59.7, "1 min"],
    [60, "1 min"], [185, "3 min 5 s"], [3599.6, "1 h"], [3600, "1 h"], [7800, "2 h 10 min"], [86_399, "1 d"],
    [356_400, "4 d 3 h"], [-5, "0 s"],
  ];
  for (const [seconds, text] of cases) assert.equal(duration(seconds), text, String(seconds));
});

test("a moment is told from now, in one unit", () => {
  const now = new Date("2026-11-17T12:00:00Z");
  assert.equal(ago("2026-11-17T12:00:00.500Z", now), "just now");
  assert.equal(ago("2026-11-17T11:59:48Z", now), "12 s ago");
  assert.equal(ago("2026-11-17T12:03:00Z", now), "in 3 min");
  assert.equal(ago("2026-11-15T11:00:00Z", now), "2 d ago");
  assert.deepEqual([3.9, 132, 7300, 90_000].map(roughly), ["3 s", "2 min", "2 h", "1 d"]);
});

test("a moment is shown in the zone that is asked for", () => {
  assert.equal(clock("2026-11-17T15:30:05Z", "Asia/Seoul"), "2026-11-18 00:30:05");
  assert.equal(clock("2026-11-17T15:30:05Z", "UTC", false), "15:30:05");
  assert.equal(between("2026-11-17T15:30:05Z", "2026-11-17T15:31:05+00:00"), 60);
});
