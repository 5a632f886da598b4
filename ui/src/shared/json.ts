// JSON without loss: whole numbers that a JavaScript number would round are kept as BigInt, and written back as they were.

interface Source {
  source?: string;
}
type Reviver = (this: unknown, key: string, value: unknown, context?: Source) => unknown;
const raw = (JSON as unknown as { rawJSON?: (text: string) => unknown }).rawJSON;

export function read(text: string): unknown {
  const keep: Reviver = (_key, value, context) => {
    const lost = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
    return lost && context?.source && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
  };
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

export function write(value: unknown, indent?: number): string {
  const plain = (_key: string, inner: unknown): unknown =>
    typeof inner === "bigint" ? (raw ? raw(String(inner)) : Number(inner)) : inner;
  return JSON.stringify(value, plain, indent) ?? "null";
}
