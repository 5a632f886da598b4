-- The options of tasks, in the order of store/tasks.py.

-- name: declare_tasks
-- What a worker that starts says about its tasks. Rows that say the same already are not written again.
INSERT INTO {t}tasks (name, options, source_derived, updated_at)
SELECT declared.name, declared.options, declared.source_derived = 1, {now}
FROM {rows:declared(name text, options json, source_derived int)}
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, source_derived = excluded.source_derived, updated_at = excluded.updated_at
WHERE CAST({t}tasks.options AS text) <> CAST(excluded.options AS text)
   OR {t}tasks.source_derived <> excluded.source_derived;

-- name: find_task
-- One task, as a worker last registered it.
SELECT name, CAST(options AS text) AS options, source_derived FROM {t}tasks WHERE name = :name;

-- name: task_names
-- The tasks that workers have registered.
SELECT name FROM {t}tasks ORDER BY name;
