// One live connection for the whole page, and who wants to know what of it.
import { useEffect, useState } from "preact/hooks";
import { connect, type LiveState, type Message } from "../shared/live.ts";

export type Panel = "now" | "jobs" | "queues" | "failures" | "workers" | "schedules" | "sources" | "batches" | "audit";
type Listener = (message: Message) => void;

const listeners = new Set<Listener>();
const watchers = new Set<(state: LiveState) => void>();
let state: LiveState = "connecting";
let connection: { close(): void } | null = null;

export function startLive(): void {
  connection ??= connect({
    onMessage: (message) => listeners.forEach((listener) => listener(message)),
    onState: (changed) => {
      state = changed;
      watchers.forEach((watcher) => watcher(changed));
    },
  });
}

export function stopLive(): void {
  connection?.close();
  connection = null;
}

export function useLiveState(): LiveState {
  const [shown, setShown] = useState(state);
  useEffect(() => {
    watchers.add(setShown);
    setShown(state);
    return () => void watchers.delete(setShown);
  }, []);
  return shown;
}

/** Call `listener` with each message for as long as the component is shown. */
export function useMessages(listener: Listener): void {
  useEffect(() => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, [listener]);
}

/** Whether a message says that these panels show something old: they changed, or messages may be missing. */
export function concerns(message: Message, panels: readonly Panel[]): boolean {
  if (message.type === "ready" || message.type === "resync") return true;
  return message.type === "panels.changed" && (message["panels"] as Panel[]).some((panel) => panels.includes(panel));
}
