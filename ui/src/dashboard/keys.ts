// Keyboard: one list for the listener and for the help page.
import { useLayoutEffect, useRef } from "preact/hooks";
import { go, link } from "./router.ts";

export const KEYS: [string, string][] = [
  ["Ctrl K", "find a job, or go somewhere"],
  ["/", "edit the filter (on other views: find)"],
  ["j  k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["r", "retry the selection, or this job"],
  ["c", "cancel the selection, or this job"],
  ["f", "failed jobs only"],
  ["g n", "go to Now"],
  ["g j", "go to Jobs"],
  ["g q", "go to Queues"],
  ["g f", "go to Failures"],
  ["g w", "go to Workers"],
  ["g s", "go to Schedules"],
  ["g b", "go to Batches"],
  ["g c", "go to Charts"],
  ["g t", "go to Settings"],
  ["?", "this list"],
];
const PLACES: Record<string, string> = { n: "now", j: "jobs", q: "queues", f: "failures", w: "workers", s: "schedules", b: "batches", c: "charts", t: "settings" };

/** Whether a key was meant for something that the reader types into. */
function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && target.type === "checkbox");
}

export function useKeys(open: (what: "palette" | "help") => void): void {
  const waiting = useRef(0); // until when a second key after `g` counts
  useLayoutEffect(() => { // with the change of the page itself: a key that follows at once must find it
    function onKey(event: KeyboardEvent): void {
      // Asked of the page: after Escape a dialog is closed before this program has heard of it.
      const inDialog = document.querySelector("dialog[open]") !== null;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (!inDialog) open("palette");
        return;
      }
      if (inDialog || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const place = event.timeStamp < waiting.current ? PLACES[event.key] : undefined; // pressed then; heard later by a busy page
      waiting.current = event.key === "g" ? event.timeStamp + 1500 : 0;
      if (place) {
        event.preventDefault();
        event.stopImmediatePropagation();
        go(link(place));
      } else if (event.key === "?") {
        open("help");
      } else if (event.key === "f") {
        go(link("jobs", "", { state: "dead" }));
      } else if (event.key === "/") {
        event.preventDefault();
        const filter = document.getElementById("filter");
        if (filter) filter.focus();
        else open("palette");
      } else if (event.key === "j" || event.key === "k") {
        step(event.key === "j" ? 1 : -1);
      }
    }
    document.addEventListener("keydown", onKey, true);
    return () => document.removeEventListener("keydown", onKey, true);
  }, []);
}

/** Move the focus to the main link of the next row. */
function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>("a[data-row]")];
  const row = document.activeElement?.closest("tr");
  const at = links.findIndex((found) => found === document.activeElement || (row && found.closest("tr") === row));
  const next = links[at === -1 ? 0 : at + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Keys of one view, such as `r` and `c`. */
export function useViewKeys(keys: Record<string, () => void>): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => { // with the change of the page itself: a key that follows at once must find it
    function onKey(event: KeyboardEvent): void {
      const act = latest.current[event.key];
      const inDialog = document.querySelector("dialog[open]") !== null;
      if (!act || inDialog || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      event.preventDefault();
      act();
    }
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}
