// Who is here: an operator sees the dashboard, anybody else the login.
import { useLayoutEffect, useState } from "preact/hooks";
import { get, post, Problem, remove, useCsrf } from "../shared/api.ts";
import { stopLive } from "./live.ts";
import { Login } from "./login.tsx";
import { Page } from "./page.tsx";
import type { Session } from "./types.ts";

const ONCE = /^#once=(.+)$/;

export function App() {
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [problem, setProblem] = useState("");

  function enter(found: Session): void {
    if (!found.scope.startsWith("operator")) {
      setProblem("This login is for one owner's jobs. The dashboard needs an operator's.");
      setSession(null);
      return;
    }
    useCsrf(found.csrf);
    setProblem("");
    setSession(found);
  }

  async function open(): Promise<void> {
    const once = ONCE.exec(location.hash)?.[1];
    // A link is used up by this request: take it out of the address, the history and the reach of a reload.
    if (once) history.replaceState(null, "", location.pathname);
    try {
      enter(once ? await post<Session>("api/session", { once: decodeURIComponent(once) }) : await get<Session>("api/session"));
    } catch (error) {
      if (error instanceof Problem && (once || error.status !== 401)) setProblem(error.message);
      setSession(null);
    }
  }

  async function logOut(): Promise<void> {
    stopLive();
    await remove("api/session").catch(() => undefined);
    useCsrf(null);
    setSession(null);
  }

  // Before anything is painted: a reader who follows another address at once would lose the link and stay logged out.
  useLayoutEffect(() => {
    void open();
    const onHash = (): void => {
      if (ONCE.test(location.hash)) void open();
    };
    window.addEventListener("hashchange", onHash);
    return () => window.removeEventListener("hashchange", onHash);
  }, []);

  if (session === undefined) return <p class="loading">Reading…</p>;
  if (session === null) return <Login problem={problem} setProblem={setProblem} enter={enter} />;
  return <Page session={session} logOut={() => void logOut()} />;
}
