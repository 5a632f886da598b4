import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "./live.ts";

/** What a browser has and Node has not: each socket is noted with its address, each timer with what it will call. */
class Socket {
  static opened: Socket[] = [];
  onmessage: (message: { data: string }) => void = () => undefined;
  onclose: (how: { code: number }) => void = () => undefined;
  readonly url: URL;

  constructor(url: string) {
    this.url = new URL(url);
    Socket.opened.push(this);
  }

  close(): void {}

  say(message: object): void {
    this.onmessage({ data: JSON.stringify(message) });
  }
}

const timers: (() => void)[] = [];
const nothing = (): void => undefined;
Object.assign(globalThis, {
  WebSocket: Socket,
  document: { baseURI: "http://127.0.0.1/", hidden: false, addEventListener: nothing, removeEventListener: nothing },
  window: {
    setTimeout: (call: () => void) => timers.push(call),
    clearTimeout: nothing,
    addEventListener: nothing,
    removeEventListener: nothing,
  },
  fetch: () => Promise.resolve(new Response('{"ticket": "good"}', { headers: { "Content-Type": "application/json" } })),
});

/** The next socket, after the wait before it. */
async function next(): Promise<Socket> {
  timers.shift()?.();
  while (Socket.opened.length === 0) await new Promise(setImmediate);
  return Socket.opened.shift() as Socket;
}

test("a socket that is refused does not lose the position, and one that got resync comes without", async () => {
  const seen: string[] = [];
  const connection = connect({ onMessage: ({ type }) => seen.push(type) });
  const first = await next();
  assert.equal(first.url.searchParams.get("lastEventId"), null);
  first.say({ type: "ready", eventId: "5.5" });
  first.say({ type: "job.progress", eventId: "7.7" });
  first.onclose({ code: 1006 });
  for (const eventId of [null, undefined, "7.7"]) {
    const refused = await next();
    assert.equal(refused.url.searchParams.get("lastEventId"), "7.7");
    refused.say({ type: "error", code: "TOO_MANY_CONNECTIONS", eventId });
    refused.onclose({ code: 4429 });
  }
  const late = await next();
  assert.equal(late.url.searchParams.get("lastEventId"), "7.7");
  late.say({ type: "resync", eventId: "9.9" });
  late.onclose({ code: 4409 });
  assert.equal((await next()).url.searchParams.get("lastEventId"), null);
  assert.deepEqual(seen, ["ready", "job.progress", "resync"]);
  connection.close();
});
