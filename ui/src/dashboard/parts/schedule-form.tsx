// Add a schedule, or change one. The server says what is wrong with a rule; nothing is changed then.
import { useState } from "preact/hooks";
import { post } from "../../shared/api.ts";
import { read, write } from "../../shared/json.ts";
import { useData } from "../data.ts";
import { useShell } from "../store.ts";
import type { Page, Schedule } from "../types.ts";
import { Dialog } from "./dialogs.tsx";

const MISSED: [string, string][] = [["latest", "fire the latest one"], ["skip", "fire none"], ["all", "fire each of them"]];
const OVERLAP: [string, string][] = [["allow", "let both run"], ["skip", "skip the tick"]];

interface Values {
  name: string;
  task: string;
  rule: string;
  zone: string;
  missed: string;
  overlap: string;
  args: string;
}

/** A rule as the route takes it: "every 5m", "at 2026-03-01T09:00", or cron. */
export function ruleOf(text: string): Record<string, string> {
  const [, kind = "", rest = ""] = /^\s*(every|at)\s+(.*?)\s*$/i.exec(text) ?? [];
  return kind ? { [kind.toLowerCase()]: rest } : { cron: text.trim() };
}

export function ScheduleForm({ schedule, close, done }: { schedule: Schedule | null; close: () => void; done: () => void }) {
  const { tell } = useShell();
  const [values, setValues] = useState<Values>({
    name: schedule?.id ?? "", task: schedule?.task ?? "", rule: schedule?.rule ?? "", zone: schedule?.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
    missed: schedule?.missed ?? "latest", overlap: schedule?.overlap ?? "allow", args: write(schedule?.args ?? {}, 2),
  });
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const text = (name: keyof Values) => ({ value: values[name], onInput: (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) => setValues({ ...values, [name]: event.currentTarget.value }) });

  async function save(event: Event): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      const body = { ...ruleOf(values.rule), zone: values.zone, missed: values.missed, overlap: values.overlap, args: read(values.args) };
      if (schedule) await post(`api/operator/schedules/${encodeURIComponent(schedule.id)}/edit`, body);
      else await post("api/operator/schedules", { name: values.name, task: values.task, ...body });
      tell(schedule ? `Schedule ${schedule.id} was changed.` : `Schedule ${values.name} was added.`);
      done();
      close();
    } catch (error) {
      setProblem(error instanceof SyntaxError ? `The arguments are not JSON: ${error.message}` : error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  }
  return (
    <Dialog title={schedule ? `Change ${schedule.id}` : "New schedule"} close={close} wide>
      <form class="new-job" onSubmit={(event) => void save(event)}>
        {!schedule && <label>Name<input type="text" required maxLength={200} autocomplete="off" {...text("name")} /></label>}
        {!schedule && <Task value={values.task} choose={(task) => setValues({ ...values, task })} />}
        <label>Rule<input type="text" class="mono" required spellcheck={false} autocomplete="off" {...text("rule")} /><span class="quiet">cron as <code>0 3 * * *</code>, or <code>every 5m</code>, or <code>at 2027-01-01T09:00</code></span></label>
        <label>Time zone<input type="text" required spellcheck={false} autocomplete="off" {...text("zone")} /></label>
        <div class="form-pair">
          <Choice label="Ticks that were missed" value={values.missed} from={MISSED} choose={(missed) => setValues({ ...values, missed })} />
          <Choice label="When its last job still runs" value={values.overlap} from={OVERLAP} choose={(overlap) => setValues({ ...values, overlap })} />
        </div>
        <label>Arguments, as JSON<textarea rows={4} class="mono" spellcheck={false} {...text("args")} /></label>
        {problem && <p class="bad-text" role="alert">{problem}</p>}
        <div class="dialog-buttons">
          <button type="button" onClick={close}>Leave it</button>
          <button type="submit" class="main" disabled={busy}>{schedule ? "Change" : "Add"}</button>
        </div>
      </form>
    </Dialog>
  );
}

function Task({ value, choose }: { value: string; choose: (task: string) => void }) {
  const tasks = useData<Page<{ name: string }>>("api/operator/tasks");
  return (
    <label>Task
      <select required value={value} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">choose a task</option>
        {tasks.value?.items.map(({ name }) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}

function Choice({ label, value, from, choose }: { label: string; value: string; from: [string, string][]; choose: (value: string) => void }) {
  return (
    <label>{label}
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        {from.map(([key, words]) => <option key={key} value={key}>{words}</option>)}
      </select>
    </label>
  );
}
