// The live events of the job API: one WebSocket that comes back by itself after a break and misses nothing, or says
// `resync`. It rests while the page is hidden.
import { address, post, Problem } from "./api.ts";

export interface Message {
  type: string;
  eventId: string;
  [field: string]: unknown;
}

export type LiveState = "connecting" | "live" | "resting" | "broken" | "refused";

export interface Handlers {
  /** An event. `resync` means: events may be missing, read everything anew. */
  onMessage(message: Message): void;
  onState?(state: LiveState): void;
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const REFUSED = 4401;

/** Connect, and stay connected until `close` is called. */
export function connect({ onMessage, onState }: Handlers): { close(): void } {
  let socket: WebSocket | null = null;
  let timer: number | undefined;
  let lastEventId: string | null = null;
  let wait = FIRST_WAIT;
  let turn = 0; // a later attempt to connect makes earlier ones void

  async function open(): Promise<void> {
    const mine = ++turn;
    onState?.("connecting");
    try {
      const { ticket } = await post<{ ticket: string }>("api/tickets");
      if (mine === turn) listen(ticket, mine);
    } catch (error) {
      if (mine === turn) retry(error instanceof Problem && (error.status === 401 || error.status === 403));
    }
  }

  function listen(ticket: string, mine: number): void {
    const url = address("api/ws", { ticket, lastEventId }).replace(/^http/, "ws");
    const opened = new WebSocket(url);
    socket = opened;
    opened.onmessage = ({ data }) => {
      if (mine !== turn) return;
      const message = JSON.parse(String(data)) as Message;
      if (message.type === "error" || typeof message.eventId !== "string") return; // the position before it stays
      lastEventId = message.type === "resync" ? null : message.eventId;
      if (message.type === "ready") {
        wait = FIRST_WAIT;
        onState?.("live");
      }
      onMessage(message);
    };
    opened.onclose = ({ code }) => {
      if (mine === turn) retry(code === REFUSED);
    };
  }

  function retry(refused: boolean): void {
    socket = null;
    onState?.(refused ? "refused" : "broken");
    timer = window.setTimeout(() => void open(), refused ? LONGEST_WAIT : wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }

  function stop(): void {
    turn += 1;
    window.clearTimeout(timer);
    socket?.close();
    socket = null;
  }

  function onVisibility(): void {
    stop();
    if (document.hidden) onState?.("resting");
    else void open();
  }

  /** The machine has a network again: do not sit out the wait. */
  function onOnline(): void {
    if (!document.hidden && socket === null) {
      stop();
      void open();
    }
  }

  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("online", onOnline);
  if (document.hidden) onState?.("resting");
  else void open();
  return {
    close() {
      document.removeEventListener("visibilitychange", onVisibility);
      window.removeEventListener("online", onOnline);
      stop();
    },
  };
}
