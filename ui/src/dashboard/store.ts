// What the whole page knows: the session, and messages to the reader.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Session } from "./types.ts";

export interface Shell {
  session: Session;
  /** Show a sentence for a while; it is also read out. */
  tell(text: string, kind?: "done" | "failed"): void;
  /** Open a dialog. */
  ask(dialog: Dialog): void;
  logOut(): void;
}

export interface Dialog {
  title: string;
  text: string;
  button: string;
  danger?: boolean;
  act(): Promise<string | void>;
}

export const ShellContext = createContext<Shell | null>(null);

export function useShell(): Shell {
  const shell = useContext(ShellContext);
  if (shell === null) throw new Error("a view stands outside of the page");
  return shell;
}
