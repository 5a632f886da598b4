// Dialogs: native ones, which keep the focus inside and close with Escape.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Dialog as Question } from "../store.ts";

export function Dialog({ title, close, children, wide }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
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
