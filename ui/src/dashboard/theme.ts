// Light, dark, or as the system says. Remembered in this browser.
const KEY = "rowlock.theme";
const NEXT: Record<string, string> = { system: "light", light: "dark", dark: "system" };

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

export function nextTheme(): string {
  const chosen = NEXT[theme()] ?? "system";
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    document.documentElement.dataset["theme"] = chosen;
    return chosen;
  }
  applyTheme();
  return chosen;
}
