import { KEYS } from "./keys.ts";
import { Dialog } from "./parts/dialogs.tsx";

export function Help({ close }: { close: () => void }) {
  return (
    <Dialog title="Shortcuts" close={close}>
      <Keys />
      <div class="dialog-buttons"><button type="button" onClick={close}>Close</button></div>
    </Dialog>
  );
}

export function Keys() {
  return (
    <table class="keys">
      <thead class="off-screen"><tr><th scope="col">Key</th><th scope="col">What it does</th></tr></thead>
      <tbody>
        {KEYS.map(([key, what]) => (
          <tr key={key}>
            <td>{key.split(/\s+/).map((part) => <kbd key={part}>{part}</kbd>)}</td>
            <td>{what}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
