// The views: how they are named, and which component shows each.
import type { ComponentType } from "preact";
import type { IconName } from "./parts/icon.tsx";
import type { Route } from "./router.ts";
import { Batches } from "./views/batches.tsx";
import { ChartsView } from "./views/charts.tsx";
import { Failures } from "./views/failures.tsx";
import { FeedView } from "./views/feed.tsx";
import { Job } from "./views/job.tsx";
import { Jobs } from "./views/jobs.tsx";
import { NewJob } from "./views/new.tsx";
import { NowView } from "./views/now.tsx";
import { Queues } from "./views/queues.tsx";
import { Schedules } from "./views/schedules.tsx";
import { SettingsView } from "./views/settings.tsx";
import { Sources } from "./views/sources.tsx";
import { Workers } from "./views/workers.tsx";
import { Empty } from "./parts/bits.tsx";

export type ViewComponent = ComponentType<{ route: Route }>;

interface View {
  view: string;
  title: string;
  icon: IconName;
  shows: ViewComponent;
}

export const VIEWS: View[] = [
  { view: "now", title: "Now", icon: "now", shows: NowView },
  { view: "jobs", title: "Jobs", icon: "jobs", shows: Jobs },
  { view: "queues", title: "Queues", icon: "queues", shows: Queues },
  { view: "failures", title: "Failures", icon: "failures", shows: Failures },
  { view: "workers", title: "Workers", icon: "workers", shows: Workers },
  { view: "schedules", title: "Schedules", icon: "schedules", shows: Schedules },
  { view: "sources", title: "Sources", icon: "sources", shows: Sources },
  { view: "batches", title: "Batches", icon: "batches", shows: Batches },
  { view: "charts", title: "Charts", icon: "charts", shows: ChartsView },
  { view: "feed", title: "Feed", icon: "feed", shows: FeedView },
  { view: "settings", title: "Settings", icon: "settings", shows: SettingsView },
];

export function viewOf(name: string): ViewComponent {
  if (name === "job") return Job;
  if (name === "new") return NewJob;
  return VIEWS.find(({ view }) => view === name)?.shows ?? Unknown;
}

/** The entry of the navigation that a view belongs to. */
export function parentView(name: string): string {
  return name === "job" || name === "new" ? "jobs" : name;
}

function Unknown() {
  return (
    <Empty title="There is no such view">
      <p>The address may be of another version. The views are in the navigation.</p>
    </Empty>
  );
}
