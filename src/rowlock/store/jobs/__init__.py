"""The life of a job in the database: enqueue, claim, lease, settle, cancel, retry."""
