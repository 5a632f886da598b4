// What a job belongs to, and the rest of its record.
import type { ComponentChildren } from "preact";
import { duration } from "../../shared/time.ts";
import { count } from "../format.ts";
import { link } from "../router.ts";
import type { GoneJob, JobLink as Linked, JobPage } from "../types.ts";
import { Ago, JobLink, Section, State } from "./bits.tsx";

export function List({ rows }: { rows: [string, ComponentChildren][] }) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return (
    <dl class="facts">
      {known.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

export function Links({ page: { job, links } }: { page: JobPage }) {
  return (
    <Section title="Belongs to">
      <List
        rows={[
          ["Parent", links.parent && <Relative of={links.parent} />],
          ["Batch", links.batch && <a href={link("batches", links.batch.id)}>{links.batch.name ?? links.batch.id}</a>],
          ["End of batch", links.endedBatch && <a href={link("batches", links.endedBatch.id)}>{links.endedBatch.name ?? links.endedBatch.id}</a>],
          ["Schedule", links.schedule && <a href={link("schedules", "", { name: links.schedule.id })}>{links.schedule.id}</a>],
          ["Queue", <a href={link("queues", "", { name: job.queue })}>{job.queue}</a>],
          ["Task", <><a href={link("jobs", "", { task: job.task })}>{job.task}</a> · <a href={link("charts", "", { task: job.task })}>charts</a></>],
          ["Source", job.source && <a href={link("sources", "", { name: job.source })}>{job.source}</a>],
          ["Worker", links.worker && <><a href={link("workers", "", { name: links.worker.id })}>{links.worker.id}</a>{links.worker.alive ? "" : " (silent)"}</>],
        ]}
      />
      {links.children.length > 0 && (
        <>
          <h3>Children</h3>
          <ul class="plain-list" aria-label="Children">
            {links.children.map((child) => <li key={child.jobId}><State state={child.state} /> <JobLink id={child.jobId}>{child.task}</JobLink></li>)}
          </ul>
          {links.childCount.count > links.children.length && <p><a href={link("jobs", "", { parent: job.jobId })}>All {count(links.childCount)} children</a></p>}
        </>
      )}
    </Section>
  );
}

/** A job that this one, or a batch, has to do with. */
export function Relative({ of }: { of: Linked | GoneJob }) {
  if (of.task === null) return <span class="quiet mono" title="It was removed">{of.jobId}</span>;
  return <><JobLink id={of.jobId}>{of.task}</JobLink> <State state={of.state} /></>;
}

export function Facts({ page: { job } }: { page: JobPage }) {
  return (
    <Section title="Record">
      <List
        rows={[
          ["Owner", job.owner],
          ["Priority", job.priority],
          ["Tags", (job.tags ?? []).join(", ")],
          ["Created", <Ago at={job.createdAt} />],
          ["Due", job.finishedAt ? null : <Ago at={job.runAfter} />],
          ["Started", job.startedAt && <Ago at={job.startedAt} />],
          ["Ended", job.finishedAt && <Ago at={job.finishedAt} />],
          ["Time limit", job.timeoutSeconds ? duration(job.timeoutSeconds) : null],
          ["Expires", job.expiresAt && <Ago at={job.expiresAt} />],
          ["Last heartbeat", job.state === "running" && job.heartbeatAt ? <Ago at={job.heartbeatAt} /> : null],
          ["Lease ends", job.state === "running" && job.leaseExpiresAt ? <Ago at={job.leaseExpiresAt} /> : null],
          ["Cancel asked", job.cancelRequestedAt && <Ago at={job.cancelRequestedAt} />],
          ["Given back", job.releases || null],
          ["Workers lost", job.losses || null],
          ["Unreadable", job.unreadable.join(", ")],
        ]}
      />
    </Section>
  );
}
