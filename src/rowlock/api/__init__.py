"""The job API: REST, WebSocket and server-sent events over one database, for owners of jobs and for operators."""
