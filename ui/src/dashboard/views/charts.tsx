// Charts: throughput, depth and age of queues, run and wait times as heat maps; all of one range.
import { AgeLines, type Depth, DepthArea } from "../charts/area.tsx";
import { Bars, type Point } from "../charts/bars.tsx";
import { type Cells, Heat } from "../charts/heat.tsx";
import { rangeOf } from "../charts/scale.ts";
import { useData } from "../data.ts";
import { Head } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { go, link, type Route } from "../router.ts";

const RANGES: [string, string][] = [["60", "1 hour"], ["360", "6 hours"], ["1440", "24 hours"], ["10080", "7 days"]];
interface Throughput {
  stepSeconds: number;
  points: Point[];
}

export function ChartsView({ route }: { route: Route }) {
  const minutes = route.query["minutes"] ?? "60";
  const query = { minutes, queue: route.query["queue"], task: route.query["task"] };
  const throughput = useData<Throughput>("api/operator/charts/throughput", query, ["now"]);
  return (
    <>
      <Head title={query.queue ? `Charts of queue ${query.queue}` : query.task ? `Charts of ${query.task}` : "Charts"}>
        {(query.queue || query.task) && <a class="button" href={link("charts", "", { minutes })}>All queues</a>}
        <label class="range">
          <span>within</span>
          <select value={minutes} onChange={(event) => go(link("charts", "", { ...route.query, minutes: event.currentTarget.value }))}>
            {RANGES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
          </select>
        </label>
      </Head>
      <Loaded data={throughput}>{(found) => <All throughput={found} query={query} />}</Loaded>
    </>
  );
}

/** The pictures, over the range of the throughput: it has a point for each step, also where nothing happened. */
function All({ throughput: { points, stepSeconds }, query }: { throughput: Throughput; query: { minutes: string; queue: string | undefined; task: string | undefined } }) {
  const path = "api/operator/charts";
  const depth = useData<{ queues: Depth[] }>(`${path}/depth`, { minutes: query.minutes, queue: query.queue }, ["queues"]);
  const run = useData<Cells>(`${path}/heat`, { ...query, what: "run" }, ["now"]);
  const wait = useData<Cells>(`${path}/heat`, { ...query, what: "wait" }, ["now"]);
  const range = rangeOf(points, stepSeconds);
  const choose = (from: Date, to: Date): void => go(link("jobs", "", { since: from.toISOString(), until: to.toISOString(), queue: query.queue, task: query.task }));
  return (
    <>
      <Bars title="Ends of jobs" points={points} stepSeconds={stepSeconds} choose={choose} />
      <Loaded data={depth}>
        {({ queues }) => queues.length === 0 ? <p class="note">The depth of queues is noted once a minute while a worker runs.</p> : (
          <><DepthArea queues={queues} range={range} /><AgeLines queues={queues} range={range} /></>
        )}
      </Loaded>
      <Loaded data={run}>{(cells) => <Heat title="How long attempts ran" cells={cells} range={range} />}</Loaded>
      <Loaded data={wait}>{(cells) => <Heat title="How long jobs waited" cells={cells} range={range} />}</Loaded>
    </>
  );
}
