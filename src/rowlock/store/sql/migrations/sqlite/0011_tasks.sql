-- The options of each task as its worker registered them, so that a job can be enqueued with them where the task's code
-- is not at hand.

CREATE TABLE rowlock_tasks (
    name           TEXT    NOT NULL PRIMARY KEY,
    source_derived INTEGER NOT NULL,            -- a function derives the source from the arguments: it is not in `options`
    options        TEXT    NOT NULL,            -- those that differ from the defaults, as JSON (core/options.py)
    updated_at     REAL    NOT NULL
);
