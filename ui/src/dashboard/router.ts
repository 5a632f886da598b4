// Where the reader is: the part of the address behind `#`, as "#/jobs?state=dead". It stays in the browser, so that no
// filter and no id comes into a log of the server, and it works under any prefix.
import { useLayoutEffect, useState } from "preact/hooks";

export interface Route {
  view: string;
  /** What of the view: the id of a job, the name of a task. */
  name: string;
  query: Record<string, string>;
}

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view = "", ...rest] = path.split("/");
  return { view: view || "now", name: decode(rest.join("/")), query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a view; empty values of the query are left out. */
export function link(view: string, name = "", query: Record<string, string | null | undefined> = {}): string {
  const kept = Object.entries(query).filter((pair): pair is [string, string] => Boolean(pair[1]));
  const search = new URLSearchParams(kept).toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${search ? `?${search}` : ""}`;
}

export function go(to: string): void {
  location.hash = to;
}

/** Change the address without a new entry in the history, as while typing. */
export function replace(to: string): void {
  history.replaceState(null, "", to);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useLayoutEffect(() => { // with the first drawing: no change of the address comes between the two
    const onChange = (): void => setHash(location.hash);
    window.addEventListener("hashchange", onChange);
    return () => window.removeEventListener("hashchange", onChange);
  }, []);
  return parseRoute(hash);
}
