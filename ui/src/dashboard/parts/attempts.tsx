// The attempts that did not succeed, with their tracebacks.
import { between, clock, duration } from "../../shared/time.ts";
import type { Attempt } from "../types.ts";
import { Copy, Section } from "./bits.tsx";

export function Attempts({ attempts }: { attempts: Attempt[] }) {
  if (attempts.length === 0) return null;
  return (
    <Section title="Attempts that did not succeed">
      <ol class="attempts">
        {[...attempts].reverse().map((attempt) => (
          <li key={attempt.attempt}>
            <p>
              <strong>{attempt.attempt}. {attempt.outcome.replace("_", " ")}</strong>
              {attempt.errorCode && <code class="bad-text"> {attempt.errorCode}</code>}
              <span class="quiet"> {clock(attempt.startedAt ?? attempt.endedAt)}{attempt.startedAt ? `, lasted ${duration(between(attempt.startedAt, attempt.endedAt))}` : ""}{attempt.worker ? `, on ${attempt.worker}` : ""}</span>
            </p>
            {attempt.errorMessage && <pre>{attempt.errorMessage}</pre>}
            {attempt.traceback && (
              <details><summary>Traceback of attempt {attempt.attempt}</summary><Copy text={attempt.traceback} what="the traceback" /><pre class="traceback">{attempt.traceback}</pre></details>
            )}
          </li>
        ))}
      </ol>
    </Section>
  );
}
