// Retry, cancel, run now, delete: of one job, of some, of everything that matches a filter. First a preview with the
// number of jobs, then, after a confirmation, as many requests as it takes.
import { useEffect, useState } from "preact/hooks";
import { post } from "../shared/api.ts";
import { count, plural } from "./format.ts";
import { Dialog, useOpened } from "./parts/dialogs.tsx";
import { State } from "./parts/bits.tsx";
import { useShell } from "./store.ts";
import type { Action, Count, JobRow, State as JobState } from "./types.ts";
import type { Filter } from "./filter.ts";

export type Target = { ids: string[] } | { filter: Filter };

interface Preview {
  token: string;
  count: Count;
  states: Partial<Record<JobState, number>>;
  sample: JobRow[];
}
interface Step {
  looked: number;
  changed: number;
  done: boolean;
  /** Jobs whose rows could not be changed. */
  failed?: { jobId: string; error: string }[];
}
const NAMED = 3; // jobs that could not be changed, of which the message gives the ids

interface Words {
  verb: string;
  past: string;
  says: string;
}
export const WORDS: Record<Action, Words> = {
  retry: { verb: "Retry", past: "retried", says: "They are queued again, with at least one more attempt." },
  cancel: { verb: "Cancel", past: "cancelled", says: "Waiting jobs end at once; running ones are asked to stop." },
  runNow: { verb: "Run now", past: "made due", says: "They no longer wait for their time." },
  delete: { verb: "Delete", past: "deleted", says: "They and their results are removed. Once it has begun this cannot be undone." },
};
const UNDO_SECONDS = 5; // between the confirmation of a delete and its begin

interface Asked {
  action: Action;
  target: Target;
  /** Instead of the words of the action, such as for a purge, which cancels. */
  words?: Words;
}

/** The dialog of an action: what it would do, and then how far it is. */
export function ActionDialog({ action, target, words = WORDS[action], close, done }: Asked & { close: () => void; done: () => void }) {
  const { tell } = useShell();
  const [left, setLeft] = useState<number | null>(null); // seconds until it begins
  const [preview, setPreview] = useState<Preview | string | null>(null);
  const [step, setStep] = useState<Step | null>(null);
  const ready = preview !== null && typeof preview !== "string";
  useEffect(() => {
    post<Preview>("api/operator/jobs/preview", { action, ...target }).then(setPreview, (error: Error) => setPreview(error.message));
  }, []);
  useEffect(() => {
    if (left === null || !ready) return undefined;
    const timer = window.setTimeout(() => (left > 1 ? setLeft(left - 1) : void run(preview.token)), 1000);
    return () => window.clearTimeout(timer); // also when the dialog is closed: nothing happens then
  }, [left]);

  async function run(token: string): Promise<void> {
    try {
      let now: Step = { looked: 0, changed: 0, done: false };
      const failed: { jobId: string; error: string }[] = [];
      setStep(now);
      while (!now.done) {
        now = await post<Step>("api/operator/jobs/act", { token });
        failed.push(...(now.failed ?? []));
        setStep(now);
      }
      const others = now.looked - now.changed - failed.length;
      const rest = others > 0 ? ` ${plural(others, "job")} had changed meanwhile and ${others === 1 ? "was" : "were"} left alone.` : "";
      tell(`${plural(now.changed, "job")} ${words.past}.${rest}${refused(failed)}`, failed.length ? "failed" : "done");
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error), "failed");
    }
    done();
    close();
  }

  const none = ready && preview.count.count === 0;
  return (
    <Dialog title={`${words.verb}: ${ready ? `${count(preview.count)} ${preview.count.count === 1 ? "job" : "jobs"}` : "…"}`} close={close}>
      {preview === null && <p class="quiet">Counting…</p>}
      {typeof preview === "string" && <p class="bad-text">{preview}</p>}
      {none && <p>None of these jobs is in a state in which it can be {words.past}.</p>}
      {ready && !none && <Summary preview={preview} says={words.says} />}
      {step && <progress class="progress" value={ready ? Math.min(step.looked, preview.count.count) : 0} max={ready ? preview.count.count : 1} aria-label="Progress of the action" />}
      {left !== null && step === null && <p role="status"><strong>Begins in {left} s.</strong> Until then nothing has happened.</p>}
      <div class="dialog-buttons">
        <button type="button" onClick={close}>{none || typeof preview === "string" || step !== null ? "Close" : left !== null ? "Undo" : "Leave it"}</button>
        {ready && !none && (
          <button
            type="button" class={action === "retry" || action === "runNow" ? "main" : "main danger-main"} disabled={step !== null || left !== null}
            onClick={() => (action === "delete" ? setLeft(UNDO_SECONDS) : void run(preview.token))}
          >
            {words.verb} {count(preview.count)}
          </button>
        )}
      </div>
    </Dialog>
  );
}

function refused(failed: { jobId: string; error: string }[]): string {
  const [first] = failed;
  if (!first) return "";
  const named = failed.slice(0, NAMED).map((job) => job.jobId).join(", ");
  const more = failed.length > NAMED ? ` and ${plural(failed.length - NAMED, "other")}` : "";
  return ` ${plural(failed.length, "job")} could not be changed and ${failed.length === 1 ? "stays" : "stay"} as before: ${named}${more} (${first.error})`;
}

function Summary({ preview, says }: { preview: Preview; says: string }) {
  return (
    <>
      <p>{says}</p>
      <ul class="inline-list">
        {Object.entries(preview.states).map(([state, size]) => (
          <li key={state}><State state={state as JobState} /> {count({ count: size, exact: preview.count.exact })}</li>
        ))}
      </ul>
      <ul class="sample" aria-label="Some of them">
        {preview.sample.map((job) => (
          <li key={job.jobId}><code>{job.jobId}</code> {job.task}</li>
        ))}
      </ul>
    </>
  );
}

/** The action that a view has open, and how to open one. */
export function useAction(done: () => void): [(action: Action, target: Target, words?: Words) => void, preact.JSX.Element | null] {
  const [opened, open] = useOpened<Asked>();
  const dialog = opened && <ActionDialog key={opened.key} {...opened.what} close={opened.close} done={done} />;
  return [(action, target, words) => open({ action, target, ...(words && { words }) }), dialog];
}
