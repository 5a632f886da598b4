"""Cron jobs: a dispatcher turns ticks into executions, a pool of five runs them through handlers, with retries and
timeouts. `rowlock up --app rowlock_apps.cronjobs:app` runs all of it."""

from rowlock_apps.cronjobs.app import app

__all__ = ["app"]
