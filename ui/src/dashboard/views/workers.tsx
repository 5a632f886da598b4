// Workers: each slot as a box, with what runs in it and for how long.
import { duration } from "../../shared/time.ts";
import { useData } from "../data.ts";
import { bytes, number } from "../format.ts";
import { Ago, Empty, Head, useNow } from "../parts/bits.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import type { Page, Slot, Worker } from "../types.ts";

const MOST_BOXES = 64;

export function Workers({ route }: { route: Route }) {
  const data = useData<Page<Worker>>("api/operator/workers", {}, ["workers", "jobs"]);
  return (
    <>
      <Head title="Workers" />
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="No worker has been seen"><p>Jobs wait until one runs:</p><pre>rowlock worker --app module:app</pre></Empty>
        ) : (
          <ul class="workers">{items.map((worker) => <One key={worker.id} worker={worker} named={route.query["name"] === worker.id} />)}</ul>
        )}
      </Loaded>
    </>
  );
}

function One({ worker, named }: { worker: Worker; named: boolean }) {
  const free = Math.max(0, worker.poolSize - worker.slots.length);
  return (
    <li class={`card worker${worker.alive ? "" : " stale"}${named ? " named" : ""}`}>
      <div class="worker-head">
        <h2>{worker.hostname}<span class="quiet"> · {worker.pid}</span></h2>
        {worker.alive ? <span class="badge good"><Icon name="succeeded" />alive</span> : <span class="badge bad"><Icon name="failures" />silent</span>}
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

function Busy({ slot }: { slot: Slot }) {
  const seconds = (useNow().getTime() - Date.parse(slot.since)) / 1000;
  return (
    <li class="slot busy">
      <a href={link("job", slot.jobId)} title={`${slot.task}, attempt ${slot.attempt}${slot.phase ? `: ${slot.phase}` : ""}`}>{slot.task}</a>
      <span>{duration(Math.max(0, Math.floor(seconds)))}{slot.progress ? ` · ${slot.progress} %` : ""}</span>
    </li>
  );
}
