// Charts: throughput, depth and age of queues, run and wait times as heat maps, slots as lanes.
import { Bars, type Point } from "../charts/bars.tsx";
import { AgeLines, type Depth, DepthArea } from "../charts/area.tsx";
import { Gantt, type Slots } from "../charts/gantt.tsx";
import { type Cells, Heat } from "../charts/heat.tsx";
import { useData } from "../data.ts";
import { Head, Section } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { go, link, type Route } from "../router.ts";

const RANGES: [string, string][] = [["60", "1 hour"], ["360", "6 hours"], ["1440", "24 hours"], ["10080", "7 days"]];

export function ChartsView({ route }: { route: Route }) {
  const minutes = route.query["minutes"] ?? "60";
  const query = { minutes, queue: route.query["queue"], task: route.query["task"] };
  const path = "api/operator/charts";
  const throughput = useData<{ stepSeconds: number; points: Point[] }>(`${path}/throughput`, query, ["now"]);
  const depth = useData<{ stepSeconds: number; queues: Depth[] }>(`${path}/depth`, { minutes, queue: query.queue }, ["queues"]);
  const run = useData<Cells>(`${path}/heat`, { ...query, what: "run" }, ["now"]);
  const wait = useData<Cells>(`${path}/heat`, { ...query, what: "wait" }, ["now"]);
  const slots = useData<Slots>(`${path}/slots`, { seconds: 300 }, ["jobs", "workers"]);
  const choose = (from: Date, to: Date): void => go(link("jobs", "", { since: from.toISOString(), until: to.toISOString(), queue: query.queue, task: query.task }));
  return (
    <>
      <Head title="Charts">
        <label class="range">
          <span>within</span>
          <select value={minutes} onChange={(event) => go(link("charts", "", { ...route.query, minutes: event.currentTarget.value }))}>
            {RANGES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
          </select>
        </label>
      </Head>
      <Section title="Throughput">
        <Loaded data={throughput}>{({ points, stepSeconds }) => <Bars title="Ends of jobs" points={points} stepSeconds={stepSeconds} choose={choose} />}</Loaded>
        <p class="quiet">Drag over a range to see its jobs.</p>
      </Section>
      <Section title="Queues">
        <Loaded data={depth}>
          {({ queues, stepSeconds }) => queues.length === 0 ? <p class="quiet">The depth of queues is noted once a minute while a worker runs.</p> : (
            <><DepthArea queues={queues} stepSeconds={stepSeconds} /><AgeLines queues={queues} stepSeconds={stepSeconds} /></>
          )}
        </Loaded>
      </Section>
      <Section title="Times">
        <Loaded data={run}>{(cells) => <Heat title="How long jobs ran" cells={cells} />}</Loaded>
        <Loaded data={wait}>{(cells) => <Heat title="How long jobs waited" cells={cells} />}</Loaded>
      </Section>
      <Section title="The last five minutes">
        <Loaded data={slots}>{(found) => found.lanes.length === 0 ? <p class="quiet">No attempt ran in the last five minutes.</p> : <Gantt slots={found} />}</Loaded>
      </Section>
    </>
  );
}
