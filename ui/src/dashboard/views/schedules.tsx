// Schedules: the rule in words, when it fires next, and what became of the last ticks.
import { post } from "../../shared/api.ts";
import { clock } from "../../shared/time.ts";
import { AsTable } from "../charts/figure.tsx";
import { Dots } from "../charts/small.tsx";
import { useData } from "../data.ts";
import { Ago, Empty, Head } from "../parts/bits.tsx";
import { useOpened } from "../parts/dialogs.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { ScheduleForm } from "../parts/schedule-form.tsx";
import { go, link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Page, Schedule } from "../types.ts";

export function Schedules({ route }: { route: Route }) {
  const data = useData<Page<Schedule>>("api/operator/schedules", { limit: 200 }, ["schedules"]);
  const { session } = useShell();
  const [form, open] = useOpened<Schedule | null>(); // null: of a new schedule
  return (
    <>
      <Head title="Schedules">{session.mayChange && <button type="button" onClick={() => open(null)}><Icon name="plus" />New schedule…</button>}</Head>
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="There is no schedule"><p>Add one with <code>@app.schedule</code> in your code, or:</p><pre>rowlock schedules add nightly TASK --cron "0 3 * * *"</pre></Empty>
        ) : (
          <>
            <table class="list">
              <thead>
                <tr>
                  <th scope="col">Schedule</th><th scope="col" class="wide">Rule</th><th scope="col">Next</th>
                  <th scope="col" class="wide">Last ticks</th><th scope="col"><span class="off-screen">Actions</span></th>
                </tr>
              </thead>
              <tbody>{items.map((schedule) => <Row key={schedule.id} schedule={schedule} named={route.query["name"] === schedule.id} reload={data.reload} edit={() => open(schedule)} />)}</tbody>
            </table>
            <AsTable title="the last ticks of each schedule" table={{ head: ["Schedule", "Tick", "What", "Its job"], rows: items.flatMap(({ id, ticks }) => ticks.map(({ at, what, state }) => [id, clock(at), what, state ?? ""])) }} />
          </>
        )}
      </Loaded>
      {form && <ScheduleForm key={form.key} schedule={form.what} close={form.close} done={data.reload} />}
    </>
  );
}

function Row({ schedule, named, reload, edit }: { schedule: Schedule; named: boolean; reload: () => void; edit: () => void }) {
  const { session, ask } = useShell();
  const path = `api/operator/schedules/${encodeURIComponent(schedule.id)}`;
  const paused = schedule.pausedAt !== null;
  const missed = schedule.ticks.filter(({ what }) => what === "missed").length;
  function run(): void {
    ask({
      title: `Run ${schedule.id} now?`, text: `A job of ${schedule.task} is enqueued beside its ticks.`, button: "Run now",
      act: async () => {
        const { jobId } = await post<{ jobId: string }>(`${path}/run`);
        go(link("job", jobId));
        return `Schedule ${schedule.id} was run.`;
      },
    });
  }
  function change(): void {
    const verb = paused ? "resume" : "pause";
    ask({
      title: `${paused ? "Resume" : "Pause"} ${schedule.id}?`,
      text: paused ? "It fires again from its next tick." : "Its ticks fire no more jobs until it is resumed.",
      button: paused ? "Resume" : "Pause",
      act: async () => {
        await post(`${path}/${verb}`);
        reload();
        return `Schedule ${schedule.id} is ${paused ? "on again" : "paused"}.`;
      },
    });
  }
  function remove(): void {
    ask({
      title: `Remove ${schedule.id}?`, text: "It fires no more, and its ticks are forgotten. Its jobs stay.", button: "Remove", danger: true,
      act: async () => {
        await post(`${path}/remove`);
        reload();
        return `Schedule ${schedule.id} was removed.`;
      },
    });
  }
  return (
    <tr class={named ? "named" : undefined}>
      <th scope="row">
        <a data-row href={link("jobs", "", { schedule: schedule.id })}>{schedule.id}</a>
        {paused && <span class="badge warn"><Icon name="pause" />paused</span>}
        <span class="below quiet">{schedule.task}</span>
        <span class="narrow quiet">{schedule.words}</span>
        {schedule.problem && <span class="below bad-text">{schedule.problem}</span>}
      </th>
      <td class="wide">{schedule.words}<span class="below quiet"><code>{schedule.rule}</code></span>{!schedule.editable && <span class="below quiet">from {schedule.origin}</span>}</td>
      <td>
        {paused || !schedule.next[0] ? "–" : <Ago at={schedule.next[0]} />}
        {!paused && schedule.next.slice(0, 3).map((at) => (
          <span key={at} class="below quiet one-line wide-block">{brief(clock(at, schedule.zone))}{differs(at, schedule.zone) && ` (${brief(clock(at)).slice(6)} here)`}</span>
        ))}
      </td>
      <td class="wide">
        {schedule.ticks.length === 0 ? <span class="quiet">none yet</span> : <Dots ticks={schedule.ticks} label={`Last ${schedule.ticks.length} ticks of ${schedule.id}: ${missed} missed`} />}
        {missed > 0 && <span class="below warn-text">{missed} missed</span>}
      </td>
      <td class="row-actions">
        {session.mayChange && (
          <>
              <button type="button" onClick={run}>Run now<span class="off-screen"> {schedule.id}</span></button>
              <button type="button" onClick={change}>{paused ? "Resume" : "Pause"}<span class="off-screen"> {schedule.id}</span></button>
              {schedule.editable && <button type="button" onClick={edit}>Change…<span class="off-screen"> {schedule.id}</span></button>}
              {schedule.editable && <button type="button" class="danger" onClick={remove}>Remove…<span class="off-screen"> {schedule.id}</span></button>}
          </>
        )}
      </td>
    </tr>
  );
}

/** A moment without the year, and without seconds if there are none. */
function brief(text: string): string {
  return text.slice(5, text.endsWith(":00") ? 16 : 19);
}

function differs(at: string, zone: string): boolean {
  return clock(at, zone) !== clock(at);
}
