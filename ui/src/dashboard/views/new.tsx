// A new job, by a form made from the types of the task; or a finished one again with other arguments.
import { useEffect, useState } from "preact/hooks";
import { get, post } from "../../shared/api.ts";
import { read, write } from "../../shared/json.ts";
import { useData } from "../data.ts";
import { fieldsOf, Fields, type Schema } from "../parts/form.tsx";
import { Empty, Head, JobLink, Section } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { go, link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { JobPage, Page } from "../types.ts";
import { again } from "./job.tsx";

interface Task {
  name: string;
  schema: Schema | null;
  description: string | null;
  alive: boolean;
  creatable: boolean;
  whyNot: string | null;
}

export function NewJob({ route }: { route: Route }) {
  const data = useData<Page<Task>>("api/operator/tasks");
  return <Loaded data={data}>{({ items }) => <Choose tasks={items} chosen={route.name} from={route.query["from"]} />}</Loaded>;
}

function Choose({ tasks, chosen, from }: { tasks: Task[]; chosen: string; from: string | undefined }) {
  const task = tasks.find(({ name }) => name === chosen);
  return (
    <>
      <Head title={from ? "Run again" : "New job"} />
      {tasks.length === 0 ? <Empty title="No task is known"><p>A task is known once a worker that has it has started.</p><pre>rowlock worker --app module:app</pre></Empty> : (
        <Section title="Task">
          <label>
            <span class="off-screen">Task</span>
            <select value={chosen} disabled={from !== undefined} onChange={(event) => go(link("new", event.currentTarget.value))}>
              <option value="">choose a task</option>
              {tasks.map(({ name, creatable }) => <option key={name} value={name} disabled={!creatable}>{name}</option>)}
            </select>
          </label>
          {task?.description && <p>{task.description}</p>}
          {task && !task.creatable && <p class="bad-text">{task.whyNot}</p>}
          {task && !task.alive && <p class="warn-text">No worker that is alive knows this task: the job would wait.</p>}
          {from && <p>With the options of <JobLink id={from} />, which stays as it is.</p>}
        </Section>
      )}
      {(task?.creatable || from) && <Form key={chosen} task={chosen} schema={task?.schema ?? null} from={from} />}
    </>
  );
}

function Form({ task, schema, from }: { task: string; schema: Schema | null; from: string | undefined }) {
  const { session, tell } = useShell();
  const fields = fieldsOf(schema);
  const [args, setArgs] = useState<Record<string, unknown>>({});
  const [text, setText] = useState("{}");
  const [raw, setRaw] = useState(fields === null || from !== undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!from) return;
    void get<JobPage>(`api/operator/jobs/${encodeURIComponent(from)}`).then((page) => setText(write(page.args, 2)), (error: Error) => setProblem(error.message));
  }, [from]);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    try {
      const given = raw ? read(text) : args;
      if (from) await again(from, given);
      else go(link("job", (await post<{ jobId: string }>("api/operator/jobs", { task, args: given })).jobId));
      tell("The job is enqueued.");
    } catch (error) {
      setProblem(error instanceof SyntaxError ? `This is not JSON: ${error.message}` : error instanceof Error ? error.message : String(error));
    }
  }
  return (
    <Section title="Arguments">
      <form class="new-job" onSubmit={(event) => void submit(event)}>
        {raw || fields === null ? (
          <label>as JSON<textarea rows={10} class="mono" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
        ) : <Fields fields={fields} values={args} change={setArgs} />}
        {problem && <p class="bad-text" role="alert">{problem}</p>}
        <div class="dialog-buttons">
          {fields !== null && !from && <button type="button" onClick={() => { if (!raw) setText(write(args, 2)); setRaw(!raw); }}>{raw ? "As a form" : "As JSON"}</button>}
          <button type="submit" class="main" disabled={!session.mayChange}>Enqueue</button>
        </div>
      </form>
    </Section>
  );
}
