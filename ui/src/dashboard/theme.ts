// Light, dark, or as the system says. Remembered in this browser.
const KEY = "rowlock.theme";
export const THEMES = ["system", "light", "dark"];

export function theme(): string {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system"; // the browser keeps nothing for this page
  }
}

export function applyTheme(): void {
  const chosen = theme();
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}

/** Use this theme from now on; what is used now. */
export function chooseTheme(chosen: string): string {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    document.documentElement.dataset["theme"] = chosen;
    return chosen;
  }
  applyTheme();
  return chosen;
}
