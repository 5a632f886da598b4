-- The document's table `jobs`, under a name that both engines know: its columns and its words.
CREATE VIEW stickers_document_jobs AS
SELECT id, owner AS user_id, args ->> 'prompt' AS prompt,
       CASE WHEN state IN ('queued', 'retryable') THEN 'queued'
            WHEN state = 'running'                THEN 'processing'
            WHEN state = 'succeeded'              THEN 'done'
            ELSE 'error'
       END                                                                   AS status,
       CASE WHEN state NOT IN ('queued', 'retryable') THEN locked_by END     AS worker_id,
       CASE WHEN state NOT IN ('queued', 'retryable') THEN started_at END    AS started_at,
       finished_at                                                           AS completed_at,
       CASE WHEN state IN ('dead', 'cancelled')
            -- The first line: the rest is for whoever mends it.
            THEN coalesce(substr(error_message, 1, instr(error_message || char(10), char(10)) - 1), error_code)
       END                                                                   AS error,
       CASE WHEN state = 'succeeded' THEN result ->> 'path' END              AS image,
       attempt, created_at
FROM stickers_jobs;
