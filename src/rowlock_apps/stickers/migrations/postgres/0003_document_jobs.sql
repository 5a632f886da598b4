-- The document's table `jobs`, under a name that both engines know.
CREATE VIEW stickers_document_jobs AS
SELECT id, user_id, prompt, status, worker_id, started_at, completed_at, error, image, attempt, created_at
FROM stickers.jobs;
