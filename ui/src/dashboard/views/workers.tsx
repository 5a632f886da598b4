// Workers: each slot as a box, with what runs in it and for how long.
import { post } from "../../shared/api.ts";
import { duration } from "../../shared/time.ts";
import { Gantt, type Slots } from "../charts/gantt.tsx";
import { useData } from "../data.ts";
import { bytes, number, plural } from "../format.ts";
import { Ago, Empty, Head, useNow } from "../parts/bits.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Page, Slot, Worker } from "../types.ts";

const MOST_BOXES = 64;

export function Workers({ route }: { route: Route }) {
  const data = useData<Page<Worker>>("api/operator/workers", {}, ["workers", "jobs"]);
  const slots = useData<Slots>("api/operator/charts/slots", { seconds: 300 }, ["jobs", "workers"]);
  return (
    <>
      <Head title="Workers" />
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="No worker has been seen"><p>Jobs wait until one runs:</p><pre>rowlock worker --app module:app</pre></Empty>
        ) : (
          <ul class="workers">{items.map((worker) => <One key={worker.id} worker={worker} named={route.query["name"] === worker.id} reload={data.reload} />)}</ul>
        )}
      </Loaded>
      <Loaded data={slots}>{(found) => found.lanes.length > 0 && <Gantt slots={found} sizes={new Map(data.value?.items.map(({ id, poolSize }) => [id, poolSize]))} />}</Loaded>
    </>
  );
}

function One({ worker, named, reload }: { worker: Worker; named: boolean; reload: () => void }) {
  const free = Math.max(0, worker.poolSize - worker.slots.length);
  return (
    <li class={`card worker${worker.alive ? "" : " stale"}${named ? " named" : ""}`}>
      <div class="worker-head">
        <h2>{worker.hostname}<span class="quiet"> · {worker.pid}</span></h2>
        <Standing worker={worker} />
        <Stop worker={worker} reload={reload} />
      </div>
      <p class="quiet worker-facts">
        <span>heard <Ago at={worker.seenAt} /></span>
        <span>up since <Ago at={worker.startedAt} /></span>
        {worker.memoryBytes !== null && <span>{bytes(worker.memoryBytes)}</span>}
        {worker.version && <span>Rowlock {worker.version}</span>}
        <span>queues: {worker.queues.join(", ")}</span>
        <span>{number(worker.slots.length)} of {number(worker.poolSize)} slots in use</span>
      </p>
      <ul class="slots" aria-label={`Slots of ${worker.id}`}>
        {worker.slots.map((slot) => <Busy key={`${slot.jobId} ${slot.attempt}`} slot={slot} />)}
        {Array.from({ length: Math.min(free, MOST_BOXES) }, (_, index) => <li key={`free ${index}`} class="slot free"><span class="off-screen">free</span></li>)}
        {free > MOST_BOXES && <li class="quiet">and {number(free - MOST_BOXES)} more free ones</li>}
      </ul>
    </li>
  );
}

function Standing({ worker }: { worker: Worker }) {
  if (!worker.alive) return <span class="badge bad"><Icon name="failures" />silent</span>;
  if (worker.stopRequested) return <span class="badge warn"><Icon name="pause" />{worker.stopRequested === "drain" ? "draining" : "stopping"}</span>;
  return <span class="badge good"><Icon name="succeeded" />alive</span>;
}

const RESTART = "A process manager that restarts it (systemd, Kubernetes) starts a new worker afterwards.";

/** Let a worker end: after what it runs, or at once. */
function Stop({ worker, reload }: { worker: Worker; reload: () => void }) {
  const { session, ask } = useShell();
  if (!session.mayChange || !worker.alive || worker.stopRequested === "stop") return null;
  const running = plural(worker.slots.length, "running job");
  function request(verb: "drain" | "stop"): void {
    ask({
      title: `${verb === "drain" ? "Drain" : "Stop"} ${worker.id}?`,
      text: verb === "drain"
        ? `It claims no more jobs, and ends after its ${running}, however long that takes. It hears of this with its next heartbeat. ${RESTART}`
        : `It gives its ${running} back, which uses up no attempt, and ends. It hears of this with its next heartbeat. ${RESTART}`,
      button: verb === "drain" ? "Drain" : "Stop", danger: verb === "stop",
      act: async () => {
        await post(`api/operator/workers/${encodeURIComponent(worker.id)}/${verb}`);
        reload();
        return `Worker ${worker.id} is asked to ${verb === "drain" ? "drain" : "stop"}.`;
      },
    });
  }
  return (
    <span class="worker-actions">
      {worker.stopRequested === null && <button type="button" onClick={() => request("drain")}>Drain…<span class="off-screen"> {worker.id}</span></button>}
      <button type="button" class="danger" onClick={() => request("stop")}>Stop…<span class="off-screen"> {worker.id}</span></button>
    </span>
  );
}

function Busy({ slot }: { slot: Slot }) {
  const seconds = (useNow().getTime() - Date.parse(slot.since)) / 1000;
  return (
    <li class="slot busy">
      <a href={link("job", slot.jobId)} title={`${slot.task}, attempt ${slot.attempt}${slot.phase ? `: ${slot.phase}` : ""}`}>{slot.task}</a>
      <span>{duration(Math.max(0, Math.floor(seconds)))}{slot.progress ? ` · ${slot.progress} %` : ""}</span>
    </li>
  );
}
