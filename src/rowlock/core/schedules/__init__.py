"""When a schedule is due: cron rules, intervals, time zones. Pure."""
