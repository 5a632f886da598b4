// Jobs as a table. Rows are keyed by id, so that focus and selection stay where they are while the list is live.
import { between, duration } from "../../shared/time.ts";
import { shortId } from "../format.ts";
import { link } from "../router.ts";
import type { JobRow } from "../types.ts";
import { Ago, Progress, State, useNow } from "./bits.tsx";

interface Given {
  rows: JobRow[];
  selected?: ReadonlySet<string>;
  toggle?: ((id: string) => void) | undefined;
  all?: (ids: string[]) => void;
}

export function JobTable({ rows, selected = new Set(), toggle, all }: Given) {
  const whole = rows.length > 0 && rows.every((row) => selected.has(row.jobId));
  return (
    <table class="list jobs">
      <thead>
        <tr>
          {toggle && (
            <th scope="col" class="tick"><input type="checkbox" aria-label="Select all rows shown" checked={whole} onChange={() => all?.(whole ? [] : rows.map((row) => row.jobId))} /></th>
          )}
          <th scope="col">State</th>
          <th scope="col">Job</th>
          <th scope="col" class="wide">Queue</th>
          <th scope="col" class="wide number">Attempt</th>
          <th scope="col" class="wide">What</th>
          <th scope="col" class="wide number">Ran</th>
          <th scope="col" class="number">Created</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.jobId} data-id={row.jobId} class={selected.has(row.jobId) ? "selected" : undefined}>
            {toggle && (
              <td class="tick"><input type="checkbox" aria-label={`Select ${row.task} ${shortId(row.jobId)}`} checked={selected.has(row.jobId)} onChange={() => toggle(row.jobId)} /></td>
            )}
            <td><State state={row.state} /></td>
            <td class="job-cell">
              <a data-row href={link("job", row.jobId)}>{row.task}</a>
              <span class="mono quiet id">{shortId(row.jobId)}</span>
              <span class="narrow quiet">{row.queue} <What row={row} /></span>
            </td>
            <td class="wide">{row.queue}</td>
            <td class="wide number">{row.attempt} / {row.maxAttempts}</td>
            <td class="wide"><div class="what"><What row={row} /></div></td>
            <td class="wide number"><Ran row={row} /></td>
            <td class="number"><Ago at={row.createdAt} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The one thing to know of a job in this state. */
function What({ row }: { row: JobRow }) {
  if (row.state === "running") {
    return row.progress ? <><Progress value={row.progress} label={`Progress of ${row.task}`} /> {row.phase ?? row.message}</> : <>{row.phase ?? row.message ?? "at work"}</>;
  }
  if (row.errorCode || row.errorMessage) return <span class="bad-text">{row.errorCode ?? ""} {row.errorMessage}</span>;
  if (row.state === "queued" && row.runAfter && Date.parse(row.runAfter) > Date.now()) return <>due <Ago at={row.runAfter} /></>;
  return <>{row.source ?? row.message ?? ""}</>;
}

function Ran({ row }: { row: JobRow }) {
  const now = useNow();
  if (!row.startedAt) return <>–</>;
  const end = row.finishedAt ?? (row.state === "running" ? now.toISOString() : null);
  return <>{end ? duration(between(row.startedAt, end)) : "–"}</>;
}
