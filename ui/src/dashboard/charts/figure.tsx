// The frame of a picture: a title, the picture at the width that there is, and its numbers as a table.
import type { ComponentChildren, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Table {
  head: string[];
  rows: (string | number)[][];
}

interface Given {
  title: string;
  table: Table;
  children: ComponentChildren;
  legend?: ComponentChildren;
  /** A sentence below the picture. */
  note?: string;
}

export function Figure({ title, table, children, legend, note }: Given) {
  return (
    <figure class="card section figure" aria-label={title}>
      <figcaption><h2>{title}</h2>{legend}</figcaption>
      {children}
      <div class="figure-end">
        <AsTable title={title} table={table} />
        {note && <p class="quiet">{note}</p>}
      </div>
    </figure>
  );
}

/** The numbers behind a picture, or behind the small pictures in the rows of a list. */
export function AsTable({ title, table }: { title: string; table: Table }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="as-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Show as a table<span class="off-screen">: {title}</span></summary>
      {open && <Numbers title={title} table={table} />}
    </details>
  );
}

function Numbers({ title, table }: { title: string; table: Table }) {
  return (
    <div class="scroll" data-scrolls tabIndex={0} role="region" aria-label={`Numbers of ${title}`}>
      <table>
        <thead><tr>{table.head.map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>{row.map((cell, column) => <td key={column} class={typeof cell === "number" ? "number" : undefined}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Legend({ entries }: { entries: [string, string][] }) {
  return (
    <ul class="legend">
      {entries.map(([name, kind]) => <li key={name}><span class={`swatch ${kind}`} />{name}</li>)}
    </ul>
  );
}

/** The width of an element in pixels, now and after each change. */
export function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => { // before the first paint, which would stick out of a small window
    const element = box.current;
    if (!element) return undefined;
    setWidth(element.clientWidth || 600);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth || 600));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}
