// The frame around every view: navigation, search, what is live, dialogs and messages.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { startLive, stopLive, useLiveState } from "./live.ts";
import { Brand } from "./login.tsx";
import { Help } from "./help.tsx";
import { Palette } from "./palette.tsx";
import { Ask, useOpened } from "./parts/dialogs.tsx";
import { Icon } from "./parts/icon.tsx";
import { link, useRoute } from "./router.ts";
import { type Dialog, type Shell, ShellContext } from "./store.ts";
import { useKeys } from "./keys.ts";
import type { Session } from "./types.ts";
import { parentView, VIEWS, viewOf } from "./views.tsx";

interface Told {
  text: string;
  kind: "done" | "failed";
}

export function Page({ session, logOut }: { session: Session; logOut: () => void }) {
  const route = useRoute();
  const [asked, ask] = useOpened<Dialog>();
  const [opened, open] = useOpened<"palette" | "help">();
  const [told, setTold] = useState<Told | null>(null);
  const [menu, setMenu] = useState(false);
  const main = useRef<HTMLElement>(null);
  const tell = useCallback((text: string, kind: Told["kind"] = "done") => setTold({ text, kind }), []);
  const shell = useMemo<Shell>(() => ({ session, tell, ask, logOut }), [session]);
  const View = viewOf(route.view);

  useEffect(() => {
    startLive();
    return stopLive;
  }, []);
  useEffect(() => {
    const timer = told?.kind === "done" ? window.setTimeout(() => setTold(null), 8000) : undefined;
    return () => window.clearTimeout(timer);
  }, [told]);
  useEffect(() => {
    setMenu(false);
    document.title = `${route.name || VIEWS.find(({ view }) => view === route.view)?.title || "Rowlock"} · Rowlock`;
    window.scrollTo(0, 0);
  }, [route.view, route.name]);
  useKeys(open);

  return (
    <ShellContext.Provider value={shell}>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <header class="top">
        <button type="button" class="plain menu-button" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
          <Icon name="menu" /><span class="off-screen">Menu</span>
        </button>
        <a class="home" href={link("now")}><Brand /> Rowlock</a>
        <button type="button" class="find" onClick={() => open("palette")}>
          <Icon name="search" /><span>Find a job by id or log line, or go to…</span><kbd>Ctrl K</kbd>
        </button>
        <Live />
        {!session.mayChange && <span class="badge">Read-only</span>}
      </header>
      <nav id="nav" class={menu ? "nav open" : "nav"} aria-label="Views">
        <ul>
          {VIEWS.map(({ view, title, icon }) => (
            <li key={view}>
              <a href={link(view)} aria-current={parentView(route.view) === view ? "page" : undefined}><Icon name={icon} />{title}</a>
            </li>
          ))}
        </ul>
        <div class="nav-end">
          {session.mayChange && <a class="button" href={link("new")}><Icon name="plus" />New job</a>}
          <button type="button" class="plain" onClick={() => open("help")}><Icon name="keys" />Shortcuts</button>
          <button type="button" class="plain" onClick={logOut}><Icon name="out" />Log out</button>
        </div>
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        <View key={`${route.view}/${route.name}`} route={route} />
      </main>
      <div class="toasts" role="status" aria-live="polite">
        {told && (
          <p class={`toast ${told.kind}`}>
            <Icon name={told.kind === "done" ? "succeeded" : "failures"} />{told.text}
            <button type="button" class="plain" onClick={() => setTold(null)}>Close</button>
          </p>
        )}
      </div>
      {asked && <Ask key={asked.key} question={asked.what} close={asked.close} tell={tell} />}
      {opened?.what === "palette" && <Palette key={opened.key} close={opened.close} />}
      {opened?.what === "help" && <Help key={opened.key} close={opened.close} />}
    </ShellContext.Provider>
  );
}

const LIVE = {
  connecting: "connecting", live: "live", resting: "resting", broken: "reconnecting", refused: "logged out",
} as const;

function Live() {
  const state = useLiveState();
  return (
    <span class={`live ${state}`} role="status" title="Whether changes arrive by themselves">
      <span class="dot" />{LIVE[state]}
    </span>
  );
}
