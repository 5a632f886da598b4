// Fields for the arguments of a task, from its JSON Schema. What a field cannot show is written as JSON.
import { read, write } from "../../shared/json.ts";

export interface Schema {
  type?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  enum?: unknown[];
  anyOf?: Schema[];
  title?: string;
  description?: string;
  default?: unknown;
  additionalProperties?: unknown;
}

export interface Field {
  name: string;
  kind: "text" | "whole" | "number" | "yes" | "choice" | "json";
  required: boolean;
  choices: unknown[];
  hint: string;
}

/** The fields of a task's arguments; null when its schema is unknown or takes any names. */
export function fieldsOf(schema: Schema | null): Field[] | null {
  if (!schema?.properties) return null;
  return Object.entries(schema.properties).map(([name, found]) => {
    const inner = found.anyOf?.find(({ type }) => type !== "null") ?? found;
    const required = schema.required?.includes(name) ?? false;
    const usual = found.default === undefined || found.default === null ? "" : `without it: ${write(found.default)}`;
    return { name, kind: kindOf(inner), required, choices: inner.enum ?? [], hint: found.description ?? usual };
  });
}

function kindOf(schema: Schema): Field["kind"] {
  if (schema.enum) return "choice";
  return ({ string: "text", integer: "whole", number: "number", boolean: "yes" } as const)[schema.type ?? ""] ?? "json";
}

/** What was typed, as the value of an argument; undefined leaves it out. */
export function valueOf(field: Field, text: string): unknown {
  if (text === "" && !(field.required && field.kind === "text")) return undefined;
  if (field.kind === "text") return text;
  if (field.kind === "choice") return field.choices.find((choice) => write(choice) === text);
  try {
    return read(text);
  } catch {
    return text; // the server says what is wrong with it
  }
}

interface Given {
  fields: Field[];
  values: Record<string, unknown>;
  change: (values: Record<string, unknown>) => void;
}

export function Fields({ fields, values, change }: Given) {
  if (fields.length === 0) return <p class="quiet">It takes no arguments.</p>;
  const set = (field: Field, value: unknown): void => {
    const { [field.name]: _, ...others } = values;
    change(value === undefined ? others : { ...others, [field.name]: value });
  };
  return (
    <>
      {fields.map((field) => (
        <label key={field.name}>
          <span>{field.name}{field.required ? "" : <span class="quiet"> (optional)</span>}</span>
          <Control field={field} set={(value) => set(field, value)} />
          {field.hint && <span class="quiet">{field.hint}</span>}
        </label>
      ))}
    </>
  );
}

function Control({ field, set }: { field: Field; set: (value: unknown) => void }) {
  if (field.kind === "yes" || field.kind === "choice") {
    const choices = field.kind === "yes" ? [true, false] : field.choices;
    return (
      <select required={field.required} onChange={(event) => set(valueOf({ ...field, kind: "choice", choices }, event.currentTarget.value))}>
        <option value="">–</option>
        {choices.map((choice) => <option key={write(choice)} value={write(choice)}>{typeof choice === "string" ? choice : write(choice)}</option>)}
      </select>
    );
  }
  if (field.kind === "json") {
    return <textarea rows={3} class="mono" spellcheck={false} placeholder="JSON" required={field.required} onInput={(event) => set(valueOf(field, event.currentTarget.value))} />;
  }
  const onInput = (event: { currentTarget: HTMLInputElement }): void => set(valueOf(field, event.currentTarget.value));
  if (field.kind === "text") return <input type="text" onInput={onInput} />;
  return <input type="number" step={field.kind === "whole" ? 1 : "any"} required={field.required} onInput={onInput} />;
}
