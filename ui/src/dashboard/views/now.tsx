// How it stands, in one sentence that the server makes (api/operator/now.py: sentence); then the numbers, each a link to what it
// counts.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { roughly } from "../../shared/time.ts";
import { Bars } from "../charts/bars.tsx";
import { useData } from "../data.ts";
import { count, number, percent, rate } from "../format.ts";
import { Empty, Head, Section } from "../parts/bits.tsx";
import { Icon } from "../parts/icon.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { go, link } from "../router.ts";
import type { Now, Trouble } from "../types.ts";

const MANY_FAIL = 0.05; // this share of failing attempts is worth a look
const SAY_SECONDS = 5; // the summary is read out at most this often

export function NowView() {
  const data = useData<Now>("api/operator/now", {}, ["now", "queues", "workers"]);
  return <Loaded data={data}>{(now) => <Stand now={now} />}</Loaded>;
}

function Stand({ now }: { now: Now }) {
  const ended = ["succeeded", "dead", "cancelled"].reduce((sum, name) => sum + (now.totals[name] ?? 0), 0);
  const untouched = ended === 0 && now.waiting.count === 0 && now.running === 0 && now.scheduled.count === 0;
  return (
    <>
      <Head title="Now" />
      <p class="sentence">{now.sentence}</p>
      <Spoken text={now.sentence} />
      {now.problems.length > 0 && <Problems problems={now.problems} />}
      <ul class="figures">
        <Number title="waiting" to={link("jobs", "", { state: "queued,retryable" })} note={now.scheduled.count > 0 ? `${count(now.scheduled)} more wait for their time` : "none waits for its time"}>
          {count(now.waiting)}
        </Number>
        <Number title="oldest waits" to={link("jobs", "", { state: "queued", queue: now.oldestQueue })} note={now.oldestQueue ? `in ${now.oldestQueue}` : "nothing waits"}>
          {now.oldestSeconds === null ? "–" : roughly(now.oldestSeconds)}
        </Number>
        <Number title="running" to={link("jobs", "", { state: "running" })} note={`${number(now.workers.busy)} of ${number(now.workers.slots)} slots`}>
          {number(now.running)}
        </Number>
        <Number title="done per minute" to={link("charts")} note="mean of 5 minutes">{rate(now.perMinute.succeeded)}</Number>
        <Number title="failing attempts" to={link("failures")} warn={(now.failureRate ?? 0) >= MANY_FAIL} note={`${rate(now.perMinute.failed)} per minute`}>
          {now.failureRate === null ? "–" : percent(now.failureRate)}
        </Number>
        <Number title="workers" to={link("workers")} warn={now.workers.silent > 0 || now.workers.alive === 0} note={now.workers.silent > 0 ? `${number(now.workers.silent)} silent` : "all are heard"}>
          {number(now.workers.alive)}
        </Number>
      </ul>
      {untouched ? <First /> : (
        <Bars title="Ends of jobs per minute, the last hour" points={now.minutes} stepSeconds={60} choose={(from, to) => go(link("jobs", "", { since: from.toISOString(), until: to.toISOString() }))} />
      )}
      <Section title="Since the beginning">
        <ul class="totals">
          {Object.entries(now.totals).map(([name, size]) => (
            <li key={name}><strong>{number(size)}</strong> {name.replace("_", " ")}</li>
          ))}
        </ul>
      </Section>
    </>
  );
}

/** The sentence for screen readers: not each second, and only when it says something new. */
function Spoken({ text }: { text: string }) {
  const [said, setSaid] = useState("");
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, last.current + SAY_SECONDS * 1000 - performance.now());
    const timer = window.setTimeout(() => {
      last.current = performance.now();
      setSaid(text);
    }, wait);
    return () => window.clearTimeout(timer);
  }, [text]);
  return <p class="off-screen" aria-live="polite">{said}</p>;
}

function Problems({ problems }: { problems: Trouble[] }) {
  return (
    <ul class="problems">
      {problems.map((problem) => (
        <li key={problem.kind + problem.text}>
          <Icon name="failures" />
          <span>{problem.text}</span>
          {problem.view && <a href={link(problem.view, "", { name: problem.name })}>Show</a>}
        </li>
      ))}
    </ul>
  );
}

function Number({ title, to, note, warn = false, children }: { title: string; to: string; note: string; warn?: boolean; children: ComponentChildren }) {
  return (
    <li class="card">
      <a href={to}><span class={warn ? "figure-number warn-text" : "figure-number"}>{children}</span><span class="figure-title">{title}</span></a>
      <span class="quiet">{note}</span>
    </li>
  );
}

function First() {
  return (
    <Section title="The first job">
      <Empty title="No job has been enqueued yet">
        <p>Enqueue one from your code, from the command line, or by the button “New job”:</p>
        <pre>rowlock enqueue TASK key=value</pre>
      </Empty>
    </Section>
  );
}
