import { useLayoutEffect, useState } from "preact/hooks";
import type { LiveState } from "../shared/live.ts";
import { ReplayCard } from "./replay.tsx";
import { logIn, logOut, type Session } from "./session.ts";
import { useReplays } from "./store.ts";

const LOGIN = "Open your login link to see your replays. Each link works once, within ten minutes.";
const ENDED = "You are logged out. Ask for a new login link to go on.";

export function App() {
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [said, setSaid] = useState(LOGIN);
  useLayoutEffect(() => { // before anything is painted: the link is out of the address by then
    logIn().then(setSession, (error: Error) => {
      setSaid(error.message);
      setSession(null);
    });
  }, []);

  function leave(): void {
    setSaid(ENDED);
    setSession(null);
  }

  if (session === undefined) return <main class="login" aria-busy="true" />;
  if (session === null || session.owner === null) {
    const text = session === null ? said : "This page is for users. An operator's link opens the dashboard.";
    return (
      <main class="login card">
        <h1><Brand /> Replays</h1>
        <p role="alert">{text}</p>
        <p class="quiet">A link comes from the person who runs this server: <code>rowlock login-link --owner NAME</code></p>
      </main>
    );
  }
  return <List session={session} owner={session.owner} leave={leave} />;
}

function List({ session, owner, leave }: { session: Session; owner: string; leave: () => void }) {
  const store = useReplays(leave);
  return (
    <>
      <header>
        <h1><Brand /> Replays</h1>
        <Live state={store.live} />
        <span class="who">{owner}</span>
        <button type="button" class="plain" onClick={() => void logOut().then(leave, leave)}>Log out</button>
      </header>
      <main>
        <p class="problem card" role="alert" hidden={store.problem === null}>{store.problem}</p>
        {store.replays?.length === 0 && (
          <section class="empty card">
            <h2>No replays yet</h2>
            <p class="quiet">A replay appears here once it was sent to <code>POST /api/replays</code>.</p>
          </section>
        )}
        <ul class="replays" aria-label="My replays">
          {store.replays?.map((replay) => (
            <ReplayCard key={replay.replayId} replay={replay} store={store} zone={session.zone} />
          ))}
        </ul>
        {store.hasMore && <button type="button" onClick={store.more}>Show older replays</button>}
      </main>
      <p class="off-screen" role="status">{store.said}</p>
    </>
  );
}

const LIVE: Record<LiveState, string> = {
  connecting: "Connecting",
  live: "Live",
  resting: "Paused",
  broken: "Connection lost, trying again",
  refused: "Connection refused, trying again",
};

function Live({ state }: { state: LiveState }) {
  return <span class={`live ${state}`} role="status"><span class="dot" aria-hidden="true" />{LIVE[state]}</span>;
}

function Brand() {
  return (
    <svg class="brand" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="7" />
      <path d="M12 9.5v13l11-6.5z" />
    </svg>
  );
}
