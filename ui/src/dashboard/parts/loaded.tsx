// A view's data while it comes, when it came, and when it did not.
import type { ComponentChildren } from "preact";
import type { Problem } from "../../shared/api.ts";
import type { Data } from "../data.ts";
import { Empty } from "./bits.tsx";

export function Loaded<T>({ data, children }: { data: Data<T>; children: (value: T) => ComponentChildren }) {
  if (data.value === undefined) {
    return data.problem ? <Failed problem={data.problem} reload={data.reload} /> : <p class="loading">Reading…</p>;
  }
  return (
    <>
      {data.problem && <Failed problem={data.problem} reload={data.reload} />}
      {children(data.value)}
    </>
  );
}

export function Failed({ problem, reload }: { problem: Problem; reload: () => void }) {
  if (problem.code === "NOT_FOUND" || problem.code === "JOB_NOT_FOUND") {
    return (
      <Empty title="There is no such record">
        <p>It may have been removed: finished jobs are kept for some days only.</p>
      </Empty>
    );
  }
  return (
    <div class="note bad" role="alert">
      <p>{sentence(problem)}</p>
      <button type="button" onClick={reload}>Try again</button>
    </div>
  );
}

function sentence(problem: Problem): string {
  if (problem.code === "TOO_SLOW") return "This took longer than two seconds and was stopped. Narrow the filter or the time range.";
  if (problem.code === "UNREACHABLE") return "The server cannot be reached. What you see may be old.";
  return problem.message;
}
