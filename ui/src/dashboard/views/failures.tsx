// Failed attempts, grouped by what went wrong.
import { useAction } from "../actions.tsx";
import { Bare } from "../charts/small.tsx";
import { useData } from "../data.ts";
import { number } from "../format.ts";
import { Ago, Empty, Head, JobLink } from "../parts/bits.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { go, link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Failure } from "../types.ts";

const RANGES: [string, string][] = [["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"]];

export function Failures({ route }: { route: Route }) {
  const since = route.query["since"] ?? "24h";
  const { session } = useShell();
  const data = useData<{ items: Failure[]; since: string; exact: boolean }>("api/operator/failures", { since, task: route.query["task"], queue: route.query["queue"] }, ["failures"]);
  const [act, dialog] = useAction(data.reload);
  return (
    <>
      <Head title="Failures">
        <label class="range">
          <span>within</span>
          <select value={since} onChange={(event) => go(link("failures", "", { ...route.query, since: event.currentTarget.value }))}>
            {RANGES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
          </select>
        </label>
      </Head>
      <Loaded data={data}>
        {({ items, exact, since: from }) => items.length === 0 ? (
          <Empty title="Nothing failed"><p>No attempt failed, timed out or was lost in this time.</p></Empty>
        ) : (
          <>
            {!exact && <p class="note">More than 10 000 attempts failed: these are the newest, since <Ago at={from} />.</p>}
            <ul class="failures">
              {items.map((failure) => (
                <Group key={failure.fingerprint} failure={failure} most={items[0]?.count ?? 1} {...(session.mayChange && { retry: () => act("retry", { filter: { state: "dead", task: failure.task, since, ...(failure.errorCode && { errorCode: failure.errorCode }) } }) })} />
              ))}
            </ul>
          </>
        )}
      </Loaded>
      {dialog}
    </>
  );
}

function Group({ failure, most, retry }: { failure: Failure; most: number; retry?: () => void }) {
  const query = { task: failure.task, errorCode: failure.errorCode };
  return (
    <li class="card failure">
      <div class="failure-size">
        <strong>{number(failure.count)}</strong>
        <svg class="size-bar" width="100%" height="6" aria-hidden="true"><rect class="fill dead" width={`${Math.max(2, (failure.count / most) * 100)}%`} height="6" rx="3" /></svg>
      </div>
      <div class="failure-text">
        <h2><code>{failure.errorCode ?? "no code"}</code> in <a href={link("jobs", "", query)}>{failure.task}</a></h2>
        <p class="failure-message">{failure.message}</p>
        <p class="quiet">first <Ago at={failure.firstSeen} />, last <Ago at={failure.lastSeen} /> in <JobLink id={failure.lastJobId} /></p>
        {failure.sources.length > 0 && <p class="quiet">{failure.sources.map(({ source, count }) => `${source} (${number(count)})`).join(", ")}</p>}
      </div>
      <div class="failure-end">
        <Bare values={failure.trend} kind="dead" label={`Trend of ${failure.errorCode ?? failure.task}: ${failure.trend.join(", ")}`} />
        {retry && <button type="button" onClick={retry}>Retry dead jobs<span class="off-screen"> of {failure.task} with {failure.errorCode}</span></button>}
      </div>
    </li>
  );
}
