// Icons, drawn on a grid of 16: one stroke width, no fill.
const PATHS = {
  queued: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3l2 1.5",
  running: "M5.5 3.5v9l7-4.5z",
  retryable: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  succeeded: "M3 8.5l3.2 3.2L13 5",
  dead: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M4.2 4.2l7.6 7.6",
  now: "M2 9h3l2-6 3 10 2-4h2",
  jobs: "M5 4h9M5 8h9M5 12h9M2 4h.01M2 8h.01M2 12h.01",
  queues: "M2.5 3.5h11v3h-11zM2.5 9.5h11v3h-11z",
  failures: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.6v.01",
  workers: "M3 3h10v7H3zM6 13h4M8 10v3",
  schedules: "M3 4h10v9H3zM3 7h10M6 2.5v3M10 2.5v3",
  sources: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M2.5 8h11M8 2.5c-3.5 3.5-3.5 7.5 0 11M8 2.5c3.5 3.5 3.5 7.5 0 11",
  batches: "M3 5l5-2.5 5 2.5-5 2.5zM3 8l5 2.5 5-2.5M3 11l5 2.5 5-2.5",
  charts: "M3 2.5v11h11M6 11V8M9 11V5M12 11V7",
  feed: "M3 3h10v7H8l-3 3v-3H3z",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5L14 14",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  plus: "M8 3v10M3 8h10",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  info: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 7.3v3.5M8 5v.01",
  keys: "M1.5 4h13v8h-13zM4 7h.01M7 7h.01M10 7h.01M5 9.7h6",
  settings: "M2.5 5h6M12.5 5h1M2.5 11h1M7.5 11h6M10.5 3a2 2 0 1 0 0 4a2 2 0 1 0 0-4M5.5 9a2 2 0 1 0 0 4a2 2 0 1 0 0-4",
  out: "M6.5 3H3v10h3.5M6.5 8H14M11 5l3 3-3 3",
} as const;

export type IconName = keyof typeof PATHS;

/** An icon beside a word, so hidden from screen readers. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** An icon inside of a drawing. */
export function IconPath({ name, x, y }: { name: IconName; x: number; y: number }) {
  return <path class="icon-path" d={PATHS[name]} transform={`translate(${x} ${y})`} />;
}
