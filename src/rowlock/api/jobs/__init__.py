"""Routes for the owners of jobs: create, list, read, cancel, retry, results, webhooks."""
