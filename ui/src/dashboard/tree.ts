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

/** A box of the drawing: the batch itself (no job), one job, or many jobs of one task that led to nothing. */
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
const SEVERAL = 4; // from this many on, jobs of one task that led to nothing share a box

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
  const seen = new Set<string>(); // a circle cannot be, but must not hang the page
  let row = 0;

  function put(key: string, jobs: Node[], depth: number, high: number): Box {
    const box = { key, depth, row, jobs };
    drawing.boxes.push(box);
    drawing.depth = Math.max(drawing.depth, depth);
    row += high;
    return box;
  }
  /** Draw what hangs on a box, and move the box to its middle. */
  function hang(box: Box, above: string): void {
    const below = (children.get(above) ?? []).filter(({ jobId }) => !seen.has(jobId));
    below.forEach(({ jobId }) => seen.add(jobId));
    if (below.length === 0) return;
    row = box.row;
    const made = groups(below, children).map((jobs) => {
      const [first] = jobs as [Node];
      const found = put(first.jobId, jobs, box.depth + 1, jobs.length > 1 ? Math.ceil(jobs.length / IN_A_ROW) : 1);
      drawing.lines.push([box.key, found.key]);
      if (jobs.length === 1) hang(found, first.jobId);
      return found;
    });
    const [top, bottom] = [made[0], made.at(-1)] as [Box, Box];
    box.row = (top.row + bottom.row + (bottom.jobs.length > 1 ? Math.ceil(bottom.jobs.length / IN_A_ROW) - 1 : 0)) / 2;
  }
  const first = parent ? put(parent.jobId, [parent], 0, 1) : null;
  if (first) row = 0;
  const batch = put(BATCH, [], first ? 1 : 0, 1);
  if (first) drawing.lines.push([first.key, BATCH]);
  hang(batch, BATCH);
  if (first) first.row = batch.row;
  return { ...drawing, rows: Math.max(1, row) };
}

/** Jobs that share a box. */
function groups(nodes: Node[], children: Map<string, Node[]>): Node[][] {
  const alike = new Map<string, Node[]>();
  for (const node of nodes) {
    const plain = node.kind !== "onEnd" && !children.has(node.jobId);
    const key = plain ? `task ${node.task}` : node.jobId;
    alike.set(key, [...(alike.get(key) ?? []), node]);
  }
  const last = (jobs: Node[]): number => (jobs[0]?.kind === "onEnd" ? 1 : 0);
  return [...alike.values()].flatMap((jobs) => (jobs.length < SEVERAL ? jobs.map((job) => [job]) : [jobs])).sort((a, b) => last(a) - last(b));
}
