// Who uses this page. A login link carries its secret behind `#`: it is exchanged once, for a cookie that no script can read.
import { get, post, Problem, remove, useCsrf } from "../shared/api.ts";

export interface Session {
  owner: string | null;
  zone: string;
  csrf: string | null;
}

/** The session of the link in the address, else the one that this browser has; null without either. */
export async function logIn(): Promise<Session | null> {
  const once = new URLSearchParams(location.hash.slice(1)).get("once");
  if (once !== null) history.replaceState(null, "", location.pathname + location.search);
  try {
    const session = once !== null ? await post<Session>("api/session", { once }) : await get<Session>("api/session");
    useCsrf(session.csrf);
    return session;
  } catch (error) {
    if (error instanceof Problem && error.status === 401 && once === null) return null;
    throw error;
  }
}

export async function logOut(): Promise<void> {
  await remove("api/session");
}
