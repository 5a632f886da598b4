"""Live events: read once per server, sent to clients by WebSocket or server-sent events."""
