// Where the jobs of a batch and what they led to lie in a drawing: from left to right, each job beside the one that made
// it. Pure.
import type { State } from "./types.ts";

export interface Node {
  jobId: string;
  task: string;
  state: State;
  parentId: string | null;
  kind: "parent" | "job" | "child" | "onEnd";
}

/** A box of the drawing: the batch itself (no job), one job, or many jobs of one task that led to alike jobs. */
export interface Box {
  key: string;
  depth: number;
  row: number;
  jobs: Node[];
}
export interface Drawing {
  boxes: Box[];
  lines: [string, string][]; // from the box with this key to the one with that
  depth: number;
  rows: number;
}

export const BATCH = "batch";
export const IN_A_ROW = 8; // jobs that lie beside each other in one box
const SEVERAL = 4; // from this many on, alike jobs share a box

/** How many rows a box takes: many jobs have their name above them. */
export function rowsOf({ jobs }: Pick<Box, "jobs">): number {
  return jobs.length > 1 ? 1 + Math.ceil(jobs.length / IN_A_ROW) : 1;
}

export function draw(nodes: Node[]): Drawing {
  const parent = nodes.find(({ kind }) => kind === "parent");
  const children = new Map<string, Node[]>();
  const inside = new Set(nodes.filter((node) => node !== parent).map(({ jobId }) => jobId));
  for (const node of nodes) {
    if (node === parent) continue;
    const above = node.kind !== "onEnd" && node.parentId && inside.has(node.parentId) && node.parentId !== node.jobId ? node.parentId : BATCH;
    children.set(above, [...(children.get(above) ?? []), node]);
  }
  const drawing: Drawing = { boxes: [], lines: [], depth: 0, rows: 0 };
  let row = 0;

  function put(key: string, jobs: Node[], depth: number): Box {
    const box = { key, depth, row, jobs };
    drawing.boxes.push(box);
    drawing.depth = Math.max(drawing.depth, depth);
    row += rowsOf(box);
    return box;
  }
  /** Draw what hangs on a box, beside it; a single box moves to the middle of that. */
  function hang(box: Box, above: string[]): void {
    const below = above.flatMap((key) => children.get(key) ?? []);
    if (below.length === 0) return;
    const after = row;
    row = box.row;
    const made = groups(below, children).map((jobs) => {
      const found = put(jobs[0]?.jobId ?? "", jobs, box.depth + 1);
      drawing.lines.push([box.key, found.key]);
      hang(found, jobs.map(({ jobId }) => jobId));
      return found;
    });
    if (box.jobs.length <= 1) box.row = ((made[0]?.row ?? 0) + (made.at(-1)?.row ?? 0)) / 2;
    row = Math.max(row, after);
  }
  const first = parent ? put(parent.jobId, [parent], 0) : null;
  if (first) row = 0;
  const batch = put(BATCH, [], first ? 1 : 0);
  if (first) drawing.lines.push([first.key, BATCH]);
  hang(batch, [BATCH]);
  if (first) first.row = batch.row;
  return { ...drawing, rows: Math.max(1, row) };
}

/** Jobs that share a box; those with trouble first, the end of the batch last. */
function groups(nodes: Node[], children: Map<string, Node[]>): Node[][] {
  const alike = new Map<string, Node[]>();
  for (const node of nodes) {
    const key = node.kind === "onEnd" ? node.jobId : shape(node, children);
    alike.set(key, [...(alike.get(key) ?? []), node]);
  }
  const place = (jobs: Node[]): number => (jobs[0]?.kind === "onEnd" ? 2 : jobs.some(({ state }) => state === "dead") ? 0 : 1);
  return [...alike.values()].flatMap((jobs) => (jobs.length < SEVERAL ? jobs.map((job) => [job]) : [jobs])).sort((a, b) => place(a) - place(b));
}

/** A job's task and those of the jobs that it led to. */
function shape(node: Node, children: Map<string, Node[]>): string {
  const inner = (children.get(node.jobId) ?? []).map((child) => shape(child, children));
  return `${node.task}(${inner.sort().join()})`;
}
