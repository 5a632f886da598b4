"""What cron jobs can do: one module for each handler."""
