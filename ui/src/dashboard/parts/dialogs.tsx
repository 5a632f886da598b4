// Dialogs: native ones, which keep the focus inside and close with Escape.
import type { ComponentChildren } from "preact";
import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Dialog as Question } from "../store.ts";

export interface Opened<T> {
  what: T;
  /** Another one for each opening. */
  key: number;
  close(): void;
}
let openings = 0;

/** What stands in a dialog now, and how to open one. `close` closes its own dialog alone: the browser tells of the end of
 * a dialog when the next one may be open already. */
export function useOpened<T>(): [Opened<T> | null, (what: T) => void] {
  const [opened, setOpened] = useState<Opened<T> | null>(null);
  const open = useCallback((what: T) => {
    const close = (): void => setOpened((now) => (now?.close === close ? null : now));
    setOpened({ what, key: ++openings, close });
  }, []);
  return [opened, open];
}

export function Dialog({ title, close, children, wide }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => { // with its drawing: a key that follows at once is meant for the dialog
    const before = document.activeElement;
    const shown = dialog.current;
    shown?.showModal();
    return () => {
      shown?.close(); // while it is open, nothing outside of it takes the focus
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class={wide ? "wide" : undefined} aria-labelledby="dialog-title" onClose={close}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A question with one button that acts, and one that does not. */
export function Ask({ question, close, tell }: { question: Question; close: () => void; tell: (text: string, kind?: "done" | "failed") => void }) {
  const [busy, setBusy] = useState(false);
  async function act(): Promise<void> {
    setBusy(true);
    try {
      const said = await question.act();
      if (said) tell(said);
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error), "failed");
    }
    close();
  }
  return (
    <Dialog title={question.title} close={close}>
      <p>{question.text}</p>
      <div class="dialog-buttons">
        <button type="button" onClick={close}>Leave it</button>
        <button type="button" class={question.danger ? "main danger-main" : "main"} disabled={busy} onClick={() => void act()}>
          {question.button}
        </button>
      </div>
    </Dialog>
  );
}
