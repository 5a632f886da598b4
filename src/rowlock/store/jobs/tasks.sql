-- The options of tasks, in the order of tasks.py.

-- name: declare_tasks
-- Store the options of a starting worker's tasks. Unchanged rows are not written.
INSERT INTO {t}tasks (name, options, source_derived, arguments, description, updated_at)
SELECT declared.name, declared.options, declared.source_derived = 1, declared.arguments, declared.description, {now}
FROM {rows:declared(name text, options json, source_derived int, arguments json, description text)}
WHERE TRUE
ON CONFLICT (name) DO UPDATE
SET options = excluded.options, source_derived = excluded.source_derived, arguments = excluded.arguments,
    description = excluded.description, updated_at = excluded.updated_at
WHERE CAST({t}tasks.options AS text) <> CAST(excluded.options AS text)
   OR {t}tasks.source_derived <> excluded.source_derived
   OR CAST({t}tasks.arguments AS text) IS DISTINCT FROM CAST(excluded.arguments AS text)
   OR {t}tasks.description IS DISTINCT FROM excluded.description;

-- name: find_task
-- One task as a worker last registered it.
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       {time(updated_at)} AS updated_at
FROM {t}tasks
WHERE name = :name;

-- name: list_tasks
-- All registered tasks, by name.
SELECT name, CAST(options AS text) AS options, source_derived, CAST(arguments AS text) AS arguments, description,
       {time(updated_at)} AS updated_at
FROM {t}tasks
ORDER BY name
LIMIT :n;

-- name: task_names
-- The names of all registered tasks.
SELECT name FROM {t}tasks ORDER BY name;
