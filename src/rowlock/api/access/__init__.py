"""Who is asking and what they may do: tokens, sessions, JWTs, ownership, rate limits, Idempotency-Keys."""
