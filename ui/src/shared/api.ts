// Requests to the job API of this server. The session cookie says who asks; it is never readable here. What changes
// something also carries the session's CSRF token, which another site cannot know.
import { read, write } from "./json.ts";

let csrf: string | null = null;

/** Send this CSRF token from now on: `csrf` of the session. */
export function useCsrf(token: string | null): void {
  csrf = token;
}

/** What the server answered instead of what was asked for (problem details). */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** The address of a path below the folder that this page was served from, so that a prefix changes nothing. */
export function address(path: string, query: Query = {}): string {
  const url = new URL(path, new URL(".", document.baseURI));
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

export function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return ask<T>("GET", path, { query, ...(signal && { signal }) });
}

export interface Newer<T> {
  /** Nothing if what `etag` stands for is still the newest. */
  value: T | undefined;
  etag: string | null;
  /** Another page has read it within the last second: there may be something newer. */
  shared: boolean;
}

/** What is there now, unless that is what `etag` stands for. */
export async function getNewer<T>(path: string, etag: string | null, signal: AbortSignal): Promise<Newer<T>> {
  const answer = await send("GET", path, { signal, ...(etag !== null && { etag }) });
  const value = answer.status === 304 ? undefined : ((await valueOf(answer)) as T);
  return { value, etag: answer.headers.get("ETag"), shared: answer.headers.has("Age") };
}

export function post<T>(path: string, body?: unknown, query: Query = {}): Promise<T> {
  return ask<T>("POST", path, { body: body ?? {}, query });
}

export function remove<T>(path: string): Promise<T> {
  return ask<T>("DELETE", path, {});
}

interface Options {
  body?: unknown;
  query?: Query;
  signal?: AbortSignal;
  etag?: string;
}

async function ask<T>(method: string, path: string, options: Options): Promise<T> {
  return (await valueOf(await send(method, path, options))) as T;
}

async function send(method: string, path: string, { body, query, signal, etag }: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (csrf !== null && method !== "GET") headers["X-Rowlock-CSRF"] = csrf;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag !== undefined) headers["If-None-Match"] = etag;
  try {
    return await fetch(address(path, query), {
      method,
      headers,
      credentials: "same-origin",
      ...(body !== undefined && { body: write(body) }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "UNREACHABLE", "The server cannot be reached.");
  }
}

async function valueOf(answer: Response): Promise<unknown> {
  const text = await answer.text();
  const value = parse(text);
  if (answer.ok) return value;
  throw problem(answer.status, value);
}

function parse(text: string): unknown {
  try {
    return text === "" ? undefined : read(text);
  } catch {
    return undefined;
  }
}

function problem(status: number, value: unknown): Problem {
  const body = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  const errors = Array.isArray(body["errors"]) ? (body["errors"] as Record<string, unknown>[]) : [];
  const details = errors.map((error) => `${String(error["field"] ?? "")} ${String(error["message"] ?? "")}`.trim());
  const text = [body["detail"] ?? body["title"] ?? `The server answered ${status}.`, ...details].join(" · ");
  return new Problem(status, String(body["code"] ?? ""), text);
}
