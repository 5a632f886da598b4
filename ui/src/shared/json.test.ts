import assert from "node:assert/strict";
import { test } from "node:test";
import { read, write } from "./json.ts";

test("whole numbers of any size survive reading and writing", () => {
  const text = '{"id":9007199254740993,"small":3,"half":0.5,"list":[-9007199254740995]}';
  assert.equal(write(read(text)), text);
});

test("nothing is undefined: what cannot be written is null", () => {
  assert.equal(write(undefined), "null");
});
