// Small pieces that every view uses.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { copy } from "../../shared/copy.ts";
import { ago, clock } from "../../shared/time.ts";
import { shortId } from "../format.ts";
import { link } from "../router.ts";
import type { State as JobState } from "../types.ts";
import { Icon } from "./icon.tsx";

/** A state, by word, icon and colour. */
export function State({ state }: { state: JobState }) {
  return (
    <span class={`state ${state}`}>
      <Icon name={state} />
      {state}
    </span>
  );
}

const clocks = new Set<(now: Date) => void>();
let ticking = 0;

/** The time, to the second; one timer for all, and none while the page is hidden. */
export function useNow(): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    clocks.add(setNow);
    ticking ||= window.setInterval(() => {
      const moment = new Date();
      if (!document.hidden) clocks.forEach((set) => set(moment));
    }, 1000);
    return () => void clocks.delete(setNow);
  }, []);
  return now;
}

/** A moment, told from now; the exact time in a tip. */
export function Ago({ at, none = "–" }: { at: string | null | undefined; none?: string }) {
  const now = useNow();
  if (!at) return <>{none}</>;
  return (
    <time class="ago" dateTime={at} title={clock(at)}>
      {ago(at, now)}
    </time>
  );
}

export function JobLink({ id, children }: { id: string; children?: ComponentChildren }) {
  return (
    <a class={children ? undefined : "mono"} href={link("job", id)} title={id}>
      {children ?? shortId(id)}
    </a>
  );
}

export function Copy({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    const timer = done ? window.setTimeout(() => setDone(false), 2000) : undefined;
    return () => window.clearTimeout(timer);
  }, [done]);
  return (
    <button type="button" class="plain copy" onClick={() => void copy(text).then(setDone)} title={`Copy ${what}`}>
      <Icon name={done ? "succeeded" : "copy"} />
      <span class="off-screen" aria-live="polite">{done ? `Copied ${what}` : `Copy ${what}`}</span>
    </button>
  );
}

/** Nothing to show, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** The head of a view. If the focus went away with the view before, it goes on here, so that a screen reader tells where
 * the reader is. */
export function Head({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (document.activeElement === document.body) heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <header class="head">
      <h1 ref={heading} tabIndex={-1}>{title}</h1>
      <div class="head-actions">{children}</div>
    </header>
  );
}

export function Section({ title, children, aside }: { title: string; children: ComponentChildren; aside?: ComponentChildren }) {
  return (
    <section class="card section" aria-label={title}>
      <div class="section-head">
        <h2>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

export function Progress({ value, label }: { value: number; label: string }) {
  return <progress class="progress" value={value} max={100} aria-label={label}>{`${value} %`}</progress>;
}
