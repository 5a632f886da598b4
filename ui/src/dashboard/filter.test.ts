import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, number, percent, plural, quoted, rate, shortId, told } from "./format.ts";
import { filterOf, formatFilter, parseFilter, suggest } from "./filter.ts";
import { link, parseRoute } from "./router.ts";

test("a filter is read from words with fields, quotes and aliases", () => {
  assert.deepEqual(parseFilter("queue:links state:dead,cancelled error:HTTP_500"), {
    queue: "links", state: "dead,cancelled", errorCode: "HTTP_500",
  });
  assert.deepEqual(parseFilter('source:"domain:a b" 01a1e816'), { source: "domain:a b", id: "01a1e816" });
  assert.deepEqual(parseFilter("hello https://example.com/x"), { text: "hello https://example.com/x" });
});

test("what is written can be read again", () => {
  for (const filter of [{ state: "dead" }, { text: 'say "hi" \\ there', queue: "a b" }, { source: "domain:a" }, {}]) {
    assert.deepEqual(parseFilter(formatFilter(filter)), filter);
  }
});

test("only the fields of a filter are taken from an address", () => {
  assert.deepEqual(filterOf({ state: "dead", cursor: "x", page: "2" }), { state: "dead" });
});

test("suggestions complete the last word and keep what stands before it", () => {
  assert.deepEqual(suggest("state:dead que", {}), ["state:dead queue:"]);
  assert.deepEqual(suggest("queue:LI", { queue: ["links", "mail", "my list"] }), ["queue:links ", 'queue:"my list" ']);
});

test("a view's address and its parts are each other's inverse", () => {
  const route = { view: "jobs", name: "a/b c?#", query: { text: "x&y=z", state: "dead" } };
  assert.deepEqual(parseRoute(link(route.view, route.name, route.query)), route);
  assert.deepEqual(parseRoute(""), { view: "now", name: "", query: {} });
  assert.equal(link("jobs", "", { queue: "", state: null }), "#/jobs");
  assert.equal(parseRoute("#/job/%E0%A4%A").name, "%E0%A4%A");
});

test("numbers are written so that they can be compared", () => {
  assert.equal(number(1234567), "1\u202f234\u202f567");
  assert.equal(count({ count: 10000, exact: false }), "10\u202f000+");
  assert.equal(plural(1, "job"), "1 job");
  assert.deepEqual([0, 0.001, 0.04, 2.14, 312.4].map(rate), ["0", "<0.01", "0.04", "2.1", "312"]);
  assert.deepEqual([0, 0.0002, 0.006, 0.5].map(percent), ["0 %", "<0.1 %", "0.6 %", "50 %"]);
  assert.equal(bytes(81_235_968), "77 MB");
  assert.equal(shortId("01a1e816-66e9-7021-9c64-716195c1e13d"), "01a1e816…e13d");
  assert.equal(quoted("it's"), `'it'\\''s'`);
});

test("settings are told in words, with the unit that their name ends with", () => {
  const given = { succeededDays: 7, heartbeatSeconds: 0.5, argsBytes: 262_144, priority: [-100, 100], queues: ["a", "b"], direct: null };
  assert.deepEqual(told(given), [
    ["Succeeded", "7 days"], ["Heartbeat", "500 ms"], ["Arguments", "256 KB"], ["Priority", "-100 … 100"], ["Queues", "a, b"], ["Direct", "none"],
  ]);
});
