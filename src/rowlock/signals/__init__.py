"""What a process reports about its jobs: log lines, metrics, probes, Sentry events, traces."""
