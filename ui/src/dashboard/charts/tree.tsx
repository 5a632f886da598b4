// A batch as a tree: the job that made it, its jobs, what these led to, and the job of its end.
import { shortId } from "../format.ts";
import { IconPath } from "../parts/icon.tsx";
import { link } from "../router.ts";
import { BATCH, type Box, draw, IN_A_ROW, type Node } from "../tree.ts";
import { Figure } from "./figure.tsx";

const ROW = 30;
const COLUMN = 236;
const WIDE = 196;
const HIGH = 24;
const SQUARE = 24;
const LETTERS = 24; // of a task's name

export function Tree({ name, nodes }: { name: string; nodes: Node[] }) {
  const { boxes, lines, depth, rows } = draw(nodes);
  const known = new Map(boxes.map((box) => [box.key, box]));
  const table = nodes.map((node) => [node.jobId, node.task, node.state, node.kind === "onEnd" ? "end of the batch" : node.kind, node.parentId ?? ""]);
  return (
    <Figure title="Tree" table={{ head: ["Job", "Task", "State", "What", "Parent"], rows: table }}>
      <div class="tree" data-scrolls tabIndex={0} role="region" aria-label={`Tree of ${name}`}>
        <svg width={depth * COLUMN + WIDE + 2} height={rows * ROW + 4} role="group" aria-label={`${nodes.length} jobs`}>
          {lines.map(([from, to]) => <Line key={`${from} ${to}`} from={known.get(from)} to={known.get(to)} />)}
          {boxes.map((box) => (box.key === BATCH ? <Batch key={BATCH} box={box} name={name} /> : box.jobs.length === 1 ? <One key={box.key} box={box} /> : <Many key={box.key} box={box} />))}
        </svg>
      </div>
    </Figure>
  );
}

const left = (box: Box): number => box.depth * COLUMN + 1;
const top = (box: Box): number => box.row * ROW + 2;

function Line({ from, to }: { from: Box | undefined; to: Box | undefined }) {
  if (!from || !to) return null;
  const [x1, y1, x2, y2] = [left(from) + WIDE + 2, top(from) + HIGH / 2, left(to) - 2, top(to) + HIGH / 2];
  const middle = (x1 + x2) / 2;
  return <path class="branch" d={`M${x1},${y1}C${middle},${y1} ${middle},${y2} ${x2},${y2}`} />;
}

function Batch({ box, name }: { box: Box; name: string }) {
  return (
    <g class="tree-batch">
      <rect x={left(box)} y={top(box)} width={WIDE} height={HIGH} rx="6" />
      <IconPath name="batches" x={left(box) + 6} y={top(box) + 4} />
      <text x={left(box) + 28} y={top(box) + 16}>{short(name)}<title>{name}</title></text>
    </g>
  );
}

function One({ box }: { box: Box }) {
  const [job] = box.jobs as [Node];
  return (
    <a href={link("job", job.jobId)} class={`station lit ${job.state}`} aria-label={said(job)}>
      <rect x={left(box)} y={top(box)} width={WIDE} height={HIGH} rx="6" />
      <IconPath name={job.state} x={left(box) + 6} y={top(box) + 4} />
      <text class="station-text" x={left(box) + 28} y={top(box) + 16}>{named(job)}</text>
      <title>{`${job.task}: ${job.state}`}</title>
    </a>
  );
}

/** Alike jobs: a square for each, below their name. */
function Many({ box }: { box: Box }) {
  return (
    <g>
      <text class="tree-label" x={left(box) + 4} y={top(box) + 17}>{short(box.jobs[0]?.task ?? "")} × {box.jobs.length}</text>
      {box.jobs.map((job, index) => {
        const x = left(box) + (index % IN_A_ROW) * SQUARE;
        const y = top(box) + (1 + Math.floor(index / IN_A_ROW)) * ROW - 2;
        return (
          <a key={job.jobId} href={link("job", job.jobId)} class={`station lit ${job.state}`} aria-label={said(job)}>
            <rect x={x} y={y} width={SQUARE - 3} height={HIGH} rx="4" />
            <IconPath name={job.state} x={x + 2.5} y={y + 4} />
            <title>{said(job)}</title>
          </a>
        );
      })}
    </g>
  );
}

/** What a screen reader says begins with what stands in the box. */
function said(job: Node): string {
  return `${named(job)} ${shortId(job.jobId)}: ${job.state}`;
}

function named(job: Node): string {
  return short(job.kind === "onEnd" ? `end: ${job.task}` : job.task);
}

function short(text: string): string {
  return text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text;
}
