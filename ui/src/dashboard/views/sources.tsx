// Sources: what outside services allow, how they answer, and whether jobs may start.
import { post } from "../../shared/api.ts";
import { Minutes, Strip } from "../charts/small.tsx";
import { useData } from "../data.ts";
import { number, plural, rate } from "../format.ts";
import { Ago, Empty, Head } from "../parts/bits.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { link, type Route } from "../router.ts";
import { useShell } from "../store.ts";
import type { Page } from "../types.ts";

interface Source {
  name: string;
  state: "open" | "paused" | "disabled" | "broken" | "half-open";
  isClass: boolean;
  pausedUntil: string | null;
  failureStreak: number;
  lastSuccessAt: string | null;
  lastFailureAt: string | null;
  lastError: string | null;
  running: number;
  concurrency: number | null;
  rateLimitPerMinute: number | null;
  tokens: number | null;
  strip: { at: string; succeeded: number; failed: number }[];
}

const WORDS: Record<Source["state"], string> = { open: "good", paused: "warn", disabled: "warn", broken: "bad", "half-open": "warn" };

export function Sources({ route }: { route: Route }) {
  const data = useData<Page<Source>>("api/operator/sources", { limit: 200 }, ["sources"]);
  return (
    <>
      <Head title="Sources" />
      <Loaded data={data}>
        {({ items }) => items.length === 0 ? (
          <Empty title="There is no source"><p>A source is an outside service that jobs call. Name it with <code>source=</code> of a task, and limit it:</p><pre>rowlock sources set NAME --concurrency 2 --rate 30/min</pre></Empty>
        ) : (
          <>
            <table class="list">
              <thead>
                <tr>
                  <th scope="col">Source</th><th scope="col">State</th><th scope="col" class="number">Running</th><th scope="col" class="number wide">Rate</th>
                  <th scope="col" class="wide">Last hour</th><th scope="col" class="wide">Last answers</th><th scope="col"><span class="off-screen">Actions</span></th>
                </tr>
              </thead>
              <tbody>{items.map((source) => <Row key={source.name} source={source} named={route.query["name"] === source.name} reload={data.reload} />)}</tbody>
            </table>
            <Minutes title="the last hour of each source" of={items.map(({ name, strip }) => ({ name, minutes: strip }))} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Row({ source, named, reload }: { source: Source; named: boolean; reload: () => void }) {
  const { session, ask } = useShell();
  const closed = source.state !== "open";
  const verb = closed ? "resume" : "pause";
  function change(): void {
    ask({
      title: `${closed ? "Resume" : "Pause"} ${source.name}?`,
      text: closed ? "Its jobs start again, with a closed breaker." : `No more of its jobs start; ${plural(source.running, "running job")} go on.`,
      button: closed ? "Resume" : "Pause",
      act: async () => {
        await post(`api/operator/sources/${encodeURIComponent(source.name)}/${verb}`);
        reload();
        return `Source ${source.name} is ${closed ? "open again" : "paused"}.`;
      },
    });
  }
  return (
    <tr class={named ? "named" : undefined}>
      <th scope="row">
        <a data-row href={link("jobs", "", { source: source.name })}>{source.name}</a>
        {source.isClass && <span class="below quiet">for each {source.name}:…</span>}
      </th>
      <td class="one-line">
        <span class={`badge ${WORDS[source.state]}`}><Icon name={closed ? "pause" : "succeeded"} />{source.state}</span>
        {source.pausedUntil && <span class="below quiet">ends <Ago at={source.pausedUntil} /></span>}
      </td>
      <td class="number">{number(source.running)}<span class="quiet"> / {source.concurrency ?? "∞"}</span></td>
      <td class="number wide">{source.rateLimitPerMinute ? `${rate(source.rateLimitPerMinute)}/min` : "–"}{source.tokens !== null && <span class="below quiet">{rate(source.tokens)} left</span>}</td>
      <td class="wide">{source.isClass ? <span class="quiet">–</span> : <Strip minutes={source.strip} label={`${source.name}: ${total(source, "succeeded")} succeeded and ${total(source, "failed")} failed in the last hour`} />}</td>
      <td class="wide">{source.isClass ? <span class="quiet">–</span> : <Answers source={source} />}</td>
      <td class="row-actions">{session.mayChange && <button type="button" onClick={change}>{closed ? "Resume" : "Pause"}<span class="off-screen"> {source.name}</span></button>}</td>
    </tr>
  );
}

function Answers({ source }: { source: Source }) {
  return (
    <>
      <span class="below">good <Ago at={source.lastSuccessAt} none="never" /></span>
      <span class="below">bad <Ago at={source.lastFailureAt} none="never" />{source.failureStreak > 1 && `, ${source.failureStreak} in a row`}</span>
      {source.failureStreak > 0 && source.lastError && <span class="below bad-text">{source.lastError}</span>}
    </>
  );
}

function total(source: Source, what: "succeeded" | "failed"): number {
  return source.strip.reduce((sum, minute) => sum + minute[what], 0);
}
