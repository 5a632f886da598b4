// How this browser shows the dashboard, and how the server is set up.
import { useState } from "preact/hooks";
import { useData } from "../data.ts";
import { formatFilter, parseFilter } from "../filter.ts";
import { number, told } from "../format.ts";
import { Keys } from "../help.tsx";
import { Ago, Copy, Empty, Head, Section } from "../parts/bits.tsx";
import { List } from "../parts/facts.tsx";
import { Loaded } from "../parts/loaded.tsx";
import { keepFilters, keptFilters } from "../parts/saved.tsx";
import { link } from "../router.ts";
import { useShell } from "../store.ts";
import { chooseTheme, theme, THEMES } from "../theme.ts";

interface Token {
  id: string | number;
  kind: string;
  hint: string;
  owner: string | null;
  scope: string;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
}
interface Settings {
  version: string;
  python: string;
  engine: string;
  database: string;
  server: string;
  schema: { version: number; code: number };
  zone: string;
  retention: Record<string, unknown>;
  limits: Record<string, unknown>;
  worker: Record<string, unknown>;
  parts: Record<string, boolean>;
  tokens: Token[];
  tokensExact: boolean;
}

export function SettingsView() {
  const data = useData<Settings>("api/operator/settings", {}, ["audit"]);
  return (
    <>
      <Head title="Settings" />
      <div class="columns">
        <Looks />
        <Filters />
      </div>
      <Loaded data={data}>{(settings) => <System settings={settings} />}</Loaded>
      <Section title="Shortcuts"><div class="keys-box"><Keys /></div></Section>
    </>
  );
}

function Looks() {
  const [chosen, setChosen] = useState(theme);
  const { session } = useShell();
  return (
    <Section title="This browser">
      <fieldset class="choices">
        <legend>Theme</legend>
        {THEMES.map((name) => (
          <label key={name}>
            <input type="radio" name="theme" value={name} checked={chosen === name} onChange={() => setChosen(chooseTheme(name))} /> {name === "system" ? "as the system says" : name}
          </label>
        ))}
      </fieldset>
      <List
        rows={[
          ["Logged in as", session.owner ?? "operator"],
          ["May", session.mayChange ? "look and change" : "only look"],
          ["Session ends", session.expiresAt && <Ago at={session.expiresAt} />],
        ]}
      />
    </Section>
  );
}

function Filters() {
  const [kept, setKept] = useState(keptFilters);
  const drop = (text: string): void => setKept(keepFilters(kept.filter((other) => other !== text)));
  return (
    <Section title="Saved filters">
      {kept.length === 0 ? <p class="quiet">None. The button “Save” beside the filter of the job list keeps one in this browser.</p> : (
        <ul class="plain-list saved-filters">
          {kept.map((text) => (
            <li key={text}>
              <a href={link("jobs", "", { ...parseFilter(text) })}><code>{formatFilter(parseFilter(text))}</code></a>
              <button type="button" class="plain" onClick={() => drop(text)}>Forget<span class="off-screen"> {text}</span></button>
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function System({ settings }: { settings: Settings }) {
  const { schema } = settings;
  return (
    <>
      <div class="packed">
        <Section title="System" aside={<Copy text={`Rowlock ${settings.version}, Python ${settings.python}, ${settings.server}, schema ${schema.version}`} what="the versions" />}>
          <List
            rows={[
              ["Rowlock", settings.version],
              ["Python", settings.python],
              ["Database", <code>{settings.database}</code>],
              ["Engine", settings.server],
              ["Schema", schema.version === schema.code ? number(schema.version) : <span class="warn-text">{schema.version}; this server was made for {schema.code}: run <code>rowlock migrate</code></span>],
              ["Time zone", settings.zone],
            ]}
          />
        </Section>
        <Section title="Retention"><List rows={told(settings.retention)} /></Section>
        <Section title="Workers, as this server reads it"><List rows={told(settings.worker)} /></Section>
        <Section title="Limits"><List rows={told(settings.limits)} /></Section>
        <Section title="Parts"><List rows={told(settings.parts)} /></Section>
      </div>
      <Section title="Tokens" aside={settings.tokensExact ? undefined : <span class="quiet">the newest</span>}><Tokens tokens={settings.tokens} /></Section>
    </>
  );
}

function Tokens({ tokens }: { tokens: Token[] }) {
  if (tokens.length === 0) return <Empty title="There is no token"><p>Programs that use the API need one:</p><pre>rowlock tokens create --owner NAME --scope jobs</pre></Empty>;
  return (
    <table class="list">
      <thead><tr><th scope="col">Token</th><th scope="col">Owner</th><th scope="col">Scope</th><th scope="col" class="number wide">Created</th><th scope="col" class="number">Ends</th></tr></thead>
      <tbody>
        {tokens.map((token) => (
          <tr key={token.id}>
            <th scope="row"><code>{token.hint}…</code><span class="below quiet">{token.kind}</span></th>
            <td>{token.owner ?? "–"}</td>
            <td>{token.scope}</td>
            <td class="number wide"><Ago at={token.createdAt} /></td>
            <td class="number">{token.revokedAt ? <span class="bad-text">revoked <Ago at={token.revokedAt} /></span> : <Ago at={token.expiresAt} none="never" />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
