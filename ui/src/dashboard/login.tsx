import { useState } from "preact/hooks";
import { post } from "../shared/api.ts";
import type { Session } from "./types.ts";

type Props = { problem: string; setProblem: (text: string) => void; enter: (session: Session) => void };

/** A pasted login link or token becomes a session: a cookie that no script can read. */
export function Login({ problem, setProblem, enter }: Props) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);

  async function logIn(event: Event): Promise<void> {
    event.preventDefault();
    const once = /#once=(\S+)/.exec(text)?.[1];
    setBusy(true);
    try {
      enter(await post<Session>("api/session", once ? { once: decodeURIComponent(once) } : { token: text.trim() }));
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  }

  return (
    <main class="login">
      <form class="card" onSubmit={(event) => void logIn(event)}>
        <h1><Brand /> Rowlock</h1>
        <p class="quiet">This page is for operators. Open the one-time link that the server printed, or paste it here, or a token.</p>
        <label for="secret">Login link or token</label>
        <input id="secret" type="password" autocomplete="off" required value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit" class="main" disabled={busy}>Log in</button>
        {problem && <p class="bad-text" role="alert">{problem}</p>}
        <h2>Where from?</h2>
        <pre>rowlock login-link</pre>
        <p class="quiet">prints a new link on the machine that has the database. It is good once.</p>
      </form>
    </main>
  );
}

export function Brand() {
  return (
    <svg class="brand" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="7" />
      <path d="M9 7v8a7 7 0 0 0 14 0V7M16 22v5" />
    </svg>
  );
}

