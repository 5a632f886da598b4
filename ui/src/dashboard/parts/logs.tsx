// A job's own log lines, newest last; new ones are added while it runs.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get } from "../../shared/api.ts";
import { clock } from "../../shared/time.ts";
import { concerns, useMessages } from "../live.ts";
import type { JobPage, LogLine } from "../types.ts";
import { Section } from "./bits.tsx";

export function Logs({ jobId, first }: { jobId: string; first: JobPage["logs"] }) {
  const [lines, setLines] = useState<LogLine[]>(first.items);
  const last = useRef(0);
  last.current = lines.at(-1)?.seq ?? 0;
  const add = useCallback((found: LogLine[]) => {
    setLines((old) => [...old, ...found.filter(({ seq }) => seq > (old.at(-1)?.seq ?? 0))].slice(-500));
  }, []);
  useEffect(() => add(first.items), [first]);
  useMessages(
    useCallback((message) => {
      if (!concerns(message, ["jobs"]) || last.current === 0) return;
      void get<JobPage["logs"]>(`api/operator/jobs/${encodeURIComponent(jobId)}/logs`, { after: last.current }).then(({ items }) => add(items), () => undefined);
    }, [jobId]),
  );
  if (lines.length === 0) return null;
  return (
    <Section title="Log" aside={first.dropped > 0 ? <span class="quiet">{first.dropped} older lines are gone</span> : undefined}>
      <ol class="log" data-scrolls tabIndex={0} aria-label="Log lines">
        {lines.map((line) => (
          <li key={line.seq}>
            <time class="quiet" dateTime={line.at}>{clock(line.at, undefined, false)}</time>
            <span class={line.level === "ERROR" || line.level === "CRITICAL" ? "bad-text" : line.level === "WARNING" ? "warn-text" : "quiet"}>{line.level}</span>
            <span>{line.message}</span>
          </li>
        ))}
      </ol>
    </Section>
  );
}
