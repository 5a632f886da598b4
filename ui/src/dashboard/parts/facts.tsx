// What a job belongs to, and the rest of its record.
import type { ComponentChildren } from "preact";
import { duration } from "../../shared/time.ts";
import { link } from "../router.ts";
import type { JobPage } from "../types.ts";
import { Ago, JobLink, Section, State } from "./bits.tsx";

function List({ rows }: { rows: [string, ComponentChildren][] }) {
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
          ["Queue", <a href={link("queues", "", { name: job.queue })}>{job.queue}</a>],
          ["Jobs of this task", <a href={link("jobs", "", { task: job.task })}>{job.task}</a>],
          ["Source", job.source && <a href={link("sources", "", { name: job.source })}>{job.source}</a>],
          ["Parent", links.parent && <><JobLink id={links.parent.jobId}>{links.parent.task}</JobLink> <State state={links.parent.state} /></>],
          ["Batch", links.batch && <a href={link("batches", links.batch.id)}>{links.batch.name ?? links.batch.id}</a>],
          ["Schedule", links.schedule && <a href={link("schedules", "", { name: links.schedule.id })}>{links.schedule.id}</a>],
          ["Worker", links.worker && <><a href={link("workers", "", { name: links.worker.id })}>{links.worker.id}</a>{links.worker.alive ? "" : " (silent)"}</>],
        ]}
      />
      {links.followUps.length > 0 && (
        <>
          <h3>Follow-ups</h3>
          <ul class="plain-list">
            {links.followUps.map((job) => <li key={job.jobId}><State state={job.state} /> <JobLink id={job.jobId}>{job.task}</JobLink></li>)}
          </ul>
        </>
      )}
    </Section>
  );
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
