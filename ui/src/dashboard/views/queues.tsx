// Queues: how deep, how old, how busy, and what the last half hour looked like.
import { post } from "../../shared/api.ts";
import { duration } from "../../shared/time.ts";
import { useAction } from "../actions.tsx";
import { Gauge, Minutes, Spark } from "../charts/small.tsx";
import { useData } from "../data.ts";
import { number } from "../format.ts";
import { Empty, Head } from "../parts/bits.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Page, Quantiles, Queue } from "../types.ts";

export function Queues({ route }: { route: Route }) {
  const data = useData<Page<Queue>>("api/operator/queues", {}, ["queues"]);
  const [act, dialog] = useAction(data.reload);
  const purge = (queue: string): void =>
    act("cancel", { filter: { queue, state: "queued,retryable" } }, {
      verb: "Purge", past: "cancelled",
      says: `What waits in ${queue} is cancelled; what runs goes on. A retry of the cancelled jobs puts them back.`,
    });
  return (
    <>
      <Head title="Queues" />
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="There is no queue yet"><p>A queue appears with its first job or the first worker that serves it.</p></Empty>
        ) : (
          <>
            <table class="list">
              <thead>
                <tr>
                  <th scope="col">Queue</th>
                  <th scope="col" class="number">Waiting</th>
                  <th scope="col" class="number wide">Oldest</th>
                  <th scope="col" class="number">Running</th>
                  <th scope="col" class="wide">30 minutes</th>
                  <th scope="col" class="number wide">Wait p50 / p95</th>
                  <th scope="col" class="number wide">Run p50 / p95</th>
                  <th scope="col"><span class="off-screen">Actions</span></th>
                </tr>
              </thead>
              <tbody>{items.map((queue) => <Row key={queue.name} queue={queue} named={route.query["name"] === queue.name} reload={data.reload} purge={() => purge(queue.name)} />)}</tbody>
            </table>
            <Minutes title="the last 30 minutes of each queue" of={items} />
          </>
        )}
      </Loaded>
      {dialog}
    </>
  );
}

function Row({ queue, named, reload, purge }: { queue: Queue; named: boolean; reload: () => void; purge: () => void }) {
  const { session, ask } = useShell();
  const waiting = queue.queued + queue.retryable;
  const more = queue.exact ? "" : "+";
  async function set(verb: "pause" | "resume"): Promise<string> {
    await post(`api/operator/queues/${encodeURIComponent(queue.name)}/${verb}`);
    reload();
    return `Queue ${queue.name} is ${verb === "pause" ? "paused" : "served again"}.`;
  }
  function change(): void {
    ask(queue.paused
      ? { title: `Resume queue ${queue.name}?`, text: `${number(waiting)}${more} jobs wait in it. Workers claim them again.`, button: "Resume", act: () => set("resume") }
      : { title: `Pause queue ${queue.name}?`, text: `No more of its jobs start; ${number(queue.running)} running ones go on. ${number(waiting)}${more} wait.`, button: "Pause", act: () => set("pause") });
  }
  return (
    <tr class={named ? "named" : undefined}>
      <th scope="row">
        <a data-row href={link("jobs", "", { queue: queue.name })}>{queue.name}</a>
        {queue.paused && <span class="badge warn"><Icon name="pause" />paused</span>}
        {!queue.paused && queue.workers === 0 && waiting > 0 && <span class="badge bad"><Icon name="failures" />no worker</span>}
      </th>
      <td class="number">
        <a href={link("jobs", "", { queue: queue.name, state: "queued,retryable" })}>{number(waiting)}{more}</a>
        {queue.waiting > 0 && <span class="below quiet">{number(queue.waiting)} not due yet</span>}
      </td>
      <td class="number wide">{queue.oldestReadySeconds === null ? "–" : duration(queue.oldestReadySeconds)}</td>
      <td class="number">
        <a href={link("jobs", "", { queue: queue.name, state: "running" })}>{number(queue.running)}</a><span class="quiet"> / {number(queue.slots)}</span>
        <Gauge used={queue.running} all={queue.slots} label={`Slots in use of ${queue.name}`} />
      </td>
      <td class="wide"><a class="to-charts" href={link("charts", "", { queue: queue.name })} title={`Charts of ${queue.name}`}><Spark minutes={queue.minutes} label={`Charts of ${queue.name}`} /></a></td>
      <td class="number wide">{times(queue.waitSeconds)}</td>
      <td class="number wide">{times(queue.runSeconds)}</td>
      <td class="row-actions">
        {session.mayChange && (
          <>
              <button type="button" onClick={change}>{queue.paused ? "Resume" : "Pause"}<span class="off-screen"> {queue.name}</span></button>
              <button type="button" class="danger" disabled={waiting === 0} onClick={purge}>Purge…<span class="off-screen"> {queue.name}</span></button>
          </>
        )}
      </td>
    </tr>
  );
}

function times(found: Quantiles | null): string {
  return found ? `${duration(found.p50)} / ${duration(found.p95)}` : "–";
}
